# SPDX-License-Identifier: Apache-2.0
"""Converters of tensors made from numbers."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.frontend.builders.basic import broadcast, converted, reshaped
from treadle.frontend.builders.ranges import filled
from treadle.frontend.torch.node import AtenNode, Operand, aten, operand, prims
from treadle.frontend.torch.sizes import expression_of, measured
from treadle.frontend.torch.tensors import array_of, torch_dtype
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, known_sizes
from treadle.ops import elementwise as ew
from treadle.ops import sizes


@aten("full", "full_like", "new_full", "fill.Scalar", "fill.Tensor")
def full(node: AtenNode, *given: object, **_kind: object) -> Node:
    """Convert one value everywhere; it is the last argument."""
    value: Operand = given[-1]  # type: ignore[assignment]  # by the operators' schemas
    return _everywhere(node, value)


@aten("zeros", "zeros_like", "new_zeros", "zero")
def zeros(node: AtenNode, *_given: object, **_kind: object) -> Node:
    """Convert zeros."""
    return _everywhere(node, 0)


@aten("ones", "ones_like", "new_ones")
def ones(node: AtenNode, *_given: object, **_kind: object) -> Node:
    """Convert ones."""
    return _everywhere(node, 1)


@aten("scalar_tensor")
def scalar_tensor(node: AtenNode, value: Operand, **_kind: object) -> Node:
    """Convert a number to a tensor of rank 0."""
    return operand(value, node.dtype())


@aten("_local_scalar_dense")
def item(node: AtenNode, x: Node) -> Dim | Node:
    """Convert the number in a tensor (Tensor.item), which may be a size from then on."""
    if isinstance(node.result, torch.SymFloat):
        value = converted(reshaped(x, ()), "float64")
        node.symbols.bind_fraction(expression_of(node.result), value)
        return value
    if not isinstance(node.result, torch.SymInt):
        raise ModelError(
            "a truth value in a tensor that decides is not supported",
            hint="compute with the tensor itself instead of its item(), or use torch.cond",
        )
    size = measured(converted(reshaped(x, ()), "int64"), node.result, node.measure)
    node.symbols.bind(expression_of(node.result), size)
    return size


_WINDOWS = (
    "bartlett_window", "bartlett_window.periodic", "blackman_window", "blackman_window.periodic",
    "hamming_window", "hamming_window.periodic", "hamming_window.periodic_alpha",
    "hamming_window.periodic_alpha_beta", "hann_window", "hann_window.periodic", "kaiser_window",
    "kaiser_window.periodic", "kaiser_window.beta",
)  # fmt: skip


@aten(*_WINDOWS)
def window(node: AtenNode, length: Dim, *how: float, **_kind: object) -> Node:
    """Convert a window of spectra, which torch computes now."""
    (size,) = known_sizes((length,), "a window")
    name, _, overload = node.op.removeprefix("aten.").partition(".")
    make = getattr(getattr(torch.ops.aten, name), overload)
    with unset_fake_temporarily():  # graphs of torch.compile are read inside of such a mode
        made = make(size, *how, dtype=torch_dtype(node.dtype()))
        return Constant.of(array_of(made, node.origin))


def _everywhere(node: AtenNode, value: Operand) -> Node:
    fill = operand(value, node.dtype())
    if isinstance(fill, Constant):
        return filled(fill, node.dims())
    return broadcast(fill, node.dims())


@aten("arange.start_step", "arange", "arange.start")
def arange(
    node: AtenNode, start: Operand, end: Operand | None = None, step: Operand = 1, **_kind: object
) -> Node:
    """Convert a range, which has as many numbers as torch says."""
    if end is None:
        start = 0
    return _counted(node, start, step)


@prims("iota")
def iota(node: AtenNode, length: Dim, *, start: int, step: int, **_kind: object) -> Node:
    """Convert a range of so many numbers."""
    return _counted(node, start, step)


def _counted(node: AtenNode, start: Operand, step: Operand) -> Node:
    """Return start + k * step for the positions k of a vector."""
    kind, (size,) = node.dtype(), node.dims()
    wide = "float64" if dt.is_float(kind) else "int64"
    numbers: Node = sizes.arange(start=0, step=1, size=size)
    made = ew.multiply(converted(numbers, wide), operand(step, wide))
    return converted(ew.add(made, operand(start, wide)), kind)
