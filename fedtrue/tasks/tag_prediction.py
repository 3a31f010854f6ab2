"""Predict the tags of a text from its words: loss and recall shared by the tag tasks.

Columns `words` (ids of a text's known words, from 0) and `tags` (ids of its known tags, from 0) are ragged; a batch is
made dense on the device, so that a client of 1,000 texts is kilobytes and not 40 megabytes.
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
from fedtrue.tasks.task import Sums, Task

GUESSES = 5


def tag_loss(model: Model, tags: int) -> Callable[[Any, Any], tuple[Any, Sums]]:
    """Binary cross-entropy, averaged over tags and **summed** over the batch, as the paper's rates presume."""

    def loss(params: Any, batch: Any) -> tuple[Any, Sums]:
        total = _summed_loss(model.apply(params, _ids(batch["words"])), _labels(batch, tags), batch["mask"])
        return total, {"loss": (total, jnp.sum(batch["mask"]))}

    return loss


def tag_metrics(model: Model, tags: int) -> Callable[[Any, Any], Sums]:
    """The loss, and `recall_at_5`: how many of all true tags are among the five likeliest of their text."""

    def metrics(params: Any, batch: Any) -> Sums:
        logits, labels = model.apply(params, _ids(batch["words"])), _labels(batch, tags)
        guessed = jax.lax.top_k(logits, min(GUESSES, tags))[1]
        found = jnp.take_along_axis(labels, guessed, axis=1).sum(axis=1)
        mask = batch["mask"]
        return {
            "loss": (_summed_loss(logits, labels, mask), jnp.sum(mask)),
            "recall_at_5": (jnp.sum(found * mask), jnp.sum(labels.sum(axis=1) * mask)),
        }

    return metrics


def _summed_loss(logits: Array, labels: Array, mask: Array) -> Array:
    return jnp.sum(binary_cross_entropy(logits, labels).mean(axis=1) * mask)


def _labels(batch: Any, tags: int) -> Array:
    """(batch, tags): 1 where the text has the tag."""
    return (bag_of_words(_ids(batch["tags"]), tags) > 0).astype(jnp.float32)


def _ids(column: Any) -> Array:
    return jnp.where(column["mask"], column["values"].astype(jnp.int32), -1)


def tag_task(
    *, words: Sequence[str], tags: Sequence[str], train: ClientData, dtype: DTypeLike = jnp.float32, **settings: Any
) -> Task:
    """Logistic regression, one against the rest, from bags of words to tags; batches of 100, ten clients a round."""
    model = word_regression(len(words), len(tags), dtype)
    return Task(
        init=model.init,
        loss=tag_loss(model, len(tags)),
        metrics=tag_metrics(model, len(tags)),
        train=train,
        render=lambda example: _render(example, words, tags),
        **{"batch_size": 100, "cohort": min(10, len(train)), "evaluation_batch_size": 128, **settings},
    )


def _render(example: Mapping[str, Any], words: Sequence[str], tags: Sequence[str]) -> str:
    text = " ".join(words[word] for word in example["words"])
    return f"{text} [{', '.join(tags[tag] for tag in example['tags'])}]"


def index(names: Sequence[str]) -> dict[str, int]:
    """name → id, from 0."""
    return {name: position for position, name in enumerate(names)}


def known(names: Iterable[Any], ids: Mapping[Any, int]) -> list[int]:
    """The ids of the names that have one, in order; the others are dropped."""
    return [ids[name] for name in names if name in ids]


def schema(words: int, tags: int) -> Schema:
    """The two columns, in the narrowest integers that hold the ids."""
    return {"words": Varying(np.min_scalar_type(words - 1)), "tags": Varying(np.min_scalar_type(tags - 1))}
