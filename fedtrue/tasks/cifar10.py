"""CIFAR-10 with a Dirichlet non-IID split over its classes."""

from collections.abc import Iterator
from pathlib import Path

from jax.typing import DTypeLike

from fedtrue.data import cifar_binary, image_folder
from fedtrue.data.cache import cached
from fedtrue.data.client_data import ClientData
from fedtrue.data.columns import Example
from fedtrue.data.locations import find
from fedtrue.data.partition import dirichlet
from fedtrue.precision import compute_dtype
from fedtrue.spec import named
from fedtrue.tasks.image_classification import CIFAR_SCHEMA, check_labels, cifar_task
from fedtrue.tasks.task import Task, split_validation_clients

CLASSES = 10
BINARY, JPEG = "cifar-10-binary.tar.gz", "cifar10-jpeg.tar.xz"
CONVERSION_VERSION = 1  # increase it when the same file gives other rows


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
    """CIFAR-10 with a non-IID split by Dirichlet(`alpha`); the test images go to a fifth as many other clients.

    Args:
        dtype: of matrix products, "float32" or "bfloat16"; by default float32 on CPUs, bfloat16 on accelerators.
        model: "cnn" or "resnet18".
        clients: number of train clients.
        alpha: the smaller, the more the clients differ in their classes.
        seed: of the split.
        validation: fraction of the train clients to hold out for tuning.

    Returns:
        The task. Without its data file it raises an error that says how to download it.
    """
    path = find("cifar10", BINARY, JPEG)
    train, test = _load_central(path, "train"), _load_central(path, "test")
    train = train.regrouped(dirichlet(train.values("label"), clients, alpha, seed), "train")
    test = test.regrouped(dirichlet(test.values("label"), max(clients // 5, 1), alpha, seed + 1), "test")
    train, held_out = split_validation_clients(train, validation)
    lossy = ", JPEG: lossy" if path.name == JPEG else ""
    return cifar_task(
        name="cifar10",
        model=model,
        classes=CLASSES,
        dtype=compute_dtype(dtype),
        train=train,
        validation=held_out,
        test=test,
        rounds=1500,
        source=f"CIFAR-10 ({path.name}{lossy}), {clients} clients by Dirichlet({alpha:g}), seed {seed}",
    )


def _load_central(path: Path, split: str) -> ClientData:
    examples = lambda: check_labels(_images(path, split), CLASSES, str(path))
    return cached(f"cifar10-{split}", [path], CONVERSION_VERSION, {"split": split}, CIFAR_SCHEMA, examples)


def _images(path: Path, split: str) -> Iterator[Example]:
    if path.name == JPEG:
        yield from image_folder.read(path, split)
        return
    arrays = cifar_binary.read(path, "cifar10", split)
    for image, label in zip(arrays["image"], arrays["label"]):
        yield "all", {"image": image, "label": label}
