# SPDX-License-Identifier: Apache-2.0
"""The innermost statements of a nest: elements as reads of buffers, combined and stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from treadle.errors import InternalError, ScheduleError, TreadleError
from treadle.expr import nodes as ex
from treadle.expr.affine import decompose
from treadle.expr.nodes import Const, Expr, Var, int_value
from treadle.expr.simplify import Simplifier
from treadle.expr.traversal import loads, rewrite, substitute
from treadle.expr.vocabulary import HAS_LOAD
from treadle.loop.attach import attaching_step
from treadle.loop.bodies import rewritten
from treadle.loop.domains import ZERO
from treadle.loop.memory import Memory
from treadle.loop.nodes import Allocate, Buffer, Stmt, Store, seq
from treadle.te.operations import ExternOp, IterVar, Reduce, Tensor
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage


def store_all(
    targets: Sequence[Buffer], indices: tuple[Expr, ...], values: Sequence[Expr], memory: Memory
) -> Stmt:
    """Return the stores of several values, each of which may be made of all that was there."""
    if len(targets) == 1:
        return Store(targets[0], indices, values[0])
    held = [
        Buffer(memory.unique(f"{t.name}.next"), t.dtype, (Const.of(1),), "local") for t in targets
    ]
    first = [Store(h, (ZERO,), v) for h, v in zip(held, values, strict=True)]
    then = [Store(t, indices, ex.load(h, (ZERO,))) for t, h in zip(targets, held, strict=True)]
    stmt = seq(*first, *then)
    for h in held:
        stmt = Allocate(h, stmt)
    return stmt


def to_buffers(e: Expr, memory: Memory) -> Expr:
    """Return an element with reads of buffers in the place of those of tensors."""

    def rule(n: Expr) -> Expr | None:
        if not isinstance(n, ex.Load) or not isinstance(n.source, Tensor):
            return None
        stage = memory.schedule[n.source]
        buffer = memory.buffers.get((id(stage), n.source.value_index))
        if buffer is None:
            raise _read_elsewhere(stage)
        offsets = memory.offsets.get(id(stage))
        if offsets is None:
            return ex.load(buffer, n.indices)
        return ex.load(buffer, [i - o for i, o in zip(n.indices, offsets, strict=True)])

    return rewrite(e, rule, traits=HAS_LOAD)


def _read_elsewhere(stage: Stage) -> TreadleError:
    """Return the error for a read of a stage where it is not computed."""
    parent, axis = stage.attach.stage, stage.attach.axis
    if parent is None or axis is None or not parent.peeled:
        return InternalError(f"stage {stage.name} is read before it is computed")
    return ScheduleError(
        f"{stage.name} is computed inside loop {axis.name} of {parent.name}, but the border of "
        f"{parent.name}, which is peeled, reads it outside of that loop",
        at=attaching_step(stage),
        hint="compute it at root, or peel only what does not read it",
    )


def combined(body: Reduce, current: Sequence[Expr], sources: Sequence[Expr]) -> Sequence[Expr]:
    """Return the combined values; a combiner that contracts adds float products by fma."""
    source = sources[0]
    is_product = isinstance(source, ex.Binary) and source.op == "mul"
    if body.combiner.contracts and is_product and source.dtype in ("float32", "float64"):
        assert isinstance(source, ex.Binary)
        return [ex.call("fma", source.a, source.b, current[0])]
    return body.combiner.combine(current, sources)


def within_ends(
    bodies: tuple[Expr, ...],
    past_end: Iterable[IterVar],
    at: Mapping[IterVar, Expr],
    schedule: Schedule,
    known: Simplifier,
) -> tuple[Expr, ...]:
    """Return what a stage computes; where it is rounded up, it reads no memory past an end."""
    if not past_end:
        return bodies
    last = {a: _inside(at[a], a.extent, known) for a in past_end if a in at}
    mapping: dict[Expr, Expr] = {a: known.run(e) for a, e in last.items()}

    def is_clamped(n: Expr) -> bool:
        if not isinstance(n, ex.Load) or not isinstance(n.source, Tensor):
            return False
        return schedule[n.source].attach.kind != "at"

    def rule(n: Expr) -> Expr | None:
        if isinstance(n, ex.Load) and is_clamped(n):
            return ex.load(n.source, [substitute(i, mapping) for i in n.indices])
        if isinstance(n, ex.Select) and n.lazy and any(map(is_clamped, loads(n))):
            cond = substitute(n.cond, mapping)  # of the element that is read, not of one past it
            return ex.select(cond, rewritten(n.then, rule), rewritten(n.other, rule), lazy=True)
        return None

    return tuple(rewritten(b, rule) for b in bodies)


def _inside(at: Expr, extent: Expr, known: Simplifier) -> Expr:
    """Return a position in [0, extent): `at` where that is one, any other where it is past the end.

    Where a loop runs over whole parts of the axis, its positions stay side by side:
    min(p, 9) * 4 + i in place of min(p * 4 + i, 39) for i in range(4).
    """
    whole, place = int_value(extent), decompose(at)
    for var, factor in place.terms.items():
        high = known.bounds.of(var).hi if isinstance(var, Var) and factor == 1 else None
        rest = place.without(var)[1]
        if whole is None or not high or (high + 1) & high or known.bounds.of(var).lo != 0:
            continue
        size = high + 1
        if all(n % size == 0 for n in (*rest.terms.values(), rest.const, whole)):
            return ex.minimum(known.run(rest.to_expr() // size), whole // size - 1) * size + var
    return ex.minimum(at, extent - 1)


def extern_statement(stage: Stage, op: ExternOp, memory: Memory) -> Stmt:
    """Return the loop nest of a stage written by hand."""
    inputs = [memory.buffers[id(memory.schedule[t]), t.value_index] for t in op.inputs]
    outputs = [memory.buffers[id(stage), k] for k in range(len(op.outputs))]
    made = op.build(inputs, outputs)
    if not isinstance(made, Stmt):
        raise ScheduleError(
            f"the function of {stage.name} returns {made!r}, not a statement",
            at=f"stage {stage.name}",
            hint="return a For, Store, If, Allocate or Seq of treadle.loop.nodes",
        )
    return made
