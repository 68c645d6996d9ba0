# SPDX-License-Identifier: Apache-2.0
"""The computation of a task: its operations, how much arithmetic that is, and its text."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from treadle.auto_scheduler.workload import plain_schedule
from treadle.te.operations import ComputeOp, ExternOp, Operation, PlaceholderOp, Reduce, Tensor
from treadle.te.schedule import Schedule
from treadle.tune.flops import flops_of

_COMBINED = {"sum": "+=", "max": "max=", "min": "min=", "prod": "*="}


class ComputeDAG:
    """What a task computes; `print` shows a line for each operation.

    `tensors` are the arguments of the kernel, `ops` the operations, producers first, `flop_ct` the
    floating-point operations of a call, a multiply-add counted as two.
    """

    def __init__(
        self, compute_or_sche: Sequence[Tensor] | Schedule, flop_ct: int | None = None
    ) -> None:
        """`compute_or_sche` are tensors, inputs and outputs, or a schedule of them."""
        if isinstance(compute_or_sche, Schedule):
            schedule = compute_or_sche.fresh()
            inputs = [s.op for s in schedule.stages if isinstance(s.op, PlaceholderOp)]
            self.tensors = [op.output(0) for op in (*inputs, *schedule.outputs)]
        else:
            self.tensors = list(compute_or_sche)
            schedule = plain_schedule(self.tensors)
        self.schedule = schedule
        self.ops: list[Operation] = [stage.op for stage in schedule.stages]
        self.flop_ct = flops_of(self.ops) if flop_ct is None else flop_ct

    def hash_key(self) -> str:
        """Return a digest of the text."""
        return hashlib.sha256(str(self).encode()).hexdigest()[:32]

    def __str__(self) -> str:
        return "".join(f"{line}\n" for op in self.ops for line in _lines(op))

    def __repr__(self) -> str:
        return f"ComputeDAG({', '.join(t.name for t in self.tensors)})"


def _lines(op: Operation) -> list[str]:
    if isinstance(op, PlaceholderOp):
        return [f"{op.name} = PLACEHOLDER [{', '.join(map(str, op.shape))}]"]
    if isinstance(op, ExternOp):
        inputs = ", ".join(t.name for t in op.inputs)
        return [f"{t.name} = loops written by hand({inputs})" for t in op.outputs]
    return [_compute_line(op, k) for k in range(len(op.body))]


def _compute_line(op: ComputeOp, k: int) -> str:
    value = op.body[k]
    head = f"{op.output(k).name}({', '.join(a.name for a in op.axis)})"
    sign = _COMBINED.get(value.combiner.name) if isinstance(value, Reduce) else None
    if not isinstance(value, Reduce) or sign is None or len(value.sources) != 1:
        return f"{head} = {value}"
    return f"{head} {sign} {value.sources[0]}"
