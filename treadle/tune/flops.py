# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of tensor expressions, counted."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from treadle.expr import nodes as ex
from treadle.expr.nodes import Expr, int_value
from treadle.te.operations import ComputeOp, Operation, Reduce


def flops_of(operations: Iterable[Operation]) -> int:
    """Return the operations on elements that a computation does when every stage is run once.

    A multiply-add counts two. Arithmetic on indices and conditions does not count, nor do loop
    nests written by hand; both branches of a select do. 0 where a size is not known.
    """
    return sum(_flops(op) for op in operations if isinstance(op, ComputeOp))


def _flops(op: ComputeOp) -> int:
    points = prod(int_value(axis.extent) or 0 for axis in op.axis)
    first = op.body[0]
    if not isinstance(first, Reduce):
        return points * sum(map(_operations, op.body))
    steps = prod(int_value(axis.extent) or 0 for axis in first.axes)
    each = sum(map(_operations, first.sources)) + sum(map(_operations, first.combiner.results))
    return points * steps * each


def _operations(root: Expr) -> int:
    """Return the operations of an expression; a part that is used twice is computed once."""
    seen: set[Expr] = set()
    stack, count = [root], 0
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        count += isinstance(node, (ex.Binary, ex.Call, ex.Apply))
        if isinstance(node, ex.Select):
            stack += [node.then, node.other]
        elif not isinstance(node, ex.Load):
            stack += node.children
    return count
