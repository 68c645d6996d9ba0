# SPDX-License-Identifier: Apache-2.0
"""Tensor expressions as text: what every element is, producers first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from treadle.expr.nodes import Expr
from treadle.te.operations import ComputeOp, ExternOp, Operation


def operations_text(operations: Iterable[Operation]) -> str:
    """Return one line for every result of the operations, in the order given.

    A: float32[8, 4]
    B: float32[8]; B[i] = sum(A[i, k], [k: 4])
    """
    return "\n".join(line for op in operations for line in _lines(op))


def _lines(op: Operation) -> list[str]:
    heads = [f"{t.name}: {t.dtype}{_list(t.shape)}" for t in op.outputs]
    if isinstance(op, ComputeOp):
        at = ", ".join(a.name for a in op.axis)
        pairs = zip(heads, op.outputs, op.body, strict=True)
        return [f"{head}; {t.name}[{at}] = {value}" for head, t, value in pairs]
    if isinstance(op, ExternOp):
        inputs = ", ".join(t.name for t in op.inputs)
        return [f"{head} = loops written by hand({inputs})" for head in heads]
    return heads


def _list(shape: Sequence[Expr]) -> str:
    return f"[{', '.join(map(str, shape))}]"
