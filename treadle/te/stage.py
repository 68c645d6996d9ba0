# SPDX-License-Identifier: Apache-2.0
"""Stages of a schedule: what a user says of the loops of one tensor, and the loops that gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from treadle.errors import ScheduleError
from treadle.expr.nodes import Expr, ExprLike, int_value
from treadle.te.intrinsics import Intrinsic, find_intrinsic
from treadle.te.loops import ROOT, AxisNote, Relation, Scope, Split, Tail, Trim, ceil_div, product
from treadle.te.operations import ComputeOp, IterVar, Operation, Tensor

if TYPE_CHECKING:
    from treadle.te.schedule import Schedule


class Stage:
    """One operation of a schedule and the loops it will run as.

    `leaf_iter_vars` are the loops, outermost first; `all_iter_vars` are all axes in the order they
    were made. Each method that changes them is a step of the schedule (`te.primitives` says what
    it does); all else of a stage follows from these steps.
    """

    def __init__(self, op: Operation, schedule: Schedule, number: int) -> None:
        self.op = op
        self.schedule = schedule
        self.number = number
        self.relations: list[Relation] = []
        self.notes: dict[IterVar, AxisNote] = {}
        self.attach = ROOT
        self.scope: Scope = ""
        self.peeled: dict[IterVar, tuple[Expr, Expr]] = {}
        self.rounded: set[IterVar] = set()
        self.trimmed: dict[IterVar, Trim] = {}
        self.aligned: dict[IterVar, tuple[int, int]] = {}
        self.is_output = False
        self.become(op)

    def become(self, op: Operation) -> None:
        """Compute `op` from now on, by its own loops."""
        self.op = op
        roots = (*op.axis, *op.reduce_axis) if isinstance(op, ComputeOp) else ()
        self.root_iter_vars: tuple[IterVar, ...] = roots
        self.leaf_iter_vars: list[IterVar] = list(roots)
        self.all_iter_vars: list[IterVar] = list(roots)
        self.relations.clear()
        self.notes.clear()

    @property
    def name(self) -> str:
        """The operation's name."""
        return self.op.name

    def __repr__(self) -> str:
        return f"stage({self.name}, [{', '.join(a.name for a in self.leaf_iter_vars)}])"

    def _do(self, primitive: str, *args: object) -> Any:  # what the primitive makes
        return self.schedule.do(self, primitive, *args)

    # -- loop structure ----------------------------------------------------------------------

    def split(
        self,
        parent: IterVar,
        factor: ExprLike | None = None,
        nparts: ExprLike | None = None,
        *,
        tail: Tail = "cut",
    ) -> tuple[IterVar, IterVar]:
        """Split an axis in two; the inner has extent `factor`, or the outer has `nparts`.

        A factor that does not divide the extent is fine: the remainder becomes a tile of its own,
        or `tail` says what else. Of a stage that is computed at a loop, `nparts` divides what is
        needed there: the outer loop always has `nparts` iterations, of which the last do nothing
        where there is less to do.

        before: for i in range(n)  ->  after: for io in range(n // factor): for ii in range(factor)
        """
        outer, inner = self._do("split", parent, factor, nparts, tail)
        return outer, inner

    def fuse(self, *args: IterVar, name: str = "") -> IterVar:
        """Fuse neighbouring axes into one, the last running fastest; one axis stays as it is.

        The loop is called `name`; if that is not given, after the axes.
        """
        if not args:
            raise self.error("fuse takes at least one axis")
        if len(args) == 1:
            return args[0]
        fused = self._do("fuse", args, name)
        assert isinstance(fused, IterVar)
        return fused

    def reorder(self, *args: IterVar) -> None:
        """Put the given axes in this order; axes not named keep their places."""
        self._do("reorder", args)

    def tile(
        self,
        x_parent: IterVar,
        y_parent: IterVar,
        x_factor: ExprLike,
        y_factor: ExprLike,
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two axes and order them x.outer, y.outer, x.inner, y.inner."""
        xo, xi = self.split(x_parent, factor=x_factor)
        yo, yi = self.split(y_parent, factor=y_factor)
        self.reorder(xo, yo, xi, yi)
        return xo, yo, xi, yi

    def vectorize(self, var: IterVar) -> None:
        """Run an axis as SIMD lanes; its extent, where it is run, must have a constant bound."""
        self._do("vectorize", var)

    def unroll(self, var: IterVar) -> None:
        """Write the iterations of an axis one after the other.

        Its extent, where it is run, must have a constant bound.
        """
        self._do("unroll", var)

    def parallel(self, var: IterVar) -> None:
        """Spread the iterations of an axis over the threads."""
        self._do("parallel", var)

    def bind(self, ivar: IterVar, thread_ivar: IterVar) -> None:
        """Bind an axis to a hardware axis made by te.thread_axis."""
        self._do("bind", ivar, thread_ivar)

    def pragma(self, var: IterVar, pragma_type: str, pragma_value: object = True) -> None:
        """Attach a note for the code generator to an axis, such as ("unroll", 4)."""
        self._do("pragma", var, pragma_type, pragma_value)

    def tensorize(self, var: IterVar, intrinsic: Intrinsic | str) -> None:
        """Let an intrinsic do what the loops from `var` inwards do; v0.8's name.

        They are the reduction loops of one step of the intrinsic, innermost in the stage, with
        its products as their body; `var` may also be the loop around them, which becomes its lanes.
        Where the body is not the intrinsic's meaning, lowering raises ScheduleError and says what
        stands there. The end of an uneven split that is shorter than a step stays loops.

        before: for i in vectorized(16): for k in range(4): C[i] += int32(A[k]) * int32(B[i, k])
        after:  for i in vectorized(16): C[i] = x86.vpdpbusd(C[i], A[0], ..., A[3], B[i, 0], ...)
        """
        name = intrinsic if isinstance(intrinsic, str) else intrinsic.name
        if not isinstance(intrinsic, str) and find_intrinsic(name) is not intrinsic:
            raise self.error(f"tensorize: {name} names another intrinsic", "register this one")
        self._do("tensorize", var, name)

    def prefetch(
        self, tensor: Tensor, var: IterVar, offset: int, *, spread: IterVar | None = None
    ) -> None:
        """In each iteration of `var`, fetch what the iteration `offset` later reads of `tensor`.

        With 0, what this iteration reads is fetched while it computes something else first.
        Only a hint: lines past the end of a row are those of the next row in memory (past the end
        of panels that a tile reads side by side: those of the next panels; none along the last of
        many panels), and nothing is fetched of a stage that is computed at a loop and not complete.
        A core waits for few lines at once: with `spread`, a loop inside of `var`, each of its
        iterations fetches its share of them.

        before: for k: C[n] += B[k, n]  ->  after: for k: prefetch(B[k + offset, 0]); C[n] += ...
        """
        self._do("prefetch", tensor, var, offset, spread)

    def prefetch_panel(
        self,
        tensor: Tensor,
        var: IterVar,
        ahead: Sequence[IterVar],
        *,
        step: int = 1,
        tiles: Sequence[tuple[Sequence[IterVar], int] | tuple[Sequence[IterVar], int, int]] = (),
        once: bool = False,
        level: int = 1,
    ) -> None:
        """In each iteration of `var`, fetch a part of what the next tile reads of `tensor`.

        The next tile is `step` further along `ahead`, axes of the tensor of which the last runs
        fastest: after the end of the others comes the next step of the first. `tiles` are those
        that read the same before that, and share the work: each entry is (axes, size), or
        (axes, size, wrap), for tiles of `size` positions along axes that count as one; after `wrap`
        positions the same is read again. With `once` the first of them fetches all. They fetch into
        the caches from `level` on: 2 leaves level 1 to what this tile reads.

        What a reduction reads in one run of memory is divided evenly over its iterations and the
        tiles; where the tiles are so few that each would fetch a line or more per iteration,
        nothing is fetched: `prefetch` is enough. Several panels side by side are shared out panel
        by panel. Only a hint: the tiles of the last panel, after which nothing comes, fetch from
        that one, and nothing is fetched of a stage that is computed at a loop and not complete.

        A tensor that this stage does not read, but one that it reads is made of, is fetched whole
        rows at a time, by the same shares: those that are `step` further along `ahead`, the one
        axis that counts rows of the tensor, or groups of as many.

        before: for n: for m: for k: C[m, n] += A[m, k] * B[n, k, 0]
        after:  for n: for m: for k: prefetch(B[min(n + step, last), 0, ...]); C[m, n] += ...
        """
        self._do("prefetch_panel", tensor, var, ahead, step, tiles, once, level)

    def skip_past(self, var: IterVar, axes: Sequence[IterVar], end: int) -> None:
        """Skip the iterations of `var` for which the position in `axes` is `end` or more.

        The axes are those of the tensor and of the reduction, counted as one of which the last runs
        fastest. Only iterations are skipped in which that is so for all elements that the loops
        inside compute. `var` is an axis of a reduction, to which they must add nothing: what they
        read is known to be zero.

        before: for b: for c in range(8): C[i] += A[b, c] * B[b, c]
        after:  for b: for c in range(8): if b * 8 + c < end: C[i] += A[b, c] * B[b, c]
        """
        self._do("skip_past", var, axes, end)

    def skip_outside(self, var: IterVar, tensor: Tensor, dim: int, begin: int, end: int) -> None:
        """Skip the iterations of `var` that read `tensor` outside [begin, end) of a dimension.

        Only iterations are skipped in which that is so for all elements that the loops inside
        compute. `var` is an axis of a reduction, to which they must add nothing: the tensor is
        known to be zero there. The stage reads the tensor at one place.

        before: for k: for i in range(8): C[i] += A[i + k] * B[k]
        after:  for k: if k + 7 >= begin and k < end: for i in range(8): C[i] += A[i + k] * B[k]
        """
        self._do("skip_outside", var, tensor, dim, begin, end)

    def peel(self, axis: IterVar, begin: int, end: ExprLike) -> None:
        """Let the scheduled loops cover [begin, end) of a root axis; plain loops cover the rest.

        For tensors with a border (padding): the hot loops see the inside only. `end` may hold
        symbolic sizes, and lie before `begin` for some of them: then all is border.
        """
        self._do("peel", axis, begin, end)

    def round_up(self, axis: IterVar) -> None:
        """Compute as much along a data axis as is ever needed, also where its tensor ends before.

        For a stage that is computed at a loop: its extents are constants then, so that it can be in
        lanes and registers. What lies past the end is made of the last elements and never stored.

        before: for i in vectorized(min(n - start, 8)): A[i] = X[start + i]
        after:  for i in vectorized(8): A[i] = X[min(start + i, n - 1)]
        """
        self._do("round_up", axis)

    def trim(
        self, axis: IterVar, along: IterVar, ahead: int, multiple: int = 1, scale: int = 1
    ) -> None:
        """Leave out of `axis` what lies past a diagonal: further than `ahead` after axis `along`.

        Where the stage is computed for positions up to `last` of `along`, `axis` ends before
        `last + 1 + ahead`, rounded up to `multiple`, and divided by `scale`: a position of it
        stands for so many. What is left out adds nothing to a reduction; of a data axis nobody
        reads it, as those that do are trimmed likewise.

        before: for b: for i in 4 * b, ..., 4 * b + 3: for k in range(64): C[i] += A[i, k]
        after:  for b: for i in ...: for k in range(min(64, 4 * b + 4 + ahead)): C[i] += A[i, k]
        """
        self._do("trim", axis, along, ahead, multiple, scale)

    # -- where the stage is computed -----------------------------------------------------------

    def compute_at(self, parent: Stage, scope: IterVar) -> None:
        """Compute what `parent` needs inside its axis `scope`, afresh in each iteration."""
        self._do("compute_at", (parent, scope))

    def store_at(self, parent: Stage, scope: IterVar) -> None:
        """Keep what is computed at a loop for all iterations of the loops from `scope` inwards.

        The stage is computed at a loop further in (`compute_at`). What an earlier iteration of the
        loops in between has computed is not computed again: of those loops that do not change what
        is needed, only the first iteration computes it, right before it is read; the others read
        it. Halide's `store_at` (Ragan-Kelley et al., PLDI 2013).

        before: for i: for k: A[k] = f(k); C[i] += A[k]
        after:  for i: for k: if i == 0: A[k] = f(k); C[i] += A[k]
        """
        self._do("store_at", (parent, scope))

    def compute_inline(self) -> None:
        """Replace every read of this stage by its expression."""
        self._do("compute_inline")

    def compute_root(self) -> None:
        """Compute the whole stage before its users (the default)."""
        self._do("compute_root")

    def storage_align(self, axis: IterVar, factor: int, offset: int = 0) -> None:
        """Let positions of `axis` lie a multiple of `factor` elements apart, and `offset` more.

        Elements that this leaves between them belong to nobody. Rows that lie a power of two apart
        share few sets of a cache and evict each other; aligned ones have sets of their own. `axis`
        is one of the tensor; an output of the schedule lies as its caller has it.

        before: B[i, k] lies at i * 1024 + k
        after:  s[B].storage_align(i, 1024, 16): at i * 1040 + k
        """
        self._do("storage_align", axis, factor, offset)

    def set_scope(self, scope: Scope) -> None:
        """Choose the memory this stage's result lives in."""
        self._do("set_scope", scope)

    # -- facts -----------------------------------------------------------------------------------

    def extents(
        self,
        roots: Mapping[IterVar, Expr] | None = None,
        overrides: Mapping[IterVar, Expr] | None = None,
    ) -> dict[IterVar, Expr]:
        """Return the extent of every axis, given those of the root axes.

        `overrides` fixes extents of inner axes of splits (in a tail they are smaller).
        """
        extents: dict[IterVar, Expr] = {}
        for axis in self.root_iter_vars:
            extents[axis] = (roots or {}).get(axis, axis.extent)
        for r in self.relations:
            if isinstance(r, Split):
                whole = extents[r.parent]
                factor = r.step(whole)
                n, f = int_value(whole), int_value(factor)
                inner = whole if n is not None and f is not None and n < f else factor
                extents[r.inner] = inner
                extents[r.outer] = ceil_div(whole, factor) if r.parts is None else r.parts
                if overrides is not None and r.inner in overrides:
                    extents[r.inner] = overrides[r.inner]
            else:
                extents[r.fused] = product(extents[r.outer], extents[r.inner])
        return extents

    def inputs(self) -> list[Tensor]:
        """Return the tensors this stage reads, itself or through stages that may be inlined."""
        found: dict[Tensor, None] = {}
        queue = list(self.op.input_tensors)
        while queue:
            read = queue.pop()
            if read in found:
                continue
            found[read] = None
            op = self.schedule[read].op
            if not isinstance(op, ComputeOp) or not op.reduce_axis:
                queue += op.input_tensors
        return list(found)

    def reads(self, tensor: Tensor) -> bool:
        """True when this stage reads a tensor, itself or through stages that may be inlined."""
        made_by, index = self.schedule[tensor], tensor.value_index
        return any(self.schedule[t] is made_by and t.value_index == index for t in self.inputs())

    def error(self, problem: str, hint: str = "") -> ScheduleError:
        """Return the error for a step that does not fit this stage."""
        return ScheduleError(problem, at=f"schedule of stage {self.name}", hint=hint)

    def no_loop(self, axis: object, primitive: str) -> ScheduleError:
        """Return the error for what is not a loop of this stage."""
        name = getattr(axis, "name", repr(axis))
        close = get_close_matches(name, [a.name for a in self.leaf_iter_vars], 1)
        return self.error(
            f"{primitive}: {name} is not a loop of this stage; its loops are {self.order()}",
            f"do you mean {close[0]}?" if close and close[0] != name else "",
        )

    def order(self) -> str:
        """Return the names of the loops, outermost first."""
        return ", ".join(a.name for a in self.leaf_iter_vars) or "none"
