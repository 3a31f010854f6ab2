"""Predict the next token: loss and accuracies shared by the word and character tasks.

A row of the column `tokens` is begin, t_1, …, end, pads; inputs are all but its last entry, targets all but its first.
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
from fedtrue.tasks.task import Sums, Task

Maskings = Mapping[str, Sequence[int]]  # metric → the target ids it does not count, besides pads


def next_token_loss(model: Model) -> Callable[[Any, Any], tuple[Any, Sums]]:
    """The mean cross-entropy over the batch's real target tokens, those that are not pads."""

    def loss(params: Any, batch: Any) -> tuple[Any, Sums]:
        inputs, targets, counted = _shifted(batch)
        total = jnp.sum(token_cross_entropy(model.apply(params, inputs), targets) * counted)
        count = jnp.sum(counted)
        return total / jnp.maximum(count, 1), {"loss": (total, count)}

    return loss


def next_token_metrics(model: Model, maskings: Maskings) -> Callable[[Any, Any], Sums]:
    """The loss, and for each masking how often the likeliest token is the target among the targets that count."""

    def metrics(params: Any, batch: Any) -> Sums:
        inputs, targets, counted = _shifted(batch)
        logits = model.apply(params, inputs)
        right = logits.argmax(axis=-1) == targets
        sums: Sums = {"loss": (jnp.sum(token_cross_entropy(logits, targets) * counted), jnp.sum(counted))}
        for name, ignored in maskings.items():
            kept = counted * jnp.all(targets[..., None] != jnp.asarray(ignored, targets.dtype), axis=-1)
            sums[name] = (jnp.sum(right * kept), jnp.sum(kept))
        return sums

    return metrics


def _shifted(batch: Any) -> tuple[Any, Any, Any]:
    """(inputs, targets, 1 where a target counts): neither pads nor the padding of a short batch count."""
    tokens = batch["tokens"].astype(jnp.int32)
    targets = tokens[:, 1:]
    return tokens[:, :-1], targets, (targets != PAD) * batch["mask"][:, None]


def target_tokens(data: ClientData) -> np.ndarray:
    """How many targets each client has that are not pads: what `weighting="tokens"` weighs by."""
    tokens = data.columns["tokens"]
    assert isinstance(tokens, np.ndarray)
    counts = [np.count_nonzero(tokens[first : first + size, 1:]) for first, size in zip(data.starts, data.sizes)]
    return np.array(counts, np.float64)


def next_token_task(*, model: Model, maskings: Maskings, train: ClientData, **settings: Any) -> Task:
    """A task on rows of tokens, weighted by tokens."""
    return Task(
        init=model.init,
        loss=next_token_loss(model),
        metrics=next_token_metrics(model, maskings),
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
    """Stack Overflow's model and metrics on any words: ids are 0 for pads, then the words, unknown, begin, end.

    `accuracy` is the paper's: without pad, unknown (OOV), begin (BOS) and end (EOS). The other two count EOS as well,
    and EOS and OOV.
    """
    oov, bos, eos = (len(words) + place for place in (1, 2, 3))
    names = ["", *words, "<oov>", "<bos>", "<eos>"]
    return next_token_task(
        model=language_model(len(names), embedding, hidden, projection=projection, dtype=dtype),
        maskings={
            "accuracy": (oov, bos, eos),
            "accuracy_with_eos": (oov, bos),
            "accuracy_with_eos_and_oov": (bos,),
        },
        train=train,
        render=lambda example: " ".join(names[token] for token in example["tokens"] if token != PAD),
        **{"batch_size": 16, "cohort": min(50, len(train)), "evaluation_batch_size": 128, **settings},
    )
