# SPDX-License-Identifier: Apache-2.0
"""Primitives that make a stage: copies of tensors in other memory, and reductions in two steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.expr import nodes as ex
from treadle.expr.conditions import all_of
from treadle.expr.nodes import Const, Expr, int_value
from treadle.expr.traversal import rewrite, substitute
from treadle.te.loops import Scope, Split, root_values
from treadle.te.operations import ComputeOp, IterVar, Reduce, Tensor
from treadle.te.stage import Stage


def cache_write(stage: Stage, tensor: Tensor, scope: Scope) -> Tensor:
    """Compute the tensors of a stage into a new one in memory `scope`, of which it is a copy."""
    op = stage.op
    if not isinstance(op, ComputeOp):
        raise stage.error("cache_write: only a compute can be written through a cache")
    if stage.relations:
        raise stage.error("cache_write must come before the loops of the stage are changed")
    fresh = [IterVar(f"{a.name}.c", extent=a.extent) for a in op.axis]
    mapping: dict[Expr, Expr] = dict(zip(op.axis, fresh, strict=True))
    body = tuple(_substitute(b, mapping) for b in op.body)
    cached = ComputeOp(f"{op.name}.{scope}", tuple(fresh), body, op.tag, op.attrs)
    copies = tuple(t[tuple(op.axis)] for t in cached.outputs)
    stage.become(ComputeOp(op.name, op.axis, copies, op.tag, op.attrs))
    stage.schedule.replaced(stage, op)
    stage.schedule.add_before(stage, cached).scope = scope
    return cached.output(tensor.value_index)


def cache_read(stage: Stage, tensor: Tensor, scope: Scope, readers: Sequence[Stage]) -> Tensor:
    """Let some stages read a copy of a stage's tensor in memory `scope`."""
    axes = tuple(IterVar(f"ax{i}", extent=d) for i, d in enumerate(tensor.shape))
    body = (stage.op.output(tensor.value_index)[axes],)
    copy = ComputeOp(f"{tensor.name}.{scope}", axes, body)
    redirected = [_redirected(r, stage, tensor.value_index, copy.output(0)) for r in readers]
    for reader, (old, new) in zip(readers, redirected, strict=True):
        reader.op = new
        reader.schedule.replaced(reader, old)
    stage.schedule.add_after(stage, copy).scope = scope
    return copy.output(0)


def _redirected(
    reader: Stage, source: Stage, index: int, to: Tensor
) -> tuple[ComputeOp, ComputeOp]:
    """Return the operation of a stage, and the one that reads `to` instead."""
    op = reader.op
    if not isinstance(op, ComputeOp):
        raise reader.error("cache_read: only a compute can read a copy")

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, ex.Load) or not isinstance(e.source, Tensor):
            return None
        is_source = reader.schedule[e.source] is source and e.source.value_index == index
        return ex.load(to, e.indices) if is_source else None

    body = tuple(rewrite(b, rule) for b in op.body)
    if all(a is b for a, b in zip(body, op.body, strict=True)):
        raise reader.error(f"cache_read: it does not read {source.name}")
    return op, ComputeOp(op.name, op.axis, body, op.tag, op.attrs)


def rfactor(stage: Stage, tensor: Tensor, axis: IterVar, factor_axis: int) -> Tensor:
    """Make partial results along a reduction loop, over which the stage then reduces."""
    op = stage.op
    if not isinstance(op, ComputeOp) or not isinstance(op.body[0], Reduce):
        raise stage.error("rfactor: not a reduction")
    if axis.kind != "reduce":
        raise stage.error(f"rfactor: {axis.name} is not a reduction loop")
    if any(r.parent.kind != "reduce" for r in stage.relations if isinstance(r, Split)):
        raise stage.error("rfactor must come before the data axes are split")
    if not 0 <= factor_axis <= len(op.axis):
        raise stage.error(
            f"rfactor: factor_axis is {factor_axis}",
            f"the partial results have {len(op.axis) + 1} axes: it is one of 0 to {len(op.axis)}",
        )
    partial = _partial_op(stage, op, axis, factor_axis)
    final_axis = IterVar(axis.name, extent=stage.extents()[axis], kind="reduce")
    stage.become(_final_op(op, partial, final_axis, factor_axis))
    stage.schedule.replaced(stage, op)
    stage.schedule.add_before(stage, partial)
    return partial.output(tensor.value_index)


def _substitute(body: Expr, mapping: Mapping[Expr, Expr]) -> Expr:
    if not isinstance(body, Reduce):
        return substitute(body, mapping)
    return body.with_children(tuple(substitute(c, mapping) for c in body.children))


def _partial_op(stage: Stage, op: ComputeOp, axis: IterVar, factor_axis: int) -> ComputeOp:
    extents = stage.extents()
    factored = IterVar(axis.name, extent=extents[axis])
    rest = [a for a in stage.leaf_iter_vars if a.kind == "reduce" and a is not axis]
    fresh = {a: IterVar(a.name, extent=extents[a], kind="reduce") for a in rest}
    leaves: dict[IterVar, Expr] = {a: fresh[a] for a in rest}
    leaves[axis] = factored
    values, guards = root_values(stage, leaves, extents)
    data = [IterVar(a.name, extent=a.extent) for a in op.axis]
    mapping: dict[Expr, Expr] = dict(zip(op.axis, data, strict=True))
    for root in op.reduce_axis:
        mapping[root] = values[root] if root not in leaves else leaves[root]
        if int_value(root.start) != 0:
            mapping[root] = mapping[root] + root.start
    bodies: list[Expr] = []
    for b in op.body:
        assert isinstance(b, Reduce)
        sources = tuple(substitute(s, mapping) for s in b.sources)
        condition = all_of([*guards, substitute(b.condition, mapping)])
        if not guards:
            condition = substitute(b.condition, mapping)
        if fresh:
            axes = tuple(fresh.values())
            bodies.append(Reduce(b.combiner, sources, axes, condition, b.index, b.dtype))
        else:  # nothing is left to combine: the one value, or the identity
            value, nothing = sources[b.index], b.combiner.identity[b.index]
            bodies.append(ex.select(condition, value, nothing, lazy=True))
    index = (*data[:factor_axis], factored, *data[factor_axis:])
    return ComputeOp(f"{op.name}.rf", index, tuple(bodies), op.tag)


def _final_op(op: ComputeOp, partial: ComputeOp, axis: IterVar, factor_axis: int) -> ComputeOp:
    index = [*op.axis[:factor_axis], axis, *op.axis[factor_axis:]]
    sources = tuple(t[tuple(index)] for t in partial.outputs)
    true = Const.of(True, "bool")
    first = op.body[0]
    assert isinstance(first, Reduce)
    bodies = tuple(
        Reduce(first.combiner, sources, (axis,), true, i, s.dtype) for i, s in enumerate(sources)
    )
    return ComputeOp(op.name, op.axis, bodies, op.tag, op.attrs)
