# SPDX-License-Identifier: Apache-2.0
"""What the loops of operators are called in schedules and loop nests."""

from __future__ import annotations

from treadle.te.operations import ComputeOp, Tensor

_SPATIAL = ("od", "oh", "ow")


def image_axes(spatial: int, *, channels: str = "oc", block: str = "") -> tuple[str, ...]:
    """Return the names for [n, channels, *spatial], and for channels of a block where they are.

    >>> image_axes(2, block="ocb")
    ('n', 'oc', 'oh', 'ow', 'ocb')
    """
    known = _SPATIAL[len(_SPATIAL) - spatial :] if spatial <= len(_SPATIAL) else ()
    names = known or tuple(f"o{k}" for k in range(spatial))
    return ("n", channels, *names, *([block] if block else []))


def product_axes(ndim: int) -> tuple[str, ...]:
    """Return the names for [*batch, m, n], a product of matrices."""
    batch = ("b",) if ndim == 3 else tuple(f"b{k}" for k in range(ndim - 2))
    return (*batch, *("m", "n")[max(0, 2 - ndim) :])


def axes_like(ndim: int, *tensors: Tensor) -> tuple[str, ...] | None:
    """Return the names of the first of tensors that is computed and has so many dimensions.

    None where there is none: inputs have no loops.
    """
    for tensor in tensors:
        if isinstance(tensor.op, ComputeOp) and tensor.ndim == ndim:
            return tuple(axis.name for axis in tensor.op.axis)
    return None
