# SPDX-License-Identifier: Apache-2.0
"""Twelve kernels, one for each kind of loop nest that networks spend their time in.

They are those of `benchmarks.lowering` and of the golden texts in tests/ops/schedules/golden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from treadle.graph.nodes import Function, Node, Var
from treadle.graph.operator import OPERATORS
from treadle.graph.types import TensorType
from treadle.ops import elementwise as ew  # with it, all operators are registered

Nest = Callable[[int], Function]
"""Makes the fused function, for vectors of so many lanes."""


def _function(name: str, *shapes: tuple[int, ...], **attrs: object) -> Function:
    """Return the function of one operator over inputs of given shapes."""
    params, value = _called(name, shapes, attrs)
    return Function(tuple(params), value, name)


def _called(
    name: str, shapes: tuple[tuple[int, ...], ...], attrs: Mapping[str, object]
) -> tuple[list[Var], Node]:
    operator = OPERATORS.get(name)
    assert operator is not None
    params = [Var(f"x{k}", TensorType(shape, "float32")) for k, shape in enumerate(shapes)]
    return params, operator(*params, **dict(attrs))  # type: ignore[arg-type]  # of any operator


def _with_bias(
    name: str, *shapes: tuple[int, ...], bias: tuple[int, ...], **attrs: object
) -> Function:
    """Return the function of an operator whose result gets a bias and a ReLU."""
    params, value = _called(name, shapes, attrs)
    shift = Var("bias", TensorType(bias, "float32"))
    return Function((*params, shift), ew.relu(ew.add(value, shift)), name)


def conv3x3(n: int, blocks: int = 4, size: int = 56) -> Function:
    """A 3x3 convolution with its padding: blocks of channels of a size x size image."""
    pads = {"pads_before": (1, 1), "pads_after": (1, 1)}
    data, weights = (1, blocks, size, size, n), (blocks, blocks, 3, 3, n, n)
    return _with_bias("conv2d_nchwc", data, weights, bias=(1, blocks, 1, 1, n), **pads)


def conv1x1(n: int, blocks: int = 4, size: int = 56) -> Function:
    """A 1x1 convolution to four times the channels."""
    data, weights = (1, blocks, size, size, n), (4 * blocks, blocks, 1, 1, n, n)
    return _with_bias("conv2d_nchwc", data, weights, bias=(1, 4 * blocks, 1, 1, n))


def _depthwise(n: int) -> Function:
    pads = {"pads_before": (1, 1), "pads_after": (1, 1)}
    return _with_bias(
        "depthwise_conv2d_nchwc", (1, 6, 28, 28, n), (6, 3, 3, n), bias=(1, 6, 1, 1, n), **pads
    )


def _winograd(n: int) -> Function:
    """Tiles of 4 x 4 of a 28 x 28 image."""
    return _function(
        "conv2d_winograd_nchwc", (1, 2, 30, 30, n), (4, 6, 6, 2, n, n), tile=4, height=28, width=28
    )


def _dense(n: int, rows: int = 128) -> Function:
    columns = 2 * n
    return _with_bias(
        "dense_packed", (rows, 256), (6, 256, columns), bias=(6 * columns,), n=6 * columns
    )


NESTS: Mapping[str, Nest] = {
    "conv3x3": conv3x3,
    "conv1x1": conv1x1,
    "depthwise": _depthwise,
    "winograd": _winograd,
    "dense": _dense,
    "few_rows": lambda n: _dense(n, rows=3),
    "strassen": lambda n: _function(
        "dense_strassen", (7, 64, 128 + 16), (4, 7, 128, 2 * n), m=128, n=16 * n, half=64
    ),
    "conv_plain": lambda n: _function("conv", (1, 3, 30, 30), (8, 3, 3, 3), strides=(2, 2)),
    "attention": lambda n: _function("attend", (12, 128, 128), (12, 128, 64)),
    "softmax": lambda n: _function("softmax", (64, 1000), axis=1),
    "layer_norm": lambda n: _function("layer_norm", (128, 768), (768,), (768,), axis=1),
    "max_pool": lambda n: _function(
        "max_pool", (1, 8, 56, 56), kernel=(3, 3), strides=(2, 2), pads_before=(1, 1)
    ),
}
"""The nests by name."""
