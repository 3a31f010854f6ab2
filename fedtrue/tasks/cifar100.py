"""CIFAR-100 in 500 clients by Pachinko allocation, ResNet-18 with group norm: the paper's image task."""

import numpy as np
from jax.typing import DTypeLike

from fedtrue.data import cifar_binary
from fedtrue.data.cache import cached
from fedtrue.data.client_data import ClientData
from fedtrue.data.columns import Fixed
from fedtrue.data.locations import find
from fedtrue.data.partition import pachinko
from fedtrue.precision import compute_dtype
from fedtrue.spec import named
from fedtrue.tasks.image_classification import CIFAR_SCHEMA, cifar_task, divided, labelled
from fedtrue.tasks.task import Task, split_validation_clients
from fedtrue.tasks.tff_files import file_names, find_split

CLASSES = 100
EXAMPLES_PER_CLIENT = 100
BINARY = "cifar-100-binary.tar.gz"
VERSION = 1  # of the conversion: raised when the same file gives other rows


@named("task", defaults=False)
def cifar100(
    *, dtype: DTypeLike | None = None, model: str = "resnet18", validation: float = 0.0, seed: int = 0
) -> Task:
    """TFF's 500 train and 100 test clients, or the same allocation drawn by `seed` from CIFAR-100's binary version.

    `validation` is the part of the train clients kept apart to tune on; the paper trains on all 500, hence 0.
    """
    found = find("cifar100", *file_names("cifar100", "fed_cifar100_train.h5"), BINARY)
    if found.name == BINARY:
        train, test = (_allocated(split, seed) for split in ("train", "test"))
        source = f"CIFAR-100 ({BINARY}), Pachinko allocation drawn by seed {seed}: not the paper's clients"
    else:
        train, test = (_federated(split) for split in ("train", "test"))
        source = f"TFF's federated CIFAR-100, the paper's own clients ({found.name})"
    train, held_apart = split_validation_clients(train, validation)
    return cifar_task(
        name="cifar100",
        model=model,
        classes=CLASSES,
        dtype=compute_dtype(dtype),
        train=train,
        validation=held_apart,
        test=test,
        rounds=8000,
        source=source,
    )


def _federated(split: str) -> ClientData:
    path, read = find_split("cifar100", split, f"fed_cifar100_{split}.h5")
    examples = lambda: labelled(read(["image", "label"]), CLASSES, str(path))
    return cached(f"cifar100-{split}", [path], VERSION, {"split": split}, CIFAR_SCHEMA, examples)


def _allocated(split: str, seed: int) -> ClientData:
    path = find("cifar100", BINARY)

    def examples():
        arrays = cifar_binary.read(path, "cifar100", split)
        yield from (("all", dict(zip(arrays, values))) for values in zip(*arrays.values()))

    schema = {**CIFAR_SCHEMA, "coarse_label": Fixed((), np.uint8)}
    central = cached(f"cifar100-central-{split}", [path], VERSION, {"split": split}, schema, examples)
    coarse, fine = (np.asarray(central.columns[name]) for name in ("coarse_label", "label"))
    clients = len(fine) // EXAMPLES_PER_CLIENT
    if clients < 1:
        raise ValueError(f"{path} has {len(fine)} images in {split}: a client alone takes {EXAMPLES_PER_CLIENT}")
    parts = pachinko(coarse, fine, clients, EXAMPLES_PER_CLIENT, seed=seed if split == "train" else seed + 1)
    return divided(central, parts, split)
