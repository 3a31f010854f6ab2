"""Tag prediction from the words of a text: loss and recall of the tag tasks.

The columns `words` (ids of a text's known words, from 0) and `tags` (ids of its known tags, from 0) are ragged. A batch
is made dense on the device, so a client with 1,000 texts takes kilobytes instead of 40 megabytes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from fedtrue.data.client_data import ClientData
from fedtrue.data.columns import Schema, Varying
from fedtrue.models.linear import bag_of_words, word_regression
from fedtrue.models.losses import binary_cross_entropy
from fedtrue.models.model import Model
from fedtrue.tasks.task import Task
from fedtrue.types import Batch, LossFunction, Params, Sums

RECALL_AT = 5


def tag_loss(model: Model, tags: int) -> LossFunction:
    """Binary cross-entropy, averaged over tags and **summed** over the batch, as the paper's rates assume.

    The objective is the sum over all texts. The mean loss of a client's batches is n_i/K_i times its mean loss over its
    texts, n_i texts in K_i batches, so clients count by K_i (weighting "batches").
    """

    def loss(params: Params, batch: Batch) -> tuple[Array, Sums]:
        total = _summed_loss(model.apply(params, padded_ids(batch["words"])), _labels(batch, tags), batch["mask"])
        return total, {"loss": (total, jnp.sum(batch["mask"]))}

    return loss


def tag_metrics(model: Model, tags: int) -> Callable[[Params, Batch], Sums]:
    """The loss, and `recall_at_5`: the fraction of all true tags that are among the five most likely of their text."""

    def metrics(params: Params, batch: Batch) -> Sums:
        logits, labels = model.apply(params, padded_ids(batch["words"])), _labels(batch, tags)
        guessed = jax.lax.top_k(logits, min(RECALL_AT, tags))[1]
        found = jnp.take_along_axis(labels, guessed, axis=1).sum(axis=1)
        mask = batch["mask"]
        return {
            "loss": (_summed_loss(logits, labels, mask), jnp.sum(mask)),
            "recall_at_5": (jnp.sum(found * mask), jnp.sum(labels.sum(axis=1) * mask)),
        }

    return metrics


def _summed_loss(logits: Array, labels: Array, mask: Array) -> Array:
    return jnp.sum(binary_cross_entropy(logits, labels).mean(axis=1) * mask)


def _labels(batch: Batch, tags: int) -> Array:
    """(batch, tags): 1 where the text has the tag."""
    return (bag_of_words(padded_ids(batch["tags"]), tags) > 0).astype(jnp.float32)


def padded_ids(column: Mapping[str, Array]) -> Array:
    """The ids of a ragged column, −1 on padding."""
    return jnp.where(column["mask"], column["values"].astype(jnp.int32), -1)


def tag_task(
    *, words: Sequence[str], tags: Sequence[str], train: ClientData, dtype: DTypeLike = jnp.float32, **settings: Any
) -> Task:
    """One-vs-rest logistic regression from bags of words to tags; batches of 100, ten clients per round."""
    model = word_regression(len(words), len(tags), dtype)
    return Task(
        init=model.init,
        loss=tag_loss(model, len(tags)),
        metrics=tag_metrics(model, len(tags)),
        train=train,
        summed_loss=True,
        weighting="batches",
        render=lambda example: _render(example, words, tags),
        **{"batch_size": 100, "cohort": min(10, len(train)), "evaluation_batch_size": 128, **settings},
    )


def _render(example: Mapping[str, Any], words: Sequence[str], tags: Sequence[str]) -> str:
    text = " ".join(words[word] for word in example["words"])
    return f"{text} [{', '.join(tags[tag] for tag in example['tags'])}]"


def ids_by_name(names: Sequence[str]) -> dict[str, int]:
    """name → id, from 0."""
    return {name: position for position, name in enumerate(names)}


def known_ids(names: Iterable[Any], ids: Mapping[Any, int]) -> list[int]:
    """The ids of the known names, in order; unknown names are dropped."""
    return [ids[name] for name in names if name in ids]


def tag_schema(words: int, tags: int) -> Schema:
    """The two columns, with the smallest integer types that fit the ids."""
    return {"words": Varying(np.min_scalar_type(words - 1)), "tags": Varying(np.min_scalar_type(tags - 1))}
