# SPDX-License-Identifier: Apache-2.0
"""Sizes that a model needs to be equal, where that cannot be proved: every run compares them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from treadle.graph.nodes import Call, Function, topological
from treadle.graph.operator import Fusion, Operator
from treadle.graph.types import Dim, TensorType, product_of, same_dim
from treadle.ops.matmul import matmul
from treadle.ops.movement import broadcast_to, concat, reshape
from treadle.ops.norm import batch_norm

_ALIGNED = frozenset({Fusion.ELEMENTWISE, Fusion.BROADCAST})
_Pairs = Iterator[tuple[Dim, Dim]]


@dataclass(frozen=True, slots=True)
class SizeCheck:
    """Two sizes that must be equal for the node `origin` to have a meaning."""

    a: Dim
    b: Dim
    origin: str


def size_checks(function: Function) -> list[SizeCheck]:
    """Return what every run must compare before a kernel may trust the shapes it was made for."""
    found: dict[tuple[Dim, Dim], SizeCheck] = {}
    for node in topological([function.body]):
        if not isinstance(node, Call) or not isinstance(node.op, Operator):
            continue
        for a, b in _meeting(node, node.op):
            if not same_dim(a, b):
                found.setdefault((a, b), SizeCheck(a, b, node.origin))
    return list(found.values())


def _meeting(call: Call, operator: Operator[Any]) -> _Pairs:
    result = call.type
    shapes = [a.type.shape for a in call.args if isinstance(a.type, TensorType)]
    if not isinstance(result, TensorType) or len(shapes) < len(call.args):
        return
    if operator is batch_norm:
        for shape in shapes[1:]:
            yield shape[0], shapes[0][1]
    elif operator.fusion in _ALIGNED or operator is broadcast_to:
        for shape in shapes:
            yield from _aligned(shape, result.shape)
    elif operator is matmul:
        yield shapes[0][-1], shapes[1][-2]
        for shape in shapes:
            yield from _aligned(shape[:-2], result.shape[:-2])
    elif operator is concat:
        axis: int = call.attrs.axis  # type: ignore[union-attr]  # concat's attributes have an axis
        for shape in shapes[1:]:
            pairs = enumerate(zip(shapes[0], shape, strict=True))
            yield from (pair for k, pair in pairs if k != axis)
    elif operator is reshape:
        yield product_of(shapes[0]), product_of(result.shape)


def _aligned(shape: Sequence[Dim], whole: Sequence[Dim]) -> _Pairs:
    """Yield the extents that meet where `shape` is broadcast to `whole`."""
    for a, b in zip(shape, whole[len(whole) - len(shape) :], strict=True):
        if not (isinstance(a, int) and a == 1):
            yield a, b
