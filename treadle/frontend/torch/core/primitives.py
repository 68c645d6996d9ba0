# SPDX-License-Identifier: Apache-2.0
"""Converters of the primitives that torch's own definitions of operators end in.

Most are operators of ATen whose operands have one type and one shape already.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.frontend.builders.basic import broadcast, converted, dims_of, reshaped
from treadle.frontend.torch.core import elementwise, movement, reduce
from treadle.frontend.torch.core import functions as _functions
from treadle.frontend.torch.node import AtenNode, Operand, aten, converter_of, operand, prims
from treadle.graph.nodes import Node
from treadle.graph.types import Dim

_SOURCES = (elementwise, movement, _functions)
"""The files whose converters are looked up here, so that they are registered before."""

_SAME = {
    "": (
        "abs acos acosh asin asinh atan atanh bitwise_not ceil clone cos cosh erf erfc exp exp2 "
        "expm1 floor log log10 log1p log2 maximum minimum neg reciprocal round rsqrt sign sin sinh "
        "sqrt tan tanh trunc cat"
    ),
    ".Tensor": "add bitwise_and bitwise_or bitwise_xor eq fmod ge gt le lt mul ne remainder sub",
    ".Tensor_Tensor": "pow",
}
"""Primitives that do as the operator of ATen of their name, by its overload."""


def _register() -> None:
    for overload, names in _SAME.items():
        for name in names.split():
            found = converter_of(f"aten.{name}{overload or '.default'}")
            assert found is not None, name
            prims(name)(found)


_register()


@prims("div")
def div(node: AtenNode, a: Operand, b: Operand) -> Node:
    """Convert a quotient; of integers it is cut towards zero."""
    return elementwise.div_mode(node, a, b, "trunc" if node.dtype().startswith("int") else None)


@prims("broadcast_in_dim")
def broadcast_in_dim(
    node: AtenNode, x: Node, shape: Sequence[Dim], broadcast_dimensions: Sequence[int]
) -> Node:
    """Convert a broadcast of axes to given places among those of the result."""
    sizes: list[Dim] = [1] * len(shape)
    for at, extent in zip(broadcast_dimensions, dims_of(x), strict=True):
        sizes[at] = extent
    return broadcast(reshaped(x, sizes), node.dims())


@prims("collapse", "collapse_view", "split_dim", "squeeze", "reshape")
def view(node: AtenNode, x: Node, *_shape: object) -> Node:
    """Convert a change of shape."""
    return reshaped(x, node.dims())


@prims("view_of", "copy_strided", "device_put")
def same(node: AtenNode, x: Node, *_place: object) -> Node:
    """Convert what changes where elements lie, not what they are."""
    return x


@prims("transpose")
def transpose(node: AtenNode, x: Node, permutation: Sequence[int]) -> Node:
    """Convert a permutation of axes."""
    return movement.permute(node, x, permutation)


@prims("rev")
def rev(node: AtenNode, x: Node, dims: Sequence[int]) -> Node:
    """Convert axes in reverse order."""
    return movement.flip(node, x, dims)


@prims("where")
def where(node: AtenNode, condition: Node, a: Operand, b: Operand) -> Node:
    """Convert a choice per element."""
    return elementwise.where(node, condition, a, b)


@prims("sum", "prod", "amax", "amin")
def reduction(
    node: AtenNode, x: Node, dims: Sequence[int] | None, *, output_dtype: str | None = None
) -> Node:
    """Convert a reduction over listed axes, which the result lacks."""
    if dims is not None and not dims:
        return converted(x, node.dtype())
    kinds = {"sum": reduce.total, "prod": reduce.prod, "amax": reduce.amax, "amin": reduce.amin}
    return kinds[node.op.split(".")[1]](node, x, dims)


@prims("full", "full_like")
def full(node: AtenNode, _shape: object, value: Operand, **_kind: object) -> Node:
    """Convert one value everywhere."""
    return broadcast(operand(value, node.dtype()), node.dims())


@prims("scalar_tensor")
def scalar_tensor(node: AtenNode, value: Operand, **_kind: object) -> Node:
    """Convert a number to a tensor of rank 0."""
    return operand(value, node.dtype())


@prims("empty", "empty_strided", "empty_permuted")
@aten("empty.memory_format", "empty_like", "empty_strided", "empty_permuted", "new_empty",
      "new_empty_strided")  # fmt: skip
def empty(node: AtenNode, *_shape: object, **_kind: object) -> Node:
    """Convert a tensor whose elements nobody has set: they are zeros."""
    return broadcast(operand(0, node.dtype()), node.dims())


@aten("copy")
@prims("copy_to")
def copy(node: AtenNode, x: Node, source: Node, *_how: object) -> Node:
    """Convert what replaces all elements of a tensor; its type and shape stay."""
    return broadcast(converted(source, node.dtype()), node.dims())


@aten("split_copy.Tensor", "unsafe_split_with_sizes", "hsplit.int", "vsplit.int", "dsplit.int")
def split(node: AtenNode, x: Node, sizes: object, dim: int = 0) -> list[Node]:
    """Convert parts of an axis."""
    return movement.split(node, x, sizes, dim)


@aten("max.other", "min.other")
def extreme_of_two(node: AtenNode, a: Node, b: Node) -> Node:
    """Convert the larger or smaller of two."""
    is_larger = node.op.startswith("aten.max")
    return (elementwise.maximum if is_larger else elementwise.minimum)(node, a, b)
