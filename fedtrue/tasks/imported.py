"""Tasks on data sets that `fedtrue data import` has imported: the kind of data decides which models there are."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from fedtrue.data.client_data import ClientData
from fedtrue.data.imports import Imported, find_imported
from fedtrue.models.cnn import small_cnn
from fedtrue.models.linear import logistic_regression, word_regression
from fedtrue.models.mlp import mlp
from fedtrue.models.model import Model
from fedtrue.models.resnet import resnet18
from fedtrue.names import look_up
from fedtrue.precision import compute_dtype
from fedtrue.spec import check_option_names, made_spec, with_spec
from fedtrue.tasks.classification import Preprocess, classification_task, regression_task
from fedtrue.tasks.next_token import next_word_task
from fedtrue.tasks.paper_rates import STACKOVERFLOW_TAGS, STACKOVERFLOW_WORDS
from fedtrue.tasks.tag_prediction import padded_ids, tag_task
from fedtrue.tasks.task import Rates, Task, check_positive, split_validation_clients

ROUNDS = 100
MAX_DEVIATIONS = 10.0


def _starting_rates(rates: Mapping[str, float]) -> dict[tuple[str, str, str], Rates]:
    return {
        ("sgd", client, correction): Rates(rate, 1.0)
        for client, rate in rates.items()
        for correction in ("none", "joint")
    }


# Where to start tuning: they train the data sets of our tests, and are not the best for any.
STARTING_RATES = _starting_rates({"sgd": 0.1, "adagrad": 0.1, "adam": 0.003})
TEXT_RATES = _starting_rates({"sgd": 10.0, "adagrad": 0.3, "adam": 0.03})  # a word is one of a hundred in its text


class Data(NamedTuple):
    """What a model must know of the data."""

    source: Imported
    train: ClientData
    settings: dict[str, Any]  # of the task: name, splits, rounds, …
    dtype: DTypeLike

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.source.meta["columns"]["x"]["shape"])

    @property
    def features(self) -> int:
        return int(np.prod(self.shape))

    @property
    def outputs(self) -> int:
        """The number of classes; 1 for a regression."""
        return self.source.meta["classes"] or 1


def imported(
    name: str,
    *,
    model: str | Mapping[str, Any] | None = None,
    dtype: DTypeLike | None = None,
    validation: float = 0.0,
) -> Task:
    """A task on a data set that `fedtrue data import NAME` has imported.

    Args:
        name: of the data set.
        model: cnn, resnet18, mlp or logistic for images; mlp or logistic for features; lstm for texts; logistic for
            texts with tags or labels; by default the first. With options: `{"name": "mlp", "hidden": 64, "layers": 2}`.
        dtype: of matrix products, "float32" or "bfloat16"; by default float32 on CPUs, bfloat16 on accelerators.
        validation: fraction of the train clients to hold out for tuning, if the data has no validation split.

    Returns:
        The task. Its recommended learning rates are values to start from.
    """
    source = find_imported(name)
    models = MODELS[source.meta["kind"]]
    table = {"name": model} if isinstance(model, str) else dict(model or {})
    chosen, options = table.pop("name", next(iter(models))), table
    build = _look_up_model(source, models, chosen)
    check_option_names(f"model {chosen!r}", build, options, skip=("data",))
    splits = source.splits()
    train, held_out = splits["train"], splits.get("validation")
    if validation and held_out is None:
        train, held_out = split_validation_clients(train, validation)
    settings = {"name": name, "validation": held_out, "test": splits.get("test"), "rounds": ROUNDS}
    settings["source"] = source.summary
    task = build(Data(source, train, settings, compute_dtype(dtype)), **options)
    recorded = {"model": {"name": chosen, **options} if options else chosen, "dtype": dtype}
    return with_spec(task, made_spec(name, {**recorded, "validation": validation or None}))


def _look_up_model(source: Imported, models: Mapping[str, Callable[..., Task]], chosen: str) -> Callable[..., Task]:
    kind = source.meta["kind"]
    if kind == "features" and chosen in MODELS["image"] and chosen not in models:
        cure = "import it again with --image COLUMN or --image-shape HEIGHT,WIDTH"
        raise ValueError(
            f"{chosen} needs images, but {source.name} has features: {cure}, or choose {', '.join(models)}"
        )
    return look_up(f"{source.name} has {kind.replace('_', ' ')}: model", models, chosen)


def _cnn(data: Data) -> Task:
    if min(data.shape[:2]) < 6:
        raise ValueError(f"images of {data.shape[0]} × {data.shape[1]} pixels are too small for cnn: choose mlp")
    return _vector_task(data, small_cnn(data.outputs, data.shape, data.dtype), keep_shape=True)  # type: ignore[arg-type]


def _resnet18(data: Data) -> Task:
    return _vector_task(data, resnet18(data.outputs, data.shape[2], data.dtype), keep_shape=True)


def _mlp(data: Data, hidden: int = 128, layers: int = 1) -> Task:
    check_positive(hidden=hidden, layers=layers)
    return _vector_task(data, mlp(data.features, data.outputs, hidden, layers, data.dtype))


def _logistic(data: Data) -> Task:
    return _vector_task(data, logistic_regression(data.features, data.outputs, data.dtype))


def _vector_task(data: Data, model: Model, keep_shape: bool = False) -> Task:
    """Features or images, with classes or numbers to predict."""
    common = {
        "model": model,
        "preprocess": _preprocess(data, keep_shape),
        "inputs": "x",
        "targets": "y",
        "train": data.train,
        "recommended": STARTING_RATES,
        "render": partial(_render, classes=data.train.classes, is_image=data.source.meta["kind"] == "image"),
        **data.settings,
    }
    if data.source.meta["classes"] is not None:
        return classification_task(**common)
    return regression_task(**common, scale=_standardised(data, "y"))


def _preprocess(data: Data, keep_shape: bool) -> Preprocess:
    """Pixels from 0 to 1; features with mean 0 and deviation 1 over the train examples; flat unless `keep_shape`.

    A feature that differs from 0 in few examples has a small deviation: it is cut off at ±MAX_DEVIATIONS.
    """
    is_pixels = np.dtype(data.source.meta["columns"]["x"]["dtype"]) == np.uint8
    is_features = data.source.meta["kind"] == "features"
    standardised = _standardised(data, "x")
    shape = data.shape if keep_shape else (data.features,)

    def preprocess(x: Array) -> Array:
        x = x.astype(jnp.float32)
        x = x / 255 if is_pixels else x
        x = jnp.clip(standardised(x), -MAX_DEVIATIONS, MAX_DEVIATIONS) if is_features else x
        return x.reshape(-1, *shape)

    return preprocess


def _standardised(data: Data, column: str) -> Callable[[Array], Array]:
    moments = data.source.meta["moments"].get(column)
    if moments is None:
        return lambda values: values
    mean, deviation = (jnp.asarray(moments[key], jnp.float32) for key in ("mean", "deviation"))
    return lambda values: (values - mean) / deviation


def _render(example: Mapping[str, Any], classes: Any, is_image: bool) -> str | np.ndarray:
    if is_image:
        return np.asarray(example["x"])
    label = np.asarray(example["y"]).item()
    return f"x = {np.array2string(np.asarray(example['x']), threshold=8)}, y = {classes[label] if classes else label}"


def _lstm(data: Data, embedding: int = 96, hidden: int = 256, projection: int = 96) -> Task:
    check_positive(embedding=embedding, hidden=hidden, projection=projection)
    words = data.train.vocabularies["tokens"]
    return next_word_task(
        words=words,
        train=data.train,
        embedding=embedding,
        hidden=hidden,
        projection=projection,
        dtype=data.dtype,
        recommended=STACKOVERFLOW_WORDS,
        **data.settings,
    )


def _tag_regression(data: Data) -> Task:
    words, tags = data.train.vocabularies["words"], data.train.vocabularies["tags"]
    rates: dict[str, Any] = {"recommended": STACKOVERFLOW_TAGS, "dtype": data.dtype}
    return tag_task(words=words, tags=tags, train=data.train, **rates, **data.settings)


def _word_regression(data: Data) -> Task:
    words, classes = data.train.vocabularies["words"], data.train.classes

    def render(example: Mapping[str, Any]) -> str:
        label = int(example["y"])
        return f"{' '.join(words[word] for word in example['words'])} [{classes[label] if classes else label}]"

    return classification_task(
        model=word_regression(len(words), data.outputs, data.dtype),
        preprocess=padded_ids,
        inputs="words",
        targets="y",
        train=data.train,
        recommended=TEXT_RATES,
        render=render,
        **data.settings,
    )


MODELS: dict[str, dict[str, Callable[..., Task]]] = {  # kind of data → models, the default first
    "image": {"cnn": _cnn, "resnet18": _resnet18, "mlp": _mlp, "logistic": _logistic},
    "features": {"mlp": _mlp, "logistic": _logistic},
    "words": {"lstm": _lstm},
    "tags": {"logistic": _tag_regression},
    "labelled_text": {"logistic": _word_regression},
}
