"""The models in PyTorch, for the frameworks that use it, and their weights in the layout of the workload."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from workloads import CLASSES, EMBEDDING, FEATURE_MAPS, HIDDEN, TAGS, TOKENS, WORDS, Arrays, Workload


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, EMBEDDING)
        self.lstm = nn.LSTM(EMBEDDING, HIDDEN, num_layers=2, batch_first=True)
        self.output = nn.Linear(HIDDEN, TOKENS)
        for bias in (self.lstm.bias_hh_l0, self.lstm.bias_hh_l1):  # a second bias per gate: the others have one
            bias.requires_grad_(False).zero_()

    def forward(self, tokens: Tensor) -> Tensor:
        return self.output(self.lstm(self.embedding(tokens))[0])


def _classifier(name: str) -> list[nn.Module]:
    """Three layers on the flattened feature maps."""
    return [nn.Flatten(), nn.Linear(int(np.prod(FEATURE_MAPS[name])), 128), nn.ReLU(), nn.Linear(128, CLASSES)]


def _cnn() -> nn.Module:
    convolutions = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*convolutions, *_classifier("cnn"))


def _pooled() -> nn.Module:
    convolutions = [
        layer
        for inputs, filters in ((1, 32), (32, 64))
        for layer in (nn.Conv2d(inputs, filters, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    ]
    return nn.Sequential(*convolutions, *_classifier("pooled"))


NETWORKS = {"shakespeare": LanguageModel, "tags": lambda: nn.Linear(WORDS, TAGS), "cnn": _cnn, "pooled": _pooled}


class Classifier(nn.Module):
    """A network with the loss of the workload; pfl needs the methods `loss` and `metrics`."""

    def __init__(self, name: str):
        super().__init__()
        self.name, self.network = name, NETWORKS[name]()

    def loss(self, x: Tensor, y: Tensor, **_: object) -> Tensor:
        logits = self.network(x)
        if self.name == "tags":
            return functional.binary_cross_entropy_with_logits(logits, y, reduction="sum") / len(x)
        return functional.cross_entropy(logits.flatten(0, -2), y.flatten())

    def metrics(self, x: Tensor, y: Tensor, **_: object) -> dict:
        return {}

    def load_weights(self, weights: Arrays) -> None:
        state = self.state_dict()
        for name, value in to_torch(self.name, weights).items():
            state[f"network.{name}"].copy_(torch.from_numpy(np.ascontiguousarray(value)))


def tensors(workload: Workload, client: int) -> tuple[Tensor, Tensor]:
    """(x, y) of a client, as torch tensors."""
    x, y = map(torch.from_numpy, workload.client(client))
    if workload.name in FEATURE_MAPS:
        x = x.permute(0, 3, 1, 2).contiguous()
    return x, y if workload.name == "tags" else y.long()


def train_one_client(model: Classifier, optimizer: torch.optim.Optimizer, workload: Workload, client: int) -> int:
    """One pass over the client's batches; returns the number of examples."""
    x, y = tensors(workload, client)
    for batch_x, batch_y in zip(x.split(workload.batch_size), y.split(workload.batch_size)):
        optimizer.zero_grad()
        model.loss(batch_x, batch_y).backward()
        optimizer.step()
    return len(x)


# --- layouts: the workload's weight → torch's name and order of axes -----------------------------------------------

MATRIX, KERNEL, VECTOR = (1, 0), (3, 2, 0, 1), (0,)


def _convolutional_layout(**places: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """By the places of the layers in torch's Sequential."""
    axes = lambda layer: KERNEL if layer.startswith("conv") else MATRIX
    weights = {layer: (f"{place}.weight", axes(layer)) for layer, place in places.items()}
    return weights | {f"{layer}_bias": (f"{place}.bias", VECTOR) for layer, place in places.items()}


LAYOUTS = {
    "shakespeare": {
        "embedding": ("embedding.weight", (0, 1)),
        **{f"input_{layer}": (f"lstm.weight_ih_l{layer}", MATRIX) for layer in (0, 1)},
        **{f"recurrent_{layer}": (f"lstm.weight_hh_l{layer}", MATRIX) for layer in (0, 1)},
        **{f"bias_{layer}": (f"lstm.bias_ih_l{layer}", VECTOR) for layer in (0, 1)},
        "output": ("output.weight", MATRIX),
        "output_bias": ("output.bias", VECTOR),
    },
    "tags": {"kernel": ("weight", MATRIX), "bias": ("bias", VECTOR)},
    "cnn": _convolutional_layout(conv_0=0, conv_1=2, dense_0=6, dense_1=8),
    "pooled": _convolutional_layout(conv_0=0, conv_1=3, dense_0=7, dense_1=9),
}
CHANNELS_FIRST = {  # the order of the rows of dense_0 in torch
    name: np.arange(np.prod(shape)).reshape(shape).transpose(2, 0, 1).ravel() for name, shape in FEATURE_MAPS.items()
}


def to_torch(name: str, weights: Arrays) -> Arrays:
    if name in CHANNELS_FIRST:
        weights = weights | {"dense_0": weights["dense_0"][CHANNELS_FIRST[name]]}
    return {theirs: weights[ours].transpose(axes) for ours, (theirs, axes) in LAYOUTS[name].items()}


def from_torch(name: str, state: dict[str, Tensor]) -> Arrays:
    """From a `Classifier`'s state."""
    weights = {
        ours: state[f"network.{theirs}"].detach().numpy().transpose(np.argsort(axes)).copy()
        for ours, (theirs, axes) in LAYOUTS[name].items()
    }
    if name in CHANNELS_FIRST:
        weights["dense_0"] = weights["dense_0"][np.argsort(CHANNELS_FIRST[name])]
    return weights
