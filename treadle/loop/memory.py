# SPDX-License-Identifier: Apache-2.0
"""The buffers that stages are computed into while a loop nest is being made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from treadle.dtype import itemsize
from treadle.errors import ScheduleError
from treadle.expr.nodes import Const, Expr, int_value
from treadle.expr.simplify import Simplifier, simplify
from treadle.expr.traversal import loads
from treadle.loop.nodes import Buffer, Scope
from treadle.loop.regions import Box
from treadle.te.operations import ComputeOp, Tensor
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage


@dataclass(frozen=True, slots=True)
class Kept:
    """Where a stage is stored, a mark in the loops around, and the part of it that is."""

    mark: int
    box: Box


@dataclass(slots=True)
class Memory:
    """Where the results of stages lie, and the names that are taken."""

    schedule: Schedule
    bodies: dict[int, tuple[Expr, ...]]
    """The elements of every stage that is computed, by its id."""
    line_bytes: int
    """The bytes that one prefetch brings."""
    buffers: dict[tuple[int, int], Buffer] = field(default_factory=dict)
    """The buffer of every output (stage id, index)."""
    offsets: dict[int, tuple[Expr, ...]] = field(default_factory=dict)
    """Where the part of a stage that its buffer holds begins."""
    computed: set[int] = field(default_factory=set)
    """The stages computed at a loop that are complete where statements are being made."""
    kept: dict[int, Kept] = field(default_factory=dict)
    """The stages that are stored further out than they are computed, by their ids."""
    parallel_loops: int = 0
    """How many loops run in parallel around where statements are being made."""
    names: dict[str, int] = field(default_factory=dict)
    _loads: dict[Expr, list[tuple[Stage, tuple[Expr, ...]]]] = field(default_factory=dict)

    def unique(self, name: str) -> str:
        """Return a name that no other variable or buffer has."""
        count = self.names.get(name, 0)
        self.names[name] = count + 1
        return name if count == 0 else f"{name}_{count}"

    @contextmanager
    def in_parallel(self, concurrent: bool) -> Iterator[None]:
        """Make statements inside a loop, whose iterations may run at the same time."""
        self.parallel_loops += concurrent
        try:
            yield
        finally:
            self.parallel_loops -= concurrent

    def line_of(self, dtype: str) -> int:
        """Return how many elements of a type one prefetch brings."""
        return max(1, self.line_bytes // itemsize(dtype))

    def reads(self, reader: Stage, producer: Stage) -> Iterator[tuple[Expr, ...]]:
        """Yield the indices at which one stage reads another."""
        for body in self.bodies[id(reader)]:
            for source, indices in self._loads_of(body):
                if source is producer:
                    yield indices

    def _loads_of(self, body: Expr) -> list[tuple[Stage, tuple[Expr, ...]]]:
        """Return what an element is made of: every stage that it reads with the indices."""
        found = self._loads.get(body)
        if found is None:
            found = [
                (self.schedule[n.source], n.indices)
                for n in loads(body)
                if isinstance(n.source, Tensor)
            ]
            self._loads[body] = found
        return found

    def root_buffers(self, stage: Stage) -> list[Buffer]:
        """Make the buffers of a stage that is computed whole, but for arguments; return them."""
        made = []
        for tensor in stage.op.outputs:
            key = (id(stage), tensor.value_index)
            if key not in self.buffers:
                scope = scope_or(stage, "workspace")
                if scope == "local" and any(int_value(d) is None for d in tensor.shape):
                    scope = "workspace"
                made.append(self._buffer(stage, tensor, tuple(tensor.shape), scope))
        return made

    def attached_buffers(self, stage: Stage, box: Box, known: Simplifier) -> list[Buffer]:
        """Make and return the buffers of a stage of which a part is computed at a loop.

        In the workspace, which iterations of a parallel loop share, the stage is kept whole: every
        part has its own place there, and may be of symbolic size. Outside of parallel loops one
        part is made after the other, and those of constant bounds all have the same place.

        Raises: ScheduleError where a part that is not kept so has no constant bound.
        """
        ends = {a: known.bounds.reach(span.extent).hi for a, span in box.items()}
        kept_whole = self.parallel_loops > 0 or None in ends.values()
        if stage.scope == "workspace" and not stage.rounded and kept_whole:
            self.offsets.pop(id(stage), None)
            return self._made(stage, None, "workspace")
        shape = []
        for axis, span in box.items():
            high = ends[axis]
            if high is None:
                raise ScheduleError(
                    f"the part of {stage.name} needed here has no constant bound along "
                    f"{axis.name}: {span.extent}",
                    at=f"stage {stage.name}",
                    hint="compute it further out, or at root",
                )
            shape.append(Const.of(max(high, 1)))
        self.offsets[id(stage)] = tuple(s.start for s in box.values())
        return self._made(stage, tuple(shape), scope_or(stage, "local"))

    def _made(self, stage: Stage, shape: tuple[Expr, ...] | None, scope: Scope) -> list[Buffer]:
        """Make the buffers of one place that a stage is computed at; None: of the whole stage.

        Where a loop is cut into several, each part has such a place and buffers of its own.
        """
        made = []
        for tensor in stage.op.outputs:
            sizes = tuple(tensor.shape) if shape is None else shape
            made.append(self._buffer(stage, tensor, sizes, scope))
        return made

    def _buffer(
        self, stage: Stage, tensor: Tensor, shape: tuple[Expr, ...], scope: Scope
    ) -> Buffer:
        """Make the buffer of one result of a stage, its rows as far apart as the stage says."""
        strides = _strides(stage, shape)
        made = Buffer(self.unique(tensor.name), tensor.dtype, shape, scope, strides)
        self.buffers[id(stage), tensor.value_index] = made
        return made


def _strides(stage: Stage, shape: Sequence[Expr]) -> tuple[Expr, ...] | None:
    """Return how far apart positions lie along each axis, None where that is row-major."""
    if not stage.aligned or not isinstance(stage.op, ComputeOp):
        return None
    strides: list[Expr] = []
    stride: Expr = Const.of(1)
    for axis, extent in reversed(list(zip(stage.op.axis, shape, strict=True))):
        if axis in stage.aligned:
            factor, offset = stage.aligned[axis]
            stride = simplify(stride + (offset - stride) % factor, {})
        strides.insert(0, stride)
        stride = stride * extent
    return tuple(strides)


def scope_or(stage: Stage, default: Scope) -> Scope:
    """Return the memory a stage asks for; `default` where it does not say."""
    return default if stage.scope == "" or stage.scope == "global" else stage.scope
