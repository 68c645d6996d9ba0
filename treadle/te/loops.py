# SPDX-License-Identifier: Apache-2.0
"""The loops of a stage: how its axes were divided, how each loop runs, what they add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Literal, get_args

from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr, int_value
from treadle.te.operations import IterVar, Tensor

if TYPE_CHECKING:
    from treadle.te.stage import Stage

LoopKind = Literal["serial", "vectorized", "unrolled", "parallel", "thread"]
Scope = Literal["", "global", "local", "shared", "workspace"]
SCOPES: tuple[str, ...] = get_args(Scope)

Tail = Literal["cut", "shorten", "guard"]
"""What becomes of the last iteration of a split that does not divide its axis: code of its own
("cut"), the same code with an inner loop that may be shorter ("shorten"), or the same code with a
test around what is past the end ("guard")."""
TAILS: tuple[str, ...] = get_args(Tail)


@dataclass(frozen=True, slots=True, eq=False)
class Attach:
    """Where a stage is computed: at root, inlined, or inside axis `axis` of `stage`.

    `stored`: the loop further out where it is stored, if that is another one.
    """

    kind: Literal["root", "inline", "at"]
    stage: Stage | None = None
    axis: IterVar | None = None
    stored: Attach | None = None


ROOT = Attach("root")
INLINE = Attach("inline")


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """`parent` becomes `outer` times a step plus `inner`.

    The step is `factor`, or where `parts` is given, what makes so many parts of the extent that is
    needed of the parent: the last ones of them may be empty.
    """

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: Expr | None
    parts: Expr | None = None
    tail: Tail = "cut"

    def step(self, extent: Expr) -> Expr:
        """Return how far apart two iterations of `outer` are, given the extent of the parent."""
        if self.parts is not None:
            return ceil_div(extent, self.parts)
        assert self.factor is not None
        return self.factor

    def is_even(self, extent: Expr) -> bool:
        """True when the parts of an extent are certainly all full ones."""
        step, whole = int_value(self.step(extent)), int_value(extent)
        if step is None or whole is None:
            return False
        parts = None if self.parts is None else int_value(self.parts)
        return whole == parts * step if parts is not None else step > 0 and whole % step == 0


@dataclass(frozen=True, slots=True, eq=False)
class Fuse:
    """`outer` and `inner` become the single axis `fused` (inner fastest)."""

    outer: IterVar
    inner: IterVar
    fused: IterVar


Relation = Split | Fuse


@dataclass(frozen=True, slots=True, eq=False)
class Tiles:
    """Tiles of `size` positions along `axes`, counted as one fused axis, the last fastest.

    After `wrap` positions what they read in common is read again; None: never.
    """

    axes: tuple[IterVar, ...]
    size: int
    wrap: int | None = None

    @property
    def count(self) -> int:
        """How many tiles read the same before the next is read; 0: unknown."""
        extents = (int_value(a.extent) or 0 for a in self.axes)
        return -(-(prod(extents) if self.wrap is None else self.wrap) // self.size)


@dataclass(frozen=True, slots=True)
class Trim:
    """An axis ends with another one: `ahead` after the last position computed `along` it.

    The end is rounded up to a `multiple`; a position of the axis stands for `scale` of them.
    """

    along: IterVar
    ahead: int
    multiple: int
    scale: int


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """What of `tensor` the next tile reads, to be fetched while this one is computed.

    The next tile is `step` further along `ahead`, of which the last axis runs fastest and only
    the first is divided in steps. `tiles` are those that read the same and share the work, or of
    which the first does it all (`once`). It is fetched into the caches from `level` on.
    """

    tensor: Tensor
    ahead: tuple[IterVar, ...]
    step: int
    tiles: tuple[Tiles, ...]
    once: bool
    level: int


@dataclass(slots=True)
class AxisNote:
    """How one axis is run: its loop kind, the hardware axis it is bound to, and pragmas."""

    kind: LoopKind = "serial"
    thread: IterVar | None = None
    pragmas: list[tuple[str, object]] = field(default_factory=list)
    prefetches: list[tuple[Tensor, int]] = field(default_factory=list)
    spread: list[tuple[Tensor, IterVar, int]] = field(default_factory=list)
    """Of prefetches of a loop outside, each iteration has its share of the lines."""
    panels: list[Panel] = field(default_factory=list)
    ranges: list[tuple[Expr, int, int]] = field(default_factory=list)
    """Iterations matter only where an index is somewhere in a range (begin, end)."""
    intrinsic: str = ""
    """The name of the intrinsic that does what the loops from here on do."""

    def said(self) -> str:
        """Return in a word what was said of the axis."""
        if self.intrinsic:
            return "tensorized"
        if self.kind != "serial":
            return "bound" if self.kind == "thread" else self.kind
        if self.prefetches or self.spread or self.panels:
            return "where memory is fetched"
        return "skipped" if self.ranges else "under a pragma"


def position(axes: Sequence[IterVar]) -> Expr:
    """Return the position in axes that are counted as one, the last fastest."""
    found: Expr = axes[0]
    for axis in axes[1:]:
        found = found * axis.extent + axis
    return found


def ceil_div(a: Expr, b: Expr) -> Expr:
    """Return ceil(a / b) for positive b, folded where both are constants."""
    x, y = int_value(a), int_value(b)
    if x is not None and y is not None:
        return Const.of(-(-x // y))
    return ex.binary("floordiv", a + (b - 1), b)


def product(a: Expr, b: Expr) -> Expr:
    """Return a * b, folded where both are constants."""
    x, y = int_value(a), int_value(b)
    if x is not None and y is not None:
        return Const.of(x * y)
    return a * b


def root_values(
    stage: Stage, leaves: Mapping[IterVar, Expr], extents: Mapping[IterVar, Expr]
) -> tuple[dict[IterVar, Expr], list[Expr]]:
    """Return the value of every axis given those of loops, and the guards of uneven splits.

    Only axes whose loops are all in `leaves` are in the result.
    """
    values: dict[IterVar, Expr] = dict(leaves)
    guards: list[Expr] = []
    for r in reversed(stage.relations):
        if isinstance(r, Split):
            if r.outer in values and r.inner in values:
                step = r.step(extents[r.parent])
                values[r.parent] = values[r.outer] * step + values[r.inner]
                if not r.is_even(extents[r.parent]):
                    guards.append(values[r.parent] < extents[r.parent])
        elif r.fused in values:
            both = values[r.fused]
            if int_value(extents[r.outer]) == 1:  # told here: a symbolic inner extent hides it
                values[r.outer], values[r.inner] = Const.of(0, both.dtype), both
                continue
            values[r.outer] = both // extents[r.inner]
            values[r.inner] = both % extents[r.inner]
    return values, guards
