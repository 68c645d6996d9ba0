# SPDX-License-Identifier: Apache-2.0
"""Loops bound to the threads of a GPU, and what all threads together need of a stage.

A stage in memory that several threads share is computed by all of them for all of them: what one
thread reads of it is extended over the loops bound to the threads that share the memory (TVM calls
this the rank of a scope against that of a thread; Chen et al., OSDI 2018, section 4.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from treadle.errors import ScheduleError
from treadle.expr.nodes import Const, Expr, Var, int_value
from treadle.expr.simplify import Simplifier
from treadle.expr.traversal import free_vars
from treadle.loop.nodes import Scope
from treadle.loop.regions import Box, Span, swept
from treadle.te.loops import Split
from treadle.te.operations import IterVar
from treadle.te.stage import Stage

_SHARING: Mapping[Scope, tuple[str, ...]] = {
    "local": (),
    "shared": ("threadIdx.", "vthread"),
    "workspace": ("threadIdx.", "vthread", "blockIdx."),
    "global": ("threadIdx.", "vthread", "blockIdx."),
}
"""The hardware axes along which memory of a scope is shared."""


@dataclass(slots=True)
class Threads:
    """The hardware axes of a kernel: how long each is, and those whose loops are entered."""

    extents: dict[str, Expr] = field(default_factory=dict)
    """By tag; the same everywhere in one kernel launch."""
    open: dict[str, tuple[Var, Expr]] = field(default_factory=dict)
    """By tag: the variable of the loop around what is being built, and its extent."""

    def check(self, stage: Stage, leaf: IterVar, thread: IterVar, extent: Expr) -> None:
        """Raise ScheduleError where `leaf`, of `extent` iterations, does not fit its thread."""
        if leaf.kind == "reduce":
            raise ScheduleError(
                f"{leaf.name}, an axis of a reduction, is bound to {thread.tag}: threads do not "
                "combine their values",
                at=f"stage {stage.name}",
                hint="bind axes of the result, and of partial results that rfactor makes",
            )
        given = thread.extent
        declared = given if (int_value(given) or 0) >= 0 else extent
        known = self.extents.setdefault(thread.tag, declared)
        if known is extent:
            return
        raise ScheduleError(
            f"{thread.tag} is bound to {leaf.name} with {extent} iterations, and has "
            f"{known} elsewhere",
            at=f"stage {stage.name}",
            hint="bind a hardware axis to loops of one extent: split the others to match",
        )

    @contextmanager
    def opened(self, tag: str, var: Var, extent: Expr) -> Iterator[None]:
        """Enter a loop over a hardware axis; one without a tag is over no such axis."""
        if tag:
            self.open[tag] = (var, extent)
        try:
            yield
        finally:
            self.open.pop(tag, None)

    def differ(self, e: Expr) -> bool:
        """True when `e` may have other values in other threads of a block."""
        theirs = {v for t, (v, _) in self.open.items() if t.startswith(_SHARING["shared"])}
        return any(v in theirs for v in free_vars(e))

    def shared_box(self, box: Box, scope: Scope, known: Simplifier) -> Box:
        """Return what all threads that share memory of `scope` need, where one needs `box`."""
        sharing = _SHARING[scope]
        over = {
            var: Span(Const.of(0), extent)
            for tag, (var, extent) in self.open.items()
            if tag.startswith(sharing)
        }
        if not over:
            return box
        return {a: swept(s, over, Span(Const.of(0), a.extent), known) for a, s in box.items()}


def fills_threads(stage: Stage, axis: IterVar) -> bool:
    """True when threads run the iterations of `axis`: so many threads as it has at its longest.

    A split into a number of parts has that number whatever its length.
    """
    parts = [axis]
    for r in stage.relations:
        if isinstance(r, Split):
            if any(r.parent is p for p in parts):
                parts += [r.inner] if r.parts is not None else [r.outer, r.inner]
        elif any(p is r.outer or p is r.inner for p in parts):
            parts.append(r.fused)
    notes = [stage.notes.get(p) for p in parts]
    return any(n is not None and n.thread is not None for n in notes)
