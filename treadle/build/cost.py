# SPDX-License-Identifier: Apache-2.0
"""What a kernel has to do: its arithmetic operations, and the bytes it must read and write once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from treadle.graph.nodes import Call, Function, Node, topological
from treadle.graph.operator import POINTWISE, Operator
from treadle.graph.types import TensorType
from treadle.ops.movement import gather


@dataclass(frozen=True, slots=True)
class Cost:
    """The work of one kernel call; a multiply-add counts two operations."""

    flops: int
    bytes: int
    saves: bool = False
    """True where a part runs by an algorithm that multiplies less than the direct one counts."""


def group_cost(function: Function) -> Cost:
    """Return the work of a fused function whose shapes are all known.

    Every input and the result count once, whatever the caches do; of a table that indices pick
    from, only what is picked counts.
    """
    calls = [n for n in topological([function.body]) if isinstance(n, Call)]
    operators = [(c.op, c) for c in calls if isinstance(c.op, Operator)]
    flops = sum(_flops(operator, call) for operator, call in operators)
    saves = any(operator.saves for operator, _ in operators)
    moved = sum(_bytes_read(p, calls) for p in function.params)
    return Cost(flops, moved + _nbytes(function.body), saves)


def _flops(operator: Operator[Any], call: Call) -> int:
    if operator.flops is not None:
        return int(operator.flops(call.attrs, *(a.type for a in call.args)))
    return _size(call) if operator.fusion in POINTWISE else 0


def _bytes_read(param: Node, calls: Iterable[Call]) -> int:
    users = [c for c in calls if param in c.args]
    if users and all(c.op is gather and c.args[0] is param for c in users):
        return min(_nbytes(param), sum(map(_nbytes, users)))
    return _nbytes(param)


def _size(node: Node) -> int:
    return node.type.size if isinstance(node.type, TensorType) else 0


def _nbytes(node: Node) -> int:
    return node.type.nbytes if isinstance(node.type, TensorType) else 0
