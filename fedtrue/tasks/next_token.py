"""Next-token prediction: loss and accuracies of the word and character tasks.

A row of the column `tokens` is begin, t_1, …, end, padding; inputs are all but the last token, targets all but the
first.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from fedtrue.data.client_data import ClientData
from fedtrue.data.text import PAD
from fedtrue.models.losses import token_cross_entropy
from fedtrue.models.lstm import language_model
from fedtrue.models.model import Model
from fedtrue.tasks.task import Task
from fedtrue.types import Array, Batch, LossFunction, Params, Sums

IgnoredTargets = Mapping[str, Sequence[int]]  # accuracy → the target ids it ignores, besides padding


def next_token_loss(model: Model) -> LossFunction:
    """The mean cross-entropy over the target tokens of a batch, without padding."""

    def loss(params: Params, batch: Batch) -> tuple[Array, Sums]:
        inputs, targets, counted = _inputs_and_targets(batch)
        total = jnp.sum(token_cross_entropy(model.apply(params, inputs), targets) * counted)
        count = jnp.sum(counted)
        return total / jnp.maximum(count, 1), {"loss": (total, count)}

    return loss


def next_token_metrics(model: Model, ignored_targets: IgnoredTargets) -> Callable[[Params, Batch], Sums]:
    """The loss, and for each entry of `ignored_targets` the top-1 accuracy over all other targets."""

    def metrics(params: Params, batch: Batch) -> Sums:
        inputs, targets, counted = _inputs_and_targets(batch)
        logits = model.apply(params, inputs)
        is_right = logits.argmax(axis=-1) == targets
        sums: Sums = {"loss": (jnp.sum(token_cross_entropy(logits, targets) * counted), jnp.sum(counted))}
        for name, ignored in ignored_targets.items():
            kept = counted * jnp.all(targets[..., None] != jnp.asarray(ignored, targets.dtype), axis=-1)
            sums[name] = (jnp.sum(is_right * kept), jnp.sum(kept))
        return sums

    return metrics


def _inputs_and_targets(batch: Batch) -> tuple[Array, Array, Array]:
    """(inputs, targets, mask): the mask is 0 on padding tokens and on the padding examples of a short batch."""
    tokens = batch["tokens"].astype(jnp.int32)
    targets = tokens[:, 1:]
    return tokens[:, :-1], targets, (targets != PAD) * batch["mask"][:, None]


def target_tokens(data: ClientData) -> np.ndarray:
    """The number of targets per client, without padding: the weights for `weighting="tokens"`."""
    tokens = data.columns["tokens"]
    assert isinstance(tokens, np.ndarray)
    counts = [np.count_nonzero(tokens[first : first + size, 1:]) for first, size in zip(data.starts, data.sizes)]
    return np.array(counts, np.float64)


def next_token_task(*, model: Model, ignored_targets: IgnoredTargets, train: ClientData, **settings: Any) -> Task:
    """A task on rows of tokens; clients are weighted by target tokens."""
    return Task(
        init=model.init,
        loss=next_token_loss(model),
        metrics=next_token_metrics(model, ignored_targets),
        train=train,
        weighting="tokens",
        counts={"tokens": target_tokens},
        **settings,
    )


def next_word_task(
    *,
    words: Sequence[str],
    train: ClientData,
    embedding: int,
    hidden: int,
    projection: int,
    dtype: DTypeLike,
    **settings: Any,
) -> Task:
    """Stack Overflow's model and metrics for any vocabulary: ids are 0 for padding, then the words, OOV, BOS, EOS.

    `accuracy` is the paper's: it ignores padding, unknown words (OOV), begin (BOS) and end (EOS) of a sentence.
    `accuracy_with_eos` includes EOS, `accuracy_with_eos_and_oov` includes EOS and OOV.
    """
    oov, bos, eos = (len(words) + offset for offset in (1, 2, 3))
    names = ["", *words, "<oov>", "<bos>", "<eos>"]
    return next_token_task(
        model=language_model(len(names), embedding, hidden, projection=projection, dtype=dtype),
        ignored_targets={
            "accuracy": (oov, bos, eos),
            "accuracy_with_eos": (oov, bos),
            "accuracy_with_eos_and_oov": (bos,),
        },
        train=train,
        render=lambda example: " ".join(names[token] for token in example["tokens"] if token != PAD),
        **{"batch_size": 16, "cohort": min(50, len(train)), "evaluation_batch_size": 128, **settings},
    )
