# SPDX-License-Identifier: Apache-2.0
"""The buffers that stages are computed into while a loop nest is being made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from treadle.expr import nodes as ex
from treadle.expr.nodes import Expr
from treadle.loop.nodes import Buffer
from treadle.te.operations import Tensor
from treadle.te.schedule import Schedule, Stage


@dataclass(slots=True)
class Memory:
    """Where the results of stages lie, and the names that are taken."""

    schedule: Schedule
    bodies: dict[int, tuple[Expr, ...]]
    """The elements of every stage that is computed, by its id."""
    buffers: dict[tuple[int, int], Buffer] = field(default_factory=dict)
    """The buffer of every output (stage id, index)."""
    offsets: dict[int, tuple[Expr, ...]] = field(default_factory=dict)
    """Where the part of a stage that its buffer holds begins."""
    computed: set[int] = field(default_factory=set)
    """The stages computed at a loop that are complete where statements are being made."""
    names: dict[str, int] = field(default_factory=dict)

    def unique(self, name: str) -> str:
        """Return a name that no other variable or buffer has."""
        count = self.names.get(name, 0)
        self.names[name] = count + 1
        return name if count == 0 else f"{name}_{count}"

    def reads(self, reader: Stage, producer: Stage) -> Iterator[tuple[Expr, ...]]:
        """Yield the indices at which one stage reads another."""
        for body in self.bodies[id(reader)]:
            for n in ex.walk(body):
                if not isinstance(n, ex.Load) or not isinstance(n.source, Tensor):
                    continue
                if self.schedule[n.source] is producer:
                    yield n.indices
