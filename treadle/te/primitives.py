# SPDX-License-Identifier: Apache-2.0
"""What each schedule primitive does to a stage, and which arguments it takes.

A primitive checks everything before it changes anything: one that raises has done nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from treadle.expr import nodes as ex
from treadle.expr.bounds import prove
from treadle.expr.intervals import Interval
from treadle.expr.nodes import Const, Expr, int_value
from treadle.expr.traversal import free_vars, walk
from treadle.te.arguments import (
    AXES,
    AXIS,
    AXIS_LIST,
    FLAG,
    OUTPUT,
    PLACE,
    SIZE,
    STAGES,
    TENSOR,
    THREAD,
    TILES,
    VALUE,
    WHOLE,
    WORD,
    Kind,
)
from treadle.te.caches import cache_read, cache_write, rfactor
from treadle.te.intrinsics import find_intrinsic
from treadle.te.loops import (
    INLINE,
    ROOT,
    SCOPES,
    TAILS,
    Attach,
    AxisNote,
    Fuse,
    LoopKind,
    Panel,
    Split,
    Tiles,
    Trim,
    position,
)
from treadle.te.operations import ComputeOp, ExternOp, IterVar, PlaceholderOp, Tensor
from treadle.te.stage import Stage

# -- loop structure ---------------------------------------------------------------------------


def _split(
    stage: Stage, parent: IterVar, factor: Expr | None, nparts: Expr | None, tail: str
) -> tuple[IterVar, IterVar]:
    place = _divided(stage, parent, "split")
    number, given = (factor, "factor") if nparts is None else (nparts, "nparts")
    if number is None or (factor is not None and nparts is not None):
        raise stage.error(f"split of {parent.name} takes either factor or nparts")
    if isinstance(number, Const) and (int_value(number) or 0) < 1:
        raise stage.error(f"split of {parent.name} needs a positive integer {given}, got {number}")
    if tail not in TAILS:
        raise stage.error(
            f"split of {parent.name}: tail is {tail!r}",
            f"it is one of {', '.join(map(repr, TAILS))}",
        )
    outer = IterVar(f"{parent.name}.outer", kind=parent.kind)
    inner = IterVar(f"{parent.name}.inner", kind=parent.kind)
    stage.relations.append(Split(parent, outer, inner, factor, nparts, tail))  # type: ignore[arg-type]  # one of TAILS
    stage.leaf_iter_vars[place : place + 1] = [outer, inner]
    stage.all_iter_vars += [outer, inner]
    return outer, inner


def _fuse(stage: Stage, axes: Sequence[IterVar], name: str) -> IterVar:
    if not axes:
        raise stage.error("fuse takes at least one axis")
    places = [_divided(stage, a, "fuse") for a in axes]
    for (outer, at), (inner, after) in pairwise(zip(axes, places, strict=True)):
        if after != at + 1:
            raise stage.error(
                f"{outer.name} and {inner.name} are not neighbours, the order is {stage.order()}",
                "reorder them first, the inner right after the outer",
            )
        if outer.kind != inner.kind:
            raise stage.error(f"cannot fuse {outer.kind} axis {outer.name} with {inner.name}")
    fused = axes[0]
    for inner in axes[1:]:
        both = IterVar(f"{fused.name}.{inner.name}.fused", kind=fused.kind)
        stage.relations.append(Fuse(fused, inner, both))
        fused = both
    fused.name = name or fused.name
    stage.leaf_iter_vars[places[0] : places[-1] + 1] = [fused]
    stage.all_iter_vars.append(fused)
    return fused


def _reorder(stage: Stage, axes: Sequence[IterVar]) -> None:
    places = sorted(_leaf(stage, a, "reorder") for a in axes)
    if len(set(places)) != len(axes):
        raise stage.error("reorder names an axis twice")
    for place, axis in zip(places, axes, strict=True):
        stage.leaf_iter_vars[place] = axis


def _peel(stage: Stage, axis: IterVar, begin: int, end: Expr) -> None:
    _data_axis(stage, axis)
    if any(isinstance(r, Split) and r.parent is axis for r in stage.relations):
        raise stage.error(f"peel of {axis.name} must come before it is split")
    sizes = {v: Interval(0, None) for v in free_vars(axis.extent)}
    fits = prove(end <= axis.extent, sizes) and prove(end <= begin, sizes) is not True
    if not fits or begin < 0:
        raise stage.error(f"peel of {axis.name} needs 0 <= begin < end <= {axis.extent}")
    stage.peeled[axis] = (Const.of(begin), end)


def _round_up(stage: Stage, axis: IterVar) -> None:
    _data_axis(stage, axis)
    if stage.is_output:
        raise stage.error("an output ends where its tensor ends")
    stage.rounded.add(axis)


def _trim(
    stage: Stage, axis: IterVar, along: IterVar, ahead: int, multiple: int, scale: int
) -> None:
    roots = stage.root_iter_vars
    if not any(axis is a for a in roots) or along.kind == "reduce" or axis is along:
        raise stage.error("trim takes an axis of the stage, and another that is of its tensor")
    if not any(along is a for a in roots):
        raise stage.error(f"trim: {along.name} is no axis of {stage.name}")
    if stage.is_output and axis.kind != "reduce":
        raise stage.error("an output is computed whole")
    if ahead < 0 or scale < 1 or multiple < 1 or multiple % scale:
        raise stage.error("trim takes an end of 0 or more, and a multiple of the scale")
    stage.trimmed[axis] = Trim(along, ahead, multiple, scale)


# -- how a loop runs --------------------------------------------------------------------------


def _vectorize(stage: Stage, var: IterVar) -> None:
    if var.kind == "reduce":
        raise stage.error(
            f"reduction axis {var.name} cannot be vectorized", "use rfactor, then vectorize"
        )
    _set_kind(stage, var, "vectorize", "vectorized")


def _unroll(stage: Stage, var: IterVar) -> None:
    _set_kind(stage, var, "unroll", "unrolled")


def _parallel(stage: Stage, var: IterVar) -> None:
    if var.kind == "reduce":
        raise stage.error(f"reduction axis {var.name} cannot run in parallel", "use rfactor on it")
    _set_kind(stage, var, "parallel", "parallel")


def _bind(stage: Stage, ivar: IterVar, thread_ivar: IterVar) -> None:
    _leaf(stage, ivar, "bind")
    extent, given = int_value(stage.extents()[ivar]), int_value(thread_ivar.extent)
    if given is not None and given >= 0 and extent is not None and extent != given:
        raise stage.error(
            f"bind: {ivar.name} has {extent} iterations, {thread_ivar.name} is {given} long"
        )
    note = _note(stage, ivar)
    note.kind, note.thread = "thread", thread_ivar


def _pragma(stage: Stage, var: IterVar, name: str, value: object) -> None:
    _leaf(stage, var, "pragma")
    _note(stage, var).pragmas.append((name, value))


def _tensorize(stage: Stage, var: IterVar, intrinsic: str) -> None:
    _leaf(stage, var, "tensorize")
    found = find_intrinsic(intrinsic)
    note = _note(stage, var)
    note.intrinsic = found.name
    if var.kind != "reduce":
        note.kind = "vectorized"


# -- what is fetched and what is skipped ------------------------------------------------------


def _prefetch(
    stage: Stage, tensor: Tensor, var: IterVar, offset: int, spread: IterVar | None
) -> None:
    _fetched(stage, tensor, var, "prefetch")
    if offset < 0:
        raise stage.error(f"prefetch of {tensor.name} needs an offset of 0 or more")
    if spread is None:
        _note(stage, var).prefetches.append((tensor, offset))
        return
    if _leaf(stage, spread, "prefetch") <= _leaf(stage, var, "prefetch"):
        raise stage.error(
            f"prefetch of {tensor.name} is spread over {spread.name}, no loop inside of {var.name}"
        )
    _note(stage, spread).spread.append((tensor, var, offset))


def _prefetch_panel(
    stage: Stage,
    tensor: Tensor,
    var: IterVar,
    ahead: Sequence[IterVar],
    step: int,
    tiles: Sequence[Tiles],
    once: bool,
    level: int,
) -> None:
    what = "prefetch_panel"
    _fetched(stage, tensor, var, what)
    if not ahead:
        raise stage.error(f"{what} of {tensor.name} names no axis along which tiles follow")
    for axis in (*ahead, *(a for group in tiles for a in group.axes)):
        if not any(axis is root for root in stage.root_iter_vars):
            raise stage.error(f"{what}: {axis.name} is no axis of {stage.name}")
    if min(step, *(n for g in tiles for n in (g.size, 1 if g.wrap is None else g.wrap)), 1) < 1:
        raise stage.error(f"{what} of {tensor.name}: steps and tiles have a length of 1 or more")
    if level not in (1, 2):
        raise stage.error(f"{what} of {tensor.name} fetches into level 1 or 2, not {level}")
    panel = Panel(tensor, tuple(ahead), step, tuple(tiles), once, level)
    _note(stage, var).panels.append(panel)


def _skip_past(stage: Stage, var: IterVar, axes: Sequence[IterVar], end: int) -> None:
    _skipped(stage, var, "skip_past")
    for axis in axes:
        if not any(axis is root for root in stage.root_iter_vars):
            raise stage.error(f"skip_past: {axis.name} is no axis of {stage.name}")
    if not axes or end < 0:
        raise stage.error("skip_past needs axes, and an end of 0 or more")
    _note(stage, var).ranges.append(_last_only(var, axes, end) or (position(axes), 0, end))


def _last_only(var: IterVar, axes: Sequence[IterVar], end: int) -> tuple[Expr, int, int] | None:
    """Return the range of an index for (axis, var) where only the end of the axis is left out.

    The loop over a data axis stands outside of the reduction. A test of the whole position would
    cut it in two, each with code of its own for all loops inside; this one stays where it is.
    """
    if len(axes) != 2 or axes[0].kind == "reduce" or axes[1] is not var:
        return None
    extent, inner = int_value(axes[0].extent), int_value(var.extent)
    if extent is None or inner is None or not (extent - 1) * inner <= end <= extent * inner:
        return None
    is_last: Expr = axes[0] // (extent - 1) if extent > 1 else Const.of(1)
    return var + is_last * (extent * inner - end), 0, inner


def _skip_outside(
    stage: Stage, var: IterVar, tensor: Tensor, dim: int, begin: int, end: int
) -> None:
    _skipped(stage, var, "skip_outside")
    if begin > end:
        raise stage.error(f"skip_outside needs begin <= end, not {begin} and {end}")
    if not 0 <= dim < tensor.ndim:
        raise stage.error(f"skip_outside: {tensor.name} has no dimension {dim}")
    body = stage.op.body if isinstance(stage.op, ComputeOp) else ()
    schedule, made_by = stage.schedule, stage.schedule[tensor]
    reads = {
        n.indices[dim]: None
        for b in body
        for n in walk(b)
        if isinstance(n, ex.Load)
        and isinstance(n.source, Tensor)
        and schedule[n.source] is made_by
        and n.source.value_index == tensor.value_index
    }
    if len(reads) != 1:
        places = f"at {len(reads)} places, not at one" if reads else "nowhere"
        raise stage.error(
            f"skip_outside: {stage.name} reads {tensor.name} along dimension {dim} {places}"
        )
    _note(stage, var).ranges.append((next(iter(reads)), begin, end))


# -- where a stage is computed ----------------------------------------------------------------


def _compute_at(stage: Stage, place: tuple[Stage, IterVar]) -> None:
    parent, axis = place
    if parent is stage:
        raise stage.error("a stage cannot be computed at itself")
    if stage.is_output:
        raise stage.error("an output is always computed at root")
    _leaf(parent, axis, "compute_at")
    _is_moved(stage, "compute_at")
    stage.attach = Attach("at", parent, axis)


def _store_at(stage: Stage, place: tuple[Stage, IterVar]) -> None:
    parent, axis = place
    if stage.attach.kind != "at":
        raise stage.error(
            "store_at: the stage is not computed at a loop",
            "say compute_at first, a loop further in",
        )
    _leaf(parent, axis, "store_at")
    stage.attach = replace(stage.attach, stored=Attach("at", parent, axis))


def _compute_inline(stage: Stage) -> None:
    _is_moved(stage, "compute_inline")
    if stage.is_output:
        raise stage.error("an output cannot be inlined")
    if isinstance(stage.op, ComputeOp) and stage.op.reduce_axis:
        raise stage.error("a reduction cannot be inlined", "use compute_at")
    stage.attach = INLINE


def _compute_root(stage: Stage) -> None:
    stage.attach = ROOT


def _storage_align(stage: Stage, axis: IterVar, factor: int, offset: int) -> None:
    if stage.is_output or not isinstance(stage.op, ComputeOp):
        raise stage.error(
            "storage_align: the rows of an argument lie where the caller has them",
            "align a copy: cache_read or cache_write makes one",
        )
    if not any(axis is a for a in stage.op.axis):
        raise stage.error(f"storage_align: {axis.name} is no axis of {stage.name}")
    if factor < 1 or not 0 <= offset < factor:
        raise stage.error(
            f"storage_align: an offset from 0 to below the factor is needed, not {offset} of "
            f"{factor}"
        )
    stage.aligned[axis] = (factor, offset)


def _set_scope(stage: Stage, scope: str) -> None:
    _check_scope(stage, "set_scope", scope)
    stage.scope = scope  # type: ignore[assignment]  # one of SCOPES


# -- new stages -------------------------------------------------------------------------------


def _cache_write(stage: Stage, tensor: Tensor, scope: str) -> Tensor:
    _check_scope(stage, "cache_write", scope)
    return cache_write(stage, tensor, scope)  # type: ignore[arg-type]  # one of SCOPES


def _cache_read(stage: Stage, tensor: Tensor, scope: str, readers: Sequence[Stage]) -> Tensor:
    _check_scope(stage, "cache_read", scope)
    return cache_read(stage, tensor, scope, readers)  # type: ignore[arg-type]  # one of SCOPES


def _rfactor(stage: Stage, tensor: Tensor, axis: IterVar, factor_axis: int) -> Tensor:
    _leaf(stage, axis, "rfactor")
    return rfactor(stage, tensor, axis, factor_axis)


# -- checks -----------------------------------------------------------------------------------


def _leaf(stage: Stage, axis: IterVar, primitive: str) -> int:
    """Return the place of a loop among those of its stage."""
    for place, leaf in enumerate(stage.leaf_iter_vars):
        if leaf is axis:
            return place
    raise stage.no_loop(axis, primitive)


def _divided(stage: Stage, axis: IterVar, primitive: str) -> int:
    """Return the place of an axis about to be divided, which nothing else refers to yet."""
    place = _leaf(stage, axis, primitive)
    for s in stage.schedule.stages:
        for at, verb in ((s.attach, "compute"), (s.attach.stored, "store")):
            if at is not None and at.axis is axis:
                raise stage.error(
                    f"{primitive}: {s.name} is {verb}d at {axis.name}, which would be no loop any "
                    "more",
                    f"{primitive} it first, then {verb} {s.name} at one of its parts",
                )
    note = stage.notes.get(axis)
    if note is not None:
        raise stage.error(
            f"{primitive}: {axis.name} is {note.said()} already, which its parts would not be",
            f"{primitive} it first, then say so of one of its parts",
        )
    return place


def _data_axis(stage: Stage, axis: IterVar) -> None:
    if not isinstance(stage.op, ComputeOp) or axis not in stage.op.axis:
        raise stage.error(f"{axis.name} is not a data axis of {stage.name}")


def _note(stage: Stage, axis: IterVar) -> AxisNote:
    return stage.notes.setdefault(axis, AxisNote())


def _set_kind(stage: Stage, var: IterVar, primitive: str, kind: LoopKind) -> None:
    _leaf(stage, var, primitive)
    _note(stage, var).kind = kind


def _fetched(stage: Stage, tensor: Tensor, var: IterVar, primitive: str) -> None:
    _leaf(stage, var, primitive)
    if not stage.reads(tensor):
        raise stage.error(f"{primitive}: {stage.name} does not read {tensor.name}")


def _skipped(stage: Stage, var: IterVar, primitive: str) -> None:
    _leaf(stage, var, primitive)
    if var.kind != "reduce":
        raise stage.error(f"{primitive}: {var.name} is not an axis of a reduction")


def _check_scope(stage: Stage, primitive: str, scope: str) -> None:
    if scope not in SCOPES:
        names = ", ".join(repr(name) for name in SCOPES if name)
        raise stage.error(f"{primitive}: {scope!r} names no memory", f"it is one of {names}")


def _is_moved(stage: Stage, primitive: str) -> None:
    """Check that a stage can be computed elsewhere than at root."""
    if isinstance(stage.op, PlaceholderOp):
        raise stage.error(f"{primitive}: an input is not computed")
    if isinstance(stage.op, ExternOp):
        raise stage.error(f"{primitive}: a stage written by hand is computed at root")
    if any(isinstance(r.op, ExternOp) for r in stage.schedule.readers(stage)):
        raise stage.error(f"{primitive}: a stage written by hand reads this one whole")


# -- the table --------------------------------------------------------------------------------

REQUIRED = object()


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a primitive: its name in Python, its kind, its default."""

    name: str
    kind: Kind
    default: object = REQUIRED
    is_keyword: bool = False
    """True for an argument that Python code must name."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """A schedule primitive; `of_schedule` ones are methods of Schedule, the others of Stage."""

    apply: Callable[..., object]
    parameters: tuple[Parameter, ...] = ()
    of_schedule: bool = False


def _primitive(apply: Callable[..., object], *parameters: Parameter) -> Primitive:
    return Primitive(apply, parameters)


_VAR = Parameter("var", AXIS)

PRIMITIVES: dict[str, Primitive] = {
    "split": _primitive(
        _split,
        Parameter("parent", AXIS),
        Parameter("factor", SIZE, None, is_keyword=True),
        Parameter("nparts", SIZE, None, is_keyword=True),
        Parameter("tail", WORD, "cut", is_keyword=True),
    ),
    "fuse": _primitive(
        _fuse, Parameter("args", AXES), Parameter("name", WORD, "", is_keyword=True)
    ),
    "reorder": _primitive(_reorder, Parameter("args", AXES)),
    "vectorize": _primitive(_vectorize, _VAR),
    "unroll": _primitive(_unroll, _VAR),
    "parallel": _primitive(_parallel, _VAR),
    "bind": _primitive(_bind, Parameter("ivar", AXIS), Parameter("thread_ivar", THREAD)),
    "pragma": _primitive(
        _pragma, _VAR, Parameter("pragma_type", WORD), Parameter("pragma_value", VALUE, True)
    ),
    "tensorize": _primitive(_tensorize, _VAR, Parameter("intrinsic", WORD)),
    "prefetch": _primitive(
        _prefetch,
        Parameter("tensor", TENSOR),
        _VAR,
        Parameter("offset", WHOLE),
        Parameter("spread", AXIS, None, is_keyword=True),
    ),
    "prefetch_panel": _primitive(
        _prefetch_panel,
        Parameter("tensor", TENSOR),
        _VAR,
        Parameter("ahead", AXIS_LIST),
        Parameter("step", WHOLE, 1, is_keyword=True),
        Parameter("tiles", TILES, (), is_keyword=True),
        Parameter("once", FLAG, False, is_keyword=True),
        Parameter("level", WHOLE, 1, is_keyword=True),
    ),
    "skip_past": _primitive(
        _skip_past, _VAR, Parameter("axes", AXIS_LIST), Parameter("end", WHOLE)
    ),
    "skip_outside": _primitive(
        _skip_outside,
        _VAR,
        Parameter("tensor", TENSOR),
        Parameter("dim", WHOLE),
        Parameter("begin", WHOLE),
        Parameter("end", WHOLE),
    ),
    "peel": _primitive(
        _peel, Parameter("axis", AXIS), Parameter("begin", WHOLE), Parameter("end", SIZE)
    ),
    "round_up": _primitive(_round_up, Parameter("axis", AXIS)),
    "trim": _primitive(
        _trim,
        Parameter("axis", AXIS),
        Parameter("along", AXIS),
        Parameter("ahead", WHOLE),
        Parameter("multiple", WHOLE, 1),
        Parameter("scale", WHOLE, 1),
    ),
    "compute_at": _primitive(_compute_at, Parameter("place", PLACE)),
    "store_at": _primitive(_store_at, Parameter("place", PLACE)),
    "compute_inline": _primitive(_compute_inline),
    "compute_root": _primitive(_compute_root),
    "storage_align": _primitive(
        _storage_align,
        Parameter("axis", AXIS),
        Parameter("factor", WHOLE),
        Parameter("offset", WHOLE, 0),
    ),
    "set_scope": _primitive(_set_scope, Parameter("scope", WORD)),
    "cache_write": Primitive(
        _cache_write,
        (Parameter("tensor", OUTPUT), Parameter("scope", WORD)),
        of_schedule=True,
    ),
    "cache_read": Primitive(
        _cache_read,
        (Parameter("tensor", OUTPUT), Parameter("scope", WORD), Parameter("readers", STAGES)),
        of_schedule=True,
    ),
    "rfactor": Primitive(
        _rfactor,
        (Parameter("tensor", OUTPUT), Parameter("axis", AXIS), Parameter("factor_axis", WHOLE, 0)),
        of_schedule=True,
    ),
}


def is_same(a: object, b: object) -> bool:
    """True for equal arguments of one type: True is not 1."""
    return type(a) is type(b) and a == b
