# SPDX-License-Identifier: Apache-2.0
"""Layer normalisation of rows whose results go into blocks of channels.

What follows reads blocks: without this the normalised rows would be written, read, and moved.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr, ExprLike
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.types import TensorType, Type
from treadle.ops.conv import known_extent
from treadle.ops.norm import normalised, numpy_normalised
from treadle.ops.numeric import FLOATS, check_elements, numpy_reference


@dataclass(frozen=True, slots=True)
class BlockedNormAttrs(Attrs):
    """The channels of a block of the result, and what is added to the variance."""

    block: int
    epsilon: float = 1e-5


def _infer(a: BlockedNormAttrs, x: Type, scale: Type, bias: Type) -> TensorType:
    source = check_elements(x, FLOATS)
    if source.ndim < 2 or a.block < 1:
        raise TypeMismatch(f"{source} has no rows of channels [n, *image, channels]")
    channels = known_extent(source, -1, "channels")
    if channels % a.block:
        raise TypeMismatch(f"{channels} channels do not fill blocks of {a.block}")
    for p, name in ((scale, "scale"), (bias, "bias")):
        found = check_elements(p, FLOATS, f"the {name}")
        if found.shape != (channels,):
            raise TypeMismatch(f"the {name} is {found}, the input {source} has {channels} channels")
    n, *image, _ = source.shape
    return source.with_shape((n, channels // a.block, *image, a.block))


def _compute(
    a: BlockedNormAttrs, x: te.Tensor, scale: te.Tensor, bias: te.Tensor
) -> list[te.Tensor]:
    types = [TensorType(t.shape, t.dtype) for t in (x, scale, bias)]

    def place(n: Expr, chunk: Expr, *i: Expr) -> tuple[ExprLike, ...]:
        return (n, *i[:-1], chunk * a.block + i[-1])

    return normalised(
        x,
        [x.ndim - 1],
        "layer_norm_nchwc",
        a.epsilon,
        lambda at: (scale[at[-1]], bias[at[-1]]),
        _infer(a, *types).shape,
        place,
    )


def _reference(
    a: BlockedNormAttrs, x: np.ndarray, scale: np.ndarray, bias: np.ndarray
) -> np.ndarray:
    y = numpy_normalised(x, (x.ndim - 1,), a.epsilon) * scale + bias
    blocks = y.reshape(*x.shape[:-1], x.shape[-1] // a.block, a.block)
    return np.asarray(np.moveaxis(blocks, -2, 1))


layer_norm_nchwc: Operator[BlockedNormAttrs] = register(
    Operator(
        name="layer_norm_nchwc",
        infer=_infer,
        reference=numpy_reference(_reference),
        compute=_compute,
        attrs_type=BlockedNormAttrs,
        fusion=Fusion.ANCHOR,
        examples=(
            Example(((1, 7, 64), (64,), (64,)), {"block": 16}),
            Example(((2, 5, 3, 48), (48,), (48,)), {"block": 8, "epsilon": 1e-3}),
            Example(((1, 300, 512), (512,), (512,)), {"block": 16}),
            Example(((1, 2, 3, 4, 24), (24,), (24,)), {"block": 4}),
            Example(((3, 6), (6,), (6,)), {"block": 3}, ("float64",) * 3),
        ),
        flops=lambda a, x, *rest: 7 * x.elements,
    )
)
"""Rows [n, *image, channels] of mean 0 and variance 1, times `scale`, plus `bias`, both one value a
channel: [n, channels / block, *image, block]."""
