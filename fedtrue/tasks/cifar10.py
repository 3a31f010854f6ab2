"""CIFAR-10 divided among clients by a Dirichlet distribution over its classes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jax.typing import DTypeLike

from fedtrue.data import cifar_binary, image_folder
from fedtrue.data.cache import cached
from fedtrue.data.client_data import ClientData
from fedtrue.data.columns import Example
from fedtrue.data.locations import find
from fedtrue.data.partition import dirichlet
from fedtrue.precision import compute_dtype
from fedtrue.spec import named
from fedtrue.tasks.image_classification import CIFAR_SCHEMA, cifar_task, divided, labelled
from fedtrue.tasks.task import Task, split_validation_clients

CLASSES = 10
BINARY, JPEG = "cifar-10-binary.tar.gz", "cifar10-jpeg.tar.xz"
VERSION = 1  # of the conversion: raised when the same file gives other rows


@named("task", defaults=False)
def cifar10(
    *,
    dtype: DTypeLike | None = None,
    model: str = "cnn",
    clients: int = 100,
    alpha: float = 0.5,
    seed: int = 0,
    validation: float = 0.0,
) -> Task:
    """Each class is dealt to `clients` clients in proportions from Dirichlet(`alpha`): the smaller, the less alike.

    The test images are dealt likewise to a fifth as many other clients. `validation` is the part of the train clients
    kept apart to tune on.
    """
    path = find("cifar10", BINARY, JPEG)
    train, test = _central(path, "train"), _central(path, "test")
    train = divided(train, dirichlet(np.asarray(train.columns["label"]), clients, alpha, seed), "train")
    test = divided(test, dirichlet(np.asarray(test.columns["label"]), max(clients // 5, 1), alpha, seed + 1), "test")
    train, held_apart = split_validation_clients(train, validation)
    lossy = ", JPEG, hence lossy" if path.name == JPEG else ""
    return cifar_task(
        name="cifar10",
        model=model,
        classes=CLASSES,
        dtype=compute_dtype(dtype),
        train=train,
        validation=held_apart,
        test=test,
        rounds=1500,
        source=f"CIFAR-10 ({path.name}{lossy}), {clients} clients by Dirichlet({alpha:g}), seed {seed}",
    )


def _central(path: Path, split: str) -> ClientData:
    examples = lambda: labelled(_images(path, split), CLASSES, str(path))
    return cached(f"cifar10-{split}", [path], VERSION, {"split": split}, CIFAR_SCHEMA, examples)


def _images(path: Path, split: str) -> Iterator[Example]:
    if path.name == JPEG:
        yield from image_folder.read(path, split)
        return
    arrays = cifar_binary.read(path, "cifar10", split)
    for image, label in zip(arrays["image"], arrays["label"]):
        yield "all", {"image": image, "label": label}
