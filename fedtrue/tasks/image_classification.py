"""Image classification: preprocessing of the image tasks. Columns `image` (uint8) and `label`."""

from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from fedtrue.data.columns import Example, Fixed, Schema
from fedtrue.models.cnn import small_cnn
from fedtrue.models.model import Model
from fedtrue.models.resnet import resnet18
from fedtrue.names import look_up
from fedtrue.tasks.classification import Preprocess, classification_task
from fedtrue.tasks.task import Task

CROP = 24  # pixels per side; CIFAR's images have 32
CIFAR_SCHEMA: Schema = {"image": Fixed((32, 32, 3), np.uint8), "label": Fixed((), np.uint8)}


def image_task(*, model: Model, preprocess: Preprocess, **settings: Any) -> Task:
    """A classification of images, columns `image` (uint8) and `label`."""
    return classification_task(
        model=model,
        preprocess=preprocess,
        inputs="image",
        targets="label",
        render=lambda example: np.asarray(example["image"]),
        **settings,
    )


def cifar_task(*, model: str, classes: int, dtype: DTypeLike, **settings: Any) -> Task:
    """CIFAR with the reference's preprocessing: 24×24, random crops and flips in training, centre crops in evaluation.

    `model` is `resnet18` or `cnn`.
    """
    models = {
        "resnet18": lambda: resnet18(classes, dtype=dtype),
        "cnn": lambda: small_cnn(classes, (CROP, CROP, 3), dtype),
    }
    return image_task(
        model=look_up("model", models, model)(),
        preprocess=lambda images: standardise(central_crop(images)),
        augment=random_crop_and_flip,
        **settings,
    )


def random_crop_and_flip(key: Array, images: Array) -> Array:
    """A random CROP × CROP window of each image, mirrored with probability ½."""

    def crop_and_flip(key: Array, image: Array) -> Array:
        crop_key, flip_key = jax.random.split(key)
        corners = jnp.array([image.shape[0] - CROP + 1, image.shape[1] - CROP + 1])
        top, left = jax.random.randint(crop_key, (2,), 0, corners)
        window = jax.lax.dynamic_slice(image, (top, left, 0), (CROP, CROP, image.shape[2]))
        return jnp.where(jax.random.bernoulli(flip_key), window[:, ::-1], window)

    return jax.vmap(crop_and_flip)(jax.random.split(key, images.shape[0]), images)


def central_crop(images: Array) -> Array:
    """The middle CROP × CROP pixels; images of that size are not changed."""
    top, left = ((extent - CROP) // 2 for extent in images.shape[1:3])
    return images[:, top : top + CROP, left : left + CROP]


def standardise(images: Array) -> Array:
    """(x − mean)/max(σ, 1/√N), over the N numbers of each image; a uniform image becomes 0, not NaN."""
    pixels = images.astype(jnp.float32)
    centred = pixels - pixels.mean(axis=(1, 2, 3), keepdims=True)
    deviation = jnp.sqrt((centred * centred).mean(axis=(1, 2, 3), keepdims=True))
    return centred / jnp.maximum(deviation, 1 / np.sqrt(np.prod(images.shape[1:])))


def check_labels(examples: Iterable[Example], classes: int, file_name: str) -> Iterator[Example]:
    """Yield image and label of every example; a label out of range raises a ValueError with its file and client."""
    for client, example in examples:
        label = int(np.asarray(example["label"]).reshape(()))
        if not 0 <= label < classes:
            raise ValueError(
                f"{file_name}: client {client!r} has label {label} of {classes} classes: download it again"
            )
        yield client, {"image": example["image"], "label": label}
