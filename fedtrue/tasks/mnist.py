"""MNIST, its clients the writers or a Dirichlet split: logistic regression (the paper's Fig. 4) or a small CNN."""

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from fedtrue.data import idx
from fedtrue.data.cache import cached
from fedtrue.data.client_data import ClientData
from fedtrue.data.columns import Fixed
from fedtrue.data.locations import find
from fedtrue.data.partition import dirichlet
from fedtrue.models.cnn import small_cnn
from fedtrue.models.linear import logistic_regression
from fedtrue.names import look_up
from fedtrue.precision import compute_dtype
from fedtrue.spec import named
from fedtrue.tasks.image_classification import divided, image_task, labelled
from fedtrue.tasks.task import Rates, Task, split_validation_clients

CLASSES, SIDE = 10, 28
FILES = {  # split → images, labels, writers
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "qmnist-train-labels-idx2-int"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "qmnist-test-labels-idx2-int"),
}
LOGISTIC_RATES = {  # of the writers; ours, by accuracy on a tenth of them kept apart: see docs/tasks/mnist.md
    ("sgd", "sgd", "none"): Rates(0.3, 1.0),
    ("sgd", "adagrad", "none"): Rates(0.1, 1.0),
    ("sgd", "adagrad", "local"): Rates(0.1, 30.0),
    ("sgd", "adagrad", "joint"): Rates(0.1, 1.0),
    ("sgd", "adam", "joint"): Rates(0.003, 1.0),
}
VERSION = 1  # of the conversion: raised when the same file gives other rows


@named("task", defaults=False)
def mnist(
    *,
    dtype: DTypeLike | None = None,
    model: str = "logistic",
    clients: int | None = None,
    alpha: float = 0.5,
    seed: int = 0,
    validation: float = 0.0,
) -> Task:
    """539 writers in train, 297 others in test. `model` is `logistic` or `cnn`.

    Writers are rather alike. With `clients` the train images are dealt to so many instead, each class in proportions
    from Dirichlet(`alpha`): the smaller, the less alike. `validation` is the part of the train writers kept apart to
    tune on, before any dealing.
    """
    models = {
        "logistic": (logistic_regression(SIDE * SIDE, CLASSES, compute_dtype(dtype)), (SIDE * SIDE,)),
        "cnn": (small_cnn(CLASSES, (SIDE, SIDE, 1), compute_dtype(dtype)), (SIDE, SIDE, 1)),
    }
    network, shape = look_up("model", models, model)
    train, held_apart = split_validation_clients(_writers("train"), validation)
    source = "MNIST, the writers as QMNIST names them (IDX files)"
    if clients is not None:
        train = _dealt(train, clients, alpha, seed)
        source = f"MNIST (IDX files), {clients} clients by Dirichlet({alpha:g}), seed {seed}"
    return image_task(
        name="mnist",
        model=network,
        preprocess=lambda images: images.astype(jnp.float32).reshape(-1, *shape) / 255,
        train=train,
        validation=held_apart,
        test=_writers("test"),
        rounds=500,
        recommended=LOGISTIC_RATES if model == "logistic" and clients is None else {},
        source=source,
    )


def _dealt(writers: ClientData, clients: int, alpha: float, seed: int) -> ClientData:
    """The writers' images, dealt anew."""
    rows = np.concatenate([start + np.arange(size) for start, size in zip(writers.starts, writers.sizes)])
    parts = dirichlet(np.asarray(writers.columns["label"])[rows], clients, alpha, seed)
    return divided(writers, [rows[part] for part in parts], "train")


def _writers(split: str) -> ClientData:
    paths = [find("mnist", f"{name}.gz", name) for name in FILES[split]]
    schema = {"image": Fixed((SIDE, SIDE), np.uint8), "label": Fixed((), np.uint8)}
    examples = lambda: labelled(idx.read(*paths), CLASSES, str(paths[1]))
    return cached(f"mnist-{split}", paths, VERSION, {"split": split}, schema, examples)
