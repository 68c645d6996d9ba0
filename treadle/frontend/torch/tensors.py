# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch as arrays over the same memory, and its element types by our names."""

from __future__ import annotations

import numpy as np
import torch

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.runtime.array import from_dlpack


def dtype_name(kind: torch.dtype) -> str:
    """Return the name of an element type, that of the parts of complex numbers.

    Raises: ModelError for one that Treadle lacks.
    """
    name = str(kind.to_real() if kind.is_complex else kind).removeprefix("torch.")
    if name in dt.NAMES:
        return name
    raise ModelError(
        f"elements of {name} are not supported",
        hint=f"convert the tensor to one of {', '.join(dt.NAMES)}",
    )


def torch_dtype(name: str) -> torch.dtype:
    """Return torch's element type of a name."""
    kind: torch.dtype = getattr(torch, name)
    return kind


def array_of(tensor: torch.Tensor, what: str) -> np.ndarray:
    """Return a tensor's elements in row-major order: its own memory where they lie so.

    Complex numbers are an axis of 2, the last. `what` names the tensor in messages.

    Raises: ModelError unless it is a plain tensor of the CPU.
    """
    dtype_name(tensor.dtype)
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise ModelError(
            f"{what} is a {tensor.layout} tensor, not a dense one", hint="call .to_dense() on it"
        )
    if tensor.device.type != "cpu":
        raise ModelError(
            f"{what} is on the device {tensor.device}", hint="move the module with .cpu() first"
        )
    return from_dlpack(in_row_major(tensor.detach())).numpy()


def in_row_major(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that lies in row-major order, complex numbers as an axis of 2: a view of it
    where it lies so and no sign is left to be changed."""
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj().resolve_neg().contiguous())
    return tensor.resolve_neg().contiguous()
