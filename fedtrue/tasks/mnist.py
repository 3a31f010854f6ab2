"""MNIST with its writers as clients, or a Dirichlet split: logistic regression (the paper's Fig. 4) or a small CNN."""

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
from fedtrue.tasks.image_classification import check_labels, image_task
from fedtrue.tasks.task import Rates, Task, split_validation_clients

CLASSES, SIDE = 10, 28
FILES = {  # split → images, labels, writers
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "qmnist-train-labels-idx2-int"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "qmnist-test-labels-idx2-int"),
}
LOGISTIC_RATES = {  # for writers as clients; chosen by accuracy on a held-out tenth of them: see docs/tasks/mnist.md
    ("sgd", "sgd", "none"): Rates(0.3, 1.0),
    ("sgd", "adagrad", "none"): Rates(0.1, 1.0),
    ("sgd", "adagrad", "local"): Rates(0.1, 30.0),
    ("sgd", "adagrad", "joint"): Rates(0.1, 1.0),
    ("sgd", "adam", "joint"): Rates(0.003, 1.0),
}
CONVERSION_VERSION = 1  # increase it when the same file gives other rows


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
    """Handwritten digits: 539 writers to train on, 297 others to test on.

    Args:
        dtype: of matrix products, "float32" or "bfloat16"; by default float32 on CPUs, bfloat16 on accelerators.
        model: "logistic" or "cnn".
        clients: if given, the train images get a non-IID split by Dirichlet(`alpha`) into this many clients instead
            of one client per writer: writers do not differ much.
        alpha: of the Dirichlet split: the smaller, the more the clients differ in their classes.
        seed: of the Dirichlet split.
        validation: fraction of the train writers to hold out for tuning, before any Dirichlet split.

    Returns:
        The task. Without its data files it raises an error that says how to download them.
    """
    models = {
        "logistic": (logistic_regression(SIDE * SIDE, CLASSES, compute_dtype(dtype)), (SIDE * SIDE,)),
        "cnn": (small_cnn(CLASSES, (SIDE, SIDE, 1), compute_dtype(dtype)), (SIDE, SIDE, 1)),
    }
    network, shape = look_up("model", models, model)
    train, held_out = split_validation_clients(_load_writers("train"), validation)
    source = "MNIST with the writers from QMNIST (IDX files)"
    if clients is not None:
        train = train.regrouped(dirichlet(train.values("label"), clients, alpha, seed), "train")
        source = f"MNIST (IDX files), {clients} clients by Dirichlet({alpha:g}), seed {seed}"
    return image_task(
        name="mnist",
        model=network,
        preprocess=lambda images: images.astype(jnp.float32).reshape(-1, *shape) / 255,
        train=train,
        validation=held_out,
        test=_load_writers("test"),
        rounds=500,
        recommended=LOGISTIC_RATES if model == "logistic" and clients is None else {},
        source=source,
    )


def _load_writers(split: str) -> ClientData:
    paths = [find("mnist", f"{name}.gz", name) for name in FILES[split]]
    schema = {"image": Fixed((SIDE, SIDE), np.uint8), "label": Fixed((), np.uint8)}
    examples = lambda: check_labels(idx.read(*paths), CLASSES, str(paths[1]))
    return cached(f"mnist-{split}", paths, CONVERSION_VERSION, {"split": split}, schema, examples)
