"""Tensors of PyTorch in the precision and form that traces and messages need."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor


def wide_type(tensor: Tensor) -> torch.dtype:
    """float64 for float64, else float32: traces and sums are never kept in less."""
    return torch.promote_types(tensor.dtype, torch.float32)


def wide(tensor: Tensor) -> Tensor:
    """The tensor at least in float32, without its history."""
    return tensor.detach().to(wide_type(tensor))


def dense(gradient: Any) -> Tensor:
    """A gradient as an ordinary tensor; `nn.Embedding(sparse=True)` makes sparse ones."""
    return gradient.to_dense() if gradient.is_sparse else gradient


def as_array(tensor: Tensor) -> np.ndarray:
    """The tensor as an array of NumPy."""
    return tensor.detach().cpu().numpy()


def as_list(tensors: Tensor | Iterable[Tensor]) -> list[Tensor]:
    """One tensor, or several, as the functions of `torch.nn.utils` take them."""
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)
