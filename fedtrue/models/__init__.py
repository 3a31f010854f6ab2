"""Networks as pure functions: each factory returns a `Model` with `init` and `apply`."""

from fedtrue.models.cnn import small_cnn
from fedtrue.models.convolution import convolve, max_pool
from fedtrue.models.embedding import embed
from fedtrue.models.linear import bag_of_words, bag_product, logistic_regression, word_regression
from fedtrue.models.losses import binary_cross_entropy, token_cross_entropy
from fedtrue.models.lstm import language_model
from fedtrue.models.mlp import mlp
from fedtrue.models.model import Model, count_weights
from fedtrue.models.resnet import resnet18

__all__ = [
    "Model",
    "bag_of_words",
    "bag_product",
    "binary_cross_entropy",
    "convolve",
    "count_weights",
    "embed",
    "language_model",
    "logistic_regression",
    "max_pool",
    "mlp",
    "resnet18",
    "small_cnn",
    "token_cross_entropy",
    "word_regression",
]
