# SPDX-License-Identifier: Apache-2.0
"""What a kernel has to do: its arithmetic operations, and the bytes it must read and write once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from treadle.dtype import itemsize
from treadle.expr.nodes import minimum
from treadle.graph.nodes import Call, Function, Node, topological
from treadle.graph.operator import POINTWISE, Operator
from treadle.graph.types import Dim, TensorType, normal_size
from treadle.ops.indexing import gather


@dataclass(frozen=True, slots=True)
class Cost:
    """The work of one kernel call, over its sizes; a multiply-add counts two operations."""

    flops: Dim
    bytes: Dim
    saves: bool = False
    """True where a part runs by an algorithm that multiplies less than the direct one counts."""


def group_cost(function: Function) -> Cost:
    """Return the work of a fused function.

    Every input and the result count once, whatever the caches do; of a table that indices pick
    from, only what is picked counts.
    """
    calls = [n for n in topological([function.body]) if isinstance(n, Call)]
    operators = [(c.op, c) for c in calls if isinstance(c.op, Operator)]
    flops = _sum(_flops(operator, call) for operator, call in operators)
    saves = any(operator.saves for operator, _ in operators)
    moved = [_bytes_read(p, calls) for p in function.params]
    return Cost(flops, _sum([*moved, _nbytes(function.body)]), saves)


def _sum(numbers: Iterable[Dim]) -> Dim:
    return normal_size(sum(numbers))


def _flops(operator: Operator[Any], call: Call) -> Dim:
    if operator.flops is not None:
        return normal_size(operator.flops(call.attrs, *(a.type for a in call.args)))
    return _size(call) if operator.fusion in POINTWISE else 0


def _bytes_read(param: Node, calls: Iterable[Call]) -> Dim:
    users = [c for c in calls if param in c.args]
    if users and all(c.op is gather and c.args[0] is param for c in users):
        return _at_most(_nbytes(param), _sum(map(_nbytes, users)))
    return _nbytes(param)


def _at_most(whole: Dim, picked: Dim) -> Dim:
    if isinstance(whole, int) and isinstance(picked, int):
        return min(whole, picked)
    return normal_size(minimum(whole, picked))


def _size(node: Node) -> Dim:
    return node.type.elements if isinstance(node.type, TensorType) else 0


def _nbytes(node: Node) -> Dim:
    return _size(node) * itemsize(node.type.dtype) if isinstance(node.type, TensorType) else 0
