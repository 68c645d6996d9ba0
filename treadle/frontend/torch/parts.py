# SPDX-License-Identifier: Apache-2.0
"""Complex numbers in fx graphs: which calls have some, and operators that treat parts alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from treadle.frontend.builders.complex_numbers import Complex, zeros_like
from treadle.frontend.torch.node import AtenNode, ConvertFn, Result
from treadle.graph.nodes import Node

Value: TypeAlias = Any
"""A graph node, complex numbers, a size, a number, or a list of them."""


def has_complex(node: fx.Node) -> bool:
    """True for a call with complex numbers among its operands or results."""
    found = [node.meta.get("val"), *tree_leaves((node.args, node.kwargs))]
    values = (v.meta.get("val") if isinstance(v, fx.Node) else v for v in found)
    return any(map(is_complex, tree_leaves(list(values))))


def is_complex(value: object) -> bool:
    """True for a complex number, and for a tensor of some."""
    return isinstance(value, complex) or (isinstance(value, torch.Tensor) and value.is_complex())


def nodes_of(value: Value) -> Iterable[Node]:
    """Yield the graph nodes in a value: those of lists, both parts of complex numbers."""
    if isinstance(value, Node):
        yield value
    elif isinstance(value, Complex):
        yield from value.nodes
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from nodes_of(each)


def with_nodes(value: Value, nodes: Iterable[Node]) -> Value:
    """Return a value with other graph nodes, in the order of `nodes_of`."""
    rest = iter(nodes)

    def renewed(each: Value) -> Value:
        if isinstance(each, Node):
            return next(rest)
        if isinstance(each, Complex):
            return Complex(*(next(rest) for _ in each.nodes))
        return [renewed(e) for e in each] if isinstance(each, (list, tuple)) else each

    return renewed(value)


# ---- operators that treat both parts alike -------------------------------------------------------


def by_parts(convert: ConvertFn, values: Sequence[int] = (0,)) -> ConvertFn:
    """Return a converter of complex numbers by one of real numbers, which it calls for each part.

    `values` are the places of the operands that are such numbers; the others, such as positions,
    are given both times. Real numbers among them have imaginary parts of 0.
    """

    def whole(node: AtenNode, *args: Value, **kwargs: Any) -> Result:
        real = convert(node, *_parts(args, values, _real), **kwargs)
        has_imag = any(_has_imag(a) for k, a in enumerate(args) if k in values)
        imag = convert(node, *_parts(args, values, _imag), **kwargs) if has_imag else None
        if not isinstance(real, (list, tuple)):
            return Complex(real, imag)
        return [Complex(*pair) for pair in zip(real, imag or [None] * len(real), strict=True)]

    return whole


def _parts(args: Sequence[Value], values: Sequence[int], part: Callable[[Value], Value]) -> Value:
    return [part(a) if k in values else a for k, a in enumerate(args)]


def _has_imag(value: Value) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_imag, value))
    return isinstance(value, complex) or (isinstance(value, Complex) and value.imag is not None)


def _real(value: Value) -> Value:
    if isinstance(value, (list, tuple)):
        return [_real(v) for v in value]
    return value.real if isinstance(value, (Complex, complex)) else value


def _imag(value: Value) -> Value:
    if isinstance(value, (list, tuple)):
        return [_imag(v) for v in value]
    if isinstance(value, Complex):
        return value.parts[1]
    if isinstance(value, complex):
        return value.imag
    return zeros_like(value) if isinstance(value, Node) else 0
