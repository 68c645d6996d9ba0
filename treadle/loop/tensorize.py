# SPDX-License-Identifier: Apache-2.0
"""Loops that an intrinsic does: which they are, and whether their body is what it means.

The body of the loops is compared with the intrinsic's meaning node by node, one product (or what
else is summed) at a time; where the meaning reads an operand, whatever stands in the body is the
operand's element, if it has its type. Factors may stand in either order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import prod

from treadle.errors import ScheduleError
from treadle.expr.nodes import Binary, Call, Cast, Const, Expr, Load, Select, Var, int_value
from treadle.expr.traversal import walk
from treadle.te.intrinsics import Intrinsic, find_intrinsic
from treadle.te.loops import Split
from treadle.te.operations import IterVar, Reduce
from treadle.te.stage import Stage

_COMMUTATIVE = frozenset({"add", "mul", "min", "max", "bitand", "bitor", "bitxor", "and", "or"})

Elements = dict[tuple[int, int], Expr]
"""What the elements of operands are, by the numbers of operand and element."""


def intrinsic_at(stage: Stage, k: int) -> Intrinsic | None:
    """Return the intrinsic that does what the loops from leaf `k` of a stage on do, if one does.

    A tensorized data axis is the lanes: the step is the reduction loops inside it.
    """
    leaves = stage.leaf_iter_vars
    if leaves[k].kind != "reduce":
        return None
    before = leaves[k - 1 : k] if k and leaves[k - 1].kind == "data" else []
    for leaf in (leaves[k], *before):
        note = stage.notes.get(leaf)
        if note is not None and note.intrinsic:
            return find_intrinsic(note.intrinsic)
    return None


def check_tensorized(stage: Stage) -> None:
    """Raise ScheduleError unless the loops inside a tensorized one are innermost reductions."""
    for k, leaf in enumerate(stage.leaf_iter_vars):
        note = stage.notes.get(leaf)
        if note is None or not note.intrinsic:
            continue
        inside = stage.leaf_iter_vars[k + (leaf.kind != "reduce") :]
        if not inside or any(a.kind != "reduce" for a in inside):
            names = ", ".join(a.name for a in inside) or "no loop"
            raise tensorize_error(
                stage,
                note.intrinsic,
                f"what {leaf.name} holds is {names}: an intrinsic does the innermost reduction "
                "loops of a stage",
                "reorder the loops: the reduction loops of one step last",
            )


def tensorize_error(stage: Stage, name: str, problem: str, hint: str) -> ScheduleError:
    """Return the error of loops that an intrinsic cannot do."""
    return ScheduleError(f"tensorize by {name}: {problem}", at=f"stage {stage.name}", hint=hint)


def step_points(
    stage: Stage,
    loops: Sequence[IterVar],
    intrinsic: Intrinsic,
    extents: Mapping[IterVar, Expr],
    settled: Iterable[int],
) -> list[dict[IterVar, Expr]] | None:
    """Return the values of the loops in each iteration of a step of the intrinsic.

    None where there are fewer than it takes, at the end of an uneven split. `settled` are the ids
    of uneven splits whose case is decided.

    Raises: ScheduleError where the loops have another number of iterations.
    """
    known = [int_value(extents[a]) for a in loops]
    names = ", ".join(a.name for a in loops)
    wanted, done = len(intrinsic.sources()), frozenset(settled)
    if any(n is None for n in known):
        raise tensorize_error(
            stage,
            intrinsic.name,
            f"{names} have no constant extents",
            f"split the reduction by {wanted} and tensorize the inner part",
        )
    splits = [r for r in stage.relations if isinstance(r, Split) and r.inner in loops]
    if any(id(r) not in done and not r.is_even(extents[r.parent]) for r in splits):
        raise tensorize_error(
            stage, intrinsic.name, f"{names} run under a guard", "split with tail='cut'"
        )
    count = prod(n or 0 for n in known)
    if count < wanted and any(id(r) in done for r in splits):
        return None
    if count != wanted:
        raise tensorize_error(
            stage,
            intrinsic.name,
            f"it takes {wanted} iterations at once, {names} have {count}",
            f"split the reduction by {wanted} and tensorize the inner part",
        )
    return _points(loops, [n or 0 for n in known])


def _points(loops: Sequence[IterVar], extents: Sequence[int]) -> list[dict[IterVar, Expr]]:
    points: list[dict[IterVar, Expr]] = [{}]
    for axis, n in zip(loops, extents, strict=True):
        points = [{**p, axis: Const.of(k)} for p in points for k in range(n)]
    return points


def matched_elements(stage: Stage, body: Expr, intrinsic: Intrinsic) -> list[Elements]:
    """Return for each iteration of a step what the intrinsic's elements are in terms of the body.

    Raises: ScheduleError where the body is not what the intrinsic means.
    """
    wanted = intrinsic.body
    if not isinstance(body, Reduce) or not isinstance(wanted, Reduce):
        raise _mismatch(stage, body, intrinsic)
    is_same = (
        len(body.sources) == 1
        and body.dtype == wanted.dtype
        and int_value(body.condition) is True
        and _combined(body) is _combined(wanted)
    )
    found = [_matched(p, body.sources[0], intrinsic) for p in intrinsic.sources()]
    if not is_same or any(f is None for f in found):
        raise _mismatch(stage, body, intrinsic)
    return [f for f in found if f is not None]


def _combined(body: Reduce) -> Expr:
    """Return how a reduction combines two values, the same node for the same way."""
    x, y = _values(body.dtype)
    return body.combiner.combine((x,), (y,))[0]


@cache
def _values(dtype: str) -> tuple[Var, Var]:
    return Var("x", dtype), Var("y", dtype)


def _mismatch(stage: Stage, body: Expr, intrinsic: Intrinsic) -> ScheduleError:
    operands = ", ".join(f"{o.name}: {o.dtype}[{o.count}]" for o in intrinsic.operands)
    types = {n.source.name: n.dtype for n in walk(body) if isinstance(n, Load)}
    where = ", ".join(f"{name}: {dtype}" for name, dtype in sorted(types.items()))
    return tensorize_error(
        stage,
        intrinsic.name,
        f"expected {intrinsic.body} of {operands}; here stands {body} of {where or 'no tensor'}",
        "write the stage as the intrinsic means it, types and casts included",
    )


def _matched(pattern: Expr, e: Expr, intrinsic: Intrinsic) -> Elements | None:
    """Return what the pattern's reads of operands are in an expression; None: it is another."""
    numbers = {id(p.op): k for k, p in enumerate(intrinsic.placeholders)}
    for is_swapped in (False, True):
        found: Elements = {}
        if _unify(pattern, e, numbers, found, is_swapped=is_swapped):
            return found
    return None


def _unify(
    pattern: Expr, e: Expr, numbers: Mapping[int, int], found: Elements, *, is_swapped: bool
) -> bool:
    if pattern.dtype != e.dtype:
        return False
    if isinstance(pattern, Load):
        place = int_value(pattern.indices[0])
        number = numbers.get(id(getattr(pattern.source, "op", None)))
        return (
            place is not None and number is not None and found.setdefault((number, place), e) is e
        )
    if isinstance(pattern, Const) or not _is_same_head(pattern, e):
        return pattern is e
    children = e.children
    if is_swapped and isinstance(e, Binary) and e.op in _COMMUTATIVE:
        children = children[::-1]
    return all(
        _unify(p, c, numbers, found, is_swapped=is_swapped)
        for p, c in zip(pattern.children, children, strict=True)
    )


def _is_same_head(pattern: Expr, e: Expr) -> bool:
    """True when two nodes do the same to their operands."""
    if type(pattern) is not type(e) or len(pattern.children) != len(e.children):
        return False
    if isinstance(pattern, Binary) and isinstance(e, Binary):
        return pattern.op == e.op
    if isinstance(pattern, Call) and isinstance(e, Call):
        return pattern.name == e.name
    return isinstance(pattern, (Cast, Select))
