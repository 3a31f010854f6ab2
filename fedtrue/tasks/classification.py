"""Classification and regression of single examples: losses and metrics for any inputs."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

from fedtrue.data.client_data import ClientData
from fedtrue.models.losses import token_cross_entropy
from fedtrue.models.model import Model
from fedtrue.tasks.task import Task, masked_mean
from fedtrue.types import Batch, Params, Sums

Preprocess = Callable[[Any], Array]  # a batch of a column → inputs of the model
Augment = Callable[[Array, Array], Array]  # (key, a batch of a column) → the batch, changed at random


def classification_task(
    *,
    model: Model,
    preprocess: Preprocess,
    inputs: str,
    targets: str,
    train: ClientData,
    augment: Augment | None = None,
    **settings: Any,
) -> Task:
    """Mean cross-entropy, in training on inputs augmented with the batch's key; evaluation does not augment."""

    def loss(params: Params, batch: Batch) -> tuple[Array, Sums]:
        given = batch[inputs] if augment is None else augment(batch["key"], batch[inputs])
        labels = batch[targets].astype(jnp.int32)
        mean, sums = masked_mean(token_cross_entropy(model.apply(params, preprocess(given)), labels), batch["mask"])
        return mean, {"loss": sums}

    def metrics(params: Params, batch: Batch) -> Sums:
        labels = batch[targets].astype(jnp.int32)
        logits = model.apply(params, preprocess(batch[inputs]))
        per_example = {"loss": token_cross_entropy(logits, labels), "accuracy": logits.argmax(axis=-1) == labels}
        return {name: masked_mean(values, batch["mask"])[1] for name, values in per_example.items()}

    return _task(model, loss, metrics, train, settings)


def regression_task(
    *,
    model: Model,
    preprocess: Preprocess,
    scale: Preprocess,
    inputs: str,
    targets: str,
    train: ClientData,
    **settings: Any,
) -> Task:
    """Mean squared error of one predicted number; `scale` is applied to the targets."""

    def squared_errors(params: Params, batch: Batch) -> Array:
        return (model.apply(params, preprocess(batch[inputs]))[:, 0] - scale(batch[targets])) ** 2

    def loss(params: Params, batch: Batch) -> tuple[Array, Sums]:
        mean, sums = masked_mean(squared_errors(params, batch), batch["mask"])
        return mean, {"loss": sums}

    def metrics(params: Params, batch: Batch) -> Sums:
        return {"loss": masked_mean(squared_errors(params, batch), batch["mask"])[1]}

    return _task(model, loss, metrics, train, settings)


def _task(model: Model, loss: Any, metrics: Any, train: ClientData, settings: dict[str, Any]) -> Task:
    defaults: dict[str, Any] = {"batch_size": 20, "cohort": min(10, len(train))}
    return Task(init=model.init, loss=loss, metrics=metrics, train=train, **{**defaults, **settings})
