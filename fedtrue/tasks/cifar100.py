"""CIFAR-100 with 500 clients by Pachinko allocation, ResNet-18 with group norm: the paper's image task."""

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
from fedtrue.tasks.image_classification import CIFAR_SCHEMA, check_labels, cifar_task
from fedtrue.tasks.task import Task, split_validation_clients
from fedtrue.tasks.tff_files import file_names, find_split

CLASSES = 100
EXAMPLES_PER_CLIENT = 100
BINARY = "cifar-100-binary.tar.gz"
CONVERSION_VERSION = 1  # increase it when the same file gives other rows


@named("task", defaults=False)
def cifar100(
    *, dtype: DTypeLike | None = None, model: str = "resnet18", validation: float = 0.0, seed: int = 0
) -> Task:
    """TFF's 500 train and 100 test clients; without TFF's files, the same allocation of CIFAR-100's binary version.

    Args:
        dtype: of matrix products, "float32" or "bfloat16"; by default float32 on CPUs, bfloat16 on accelerators.
        model: "resnet18" or "cnn".
        validation: fraction of the train clients to hold out for tuning; the paper trains on all 500.
        seed: of the allocation of the binary version; not used with TFF's files.

    Returns:
        The task; `Task.source` names its data. Without data files it raises an error that says how to get them.
    """
    found = find("cifar100", *file_names("cifar100", "fed_cifar100_train.h5"), BINARY)
    if found.name == BINARY:
        train, test = (_load_and_allocate(split, seed) for split in ("train", "test"))
        source = f"CIFAR-100 ({BINARY}), Pachinko allocation with seed {seed}: not the paper's clients"
    else:
        train, test = (_load_federated(split) for split in ("train", "test"))
        source = f"TFF's federated CIFAR-100, the paper's own clients ({found.name})"
    train, held_out = split_validation_clients(train, validation)
    return cifar_task(
        name="cifar100",
        model=model,
        classes=CLASSES,
        dtype=compute_dtype(dtype),
        train=train,
        validation=held_out,
        test=test,
        rounds=8000,
        source=source,
    )


def _load_federated(split: str) -> ClientData:
    path, read = find_split("cifar100", split, f"fed_cifar100_{split}.h5")
    examples = lambda: check_labels(read(["image", "label"]), CLASSES, str(path))
    return cached(f"cifar100-{split}", [path], CONVERSION_VERSION, {"split": split}, CIFAR_SCHEMA, examples)


def _load_and_allocate(split: str, seed: int) -> ClientData:
    path = find("cifar100", BINARY)

    def examples():
        arrays = cifar_binary.read(path, "cifar100", split)
        yield from (("all", dict(zip(arrays, values))) for values in zip(*arrays.values()))

    schema = {**CIFAR_SCHEMA, "coarse_label": Fixed((), np.uint8)}
    central = cached(f"cifar100-central-{split}", [path], CONVERSION_VERSION, {"split": split}, schema, examples)
    coarse, fine = central.values("coarse_label"), central.values("label")
    clients = len(fine) // EXAMPLES_PER_CLIENT
    if clients < 1:
        raise ValueError(
            f"{path} has {len(fine)} {split} images, but one client has {EXAMPLES_PER_CLIENT}: download it again"
        )
    parts = pachinko(coarse, fine, clients, EXAMPLES_PER_CLIENT, seed=seed if split == "train" else seed + 1)
    return central.regrouped(parts, split)
