# SPDX-License-Identifier: Apache-2.0
"""What an attention is made of, element by element: expressions that a hand-written nest fills in.

A schedule cannot say that results so far are scaled again when a larger score comes, so the nest
is written by hand; what is fused with the attention (moved operands, scaled queries, masks, a
transposed result) is taken from the stages of the group, inlined as far as that goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from treadle.expr import nodes as ex
from treadle.expr.nodes import Expr, Var, int_value
from treadle.expr.traversal import loads, rewrite, substitute, uses
from treadle.graph.operator import Group
from treadle.loop.bodies import inline_bodies
from treadle.loop.nodes import Buffer
from treadle.ops.schedules.attention_parts import (
    AttentionParts,
    inline_others,
    parts_of,
    result_axes,
)
from treadle.ops.schedules.stages import compute_of, known
from treadle.te.operations import IterVar, PlaceholderOp, Reduce, Tensor
from treadle.te.stage import Stage

_F32 = "float32"


@dataclass(frozen=True, slots=True, eq=False)
class Elements:
    """An attention by its elements, over variables that stand for where an element is.

    `query[row, step]` times `key[key, step]` is summed over `depth` steps into `dot`, of which
    `score` is made; both are None where scores are read as they are. `value[key, column]` is
    weighted by what becomes of the score; `made` is the result, at `place`, from the sum `total` of
    weighted values and the quotient `share` that the weights of a row are scaled by. `heads` count
    the rest of the result's axes; `columns` is the width of a row of it, `tensors` is what is read.
    """

    result: Stage
    heads: tuple[IterVar, ...]
    rows: Expr
    keys: Expr
    depth: int
    columns: int
    row: Var
    key: Var
    step: Var
    column: Var
    dot: Var
    total: Var
    share: Var
    query_element: Expr | None
    key_element: Expr | None
    score: Expr
    value: Expr
    made: Expr
    place: tuple[Expr, ...]
    tensors: tuple[Tensor, ...]


def elements_of(group: Group) -> Elements | None:
    """Return a group of attention by its elements; None where it has another form, or no float32.

    Inlines the stages of the group that can be.
    """
    parts = parts_of(group)
    inline_others(group, parts)
    if parts is None or parts.product.op.outputs[0].dtype != _F32:
        return None
    axes = result_axes(parts)
    if axes is None:
        return None
    for stage in (parts.keys, parts.queries, parts.values):
        if stage is not None and stage.attach.kind == "root" and not stage.is_output:
            stage.compute_inline()
    return _Reader(parts).read(axes.heads, axes.rows, axes.columns)


class _Reader:
    """Reads the bodies of the stages that matter."""

    def __init__(self, parts: AttentionParts) -> None:
        self.parts = parts
        self.bodies = inline_bodies(parts.result.schedule)
        self.row, self.key = Var("row"), Var("key")
        self.step, self.column = Var("step"), Var("column")
        self.dot, self.total = Var("dot", _F32), Var("total", _F32)
        self.share = Var("share", _F32)

    def read(self, heads: tuple[IterVar, ...], rows: IterVar, columns: IterVar) -> Elements | None:
        parts = self.parts
        product = compute_of(parts.product)
        share = parts.softmax[-1]
        made = self._body(parts.result)
        taken = self._load_of(made, parts.product)
        weighted = self._factors(parts.product)
        if taken is None or weighted is None or not known(columns):
            return None
        own: dict[Expr, Expr] = dict(zip(product.axis, taken.indices, strict=True))
        own[product.reduce_axis[0]] = self.key
        powers = self._load_of(weighted[0], self._powers())
        if powers is None:
            return None
        here: dict[Expr, Expr] = {rows: self.row, columns: self.column}
        at = [substitute(substitute(i, own), here) for i in powers.indices]
        scored = self._score(at)
        if scored is None:
            return None
        query_element, key_element, depth, score = scored
        made = self._replaced(self._replaced(made, parts.product, self.total), share, self.share)
        made, value = substitute(made, here), substitute(substitute(weighted[1], own), here)
        found = [e for e in (query_element, key_element, score, value, made) if e is not None]
        tensors = dict.fromkeys(
            n.source for e in found for n in loads(e) if isinstance(n.source, Tensor)
        )
        if not all(isinstance(parts.result.schedule[t].op, PlaceholderOp) for t in tensors):
            return None
        return Elements(
            result=parts.result, heads=heads, rows=rows.extent, keys=product.reduce_axis[0].extent,
            depth=depth, columns=known(columns), row=self.row, key=self.key, step=self.step,
            column=self.column, dot=self.dot, total=self.total, share=self.share,
            query_element=query_element, key_element=key_element, score=score, value=value,
            made=made, place=tuple(here.get(a, a) for a in compute_of(parts.result).axis),
            tensors=tuple(tensors),
        )  # fmt: skip

    def _body(self, stage: Stage) -> Expr:
        return self.bodies[id(stage)][0]

    def _powers(self) -> Stage:
        schedule = self.parts.result.schedule
        return schedule[compute_of(self.parts.product).input_tensors[0]]

    def _load_of(self, body: Expr, stage: Stage) -> ex.Load | None:
        """Return the one place at which a body reads a stage."""
        found = {
            n for n in loads(body) if isinstance(n.source, Tensor) and self._is_of(n.source, stage)
        }
        return found.pop() if len(found) == 1 else None

    def _is_of(self, tensor: Tensor, stage: Stage) -> bool:
        return stage.schedule[tensor] is stage

    def _factors(self, stage: Stage) -> tuple[Expr, Expr] | None:
        """Return the two factors of sums of products over one axis."""
        body = self._body(stage)
        if not isinstance(body, Reduce) or len(body.axes) != 1 or len(body.sources) != 1:
            return None
        product = body.sources[0]
        if int_value(body.condition) != 1 or not isinstance(product, ex.Binary):
            return None
        return (product.a, product.b) if product.op == "mul" else None

    def _replaced(self, body: Expr, stage: Stage, by: Expr) -> Expr:
        def rule(n: Expr) -> Expr | None:
            if not isinstance(n, ex.Load) or not isinstance(n.source, Tensor):
                return None
            return by if self._is_of(n.source, stage) else None

        return rewrite(body, rule)

    def _score(self, at: Sequence[Expr]) -> tuple[Expr | None, Expr | None, int, Expr] | None:
        """Return the elements of queries and keys, their steps, and the score at [..., key, row].

        None where one of them depends on what it should not.
        """
        parts, powers = self.parts, compute_of(self._powers())
        softmax = parts.softmax
        schedule = parts.result.schedule
        others = [t for t in powers.input_tensors if schedule[t] not in softmax]
        if len(others) != 1:
            return None
        if parts.scores is None:
            return None, None, 0, ex.cast(ex.load(others[0], at), _F32)
        score_axes = compute_of(parts.scores).axis
        there: dict[Expr, Expr] = dict(zip(score_axes, at, strict=True))
        body = self._body(parts.scores)
        if parts.sums is None:
            return None, None, 0, ex.cast(substitute(body, there), _F32)
        taken = self._load_of(body, parts.sums)
        factors = self._factors(parts.sums)
        if taken is None or factors is None or taken.indices[-2:] != score_axes[-2:]:
            return None
        sums = compute_of(parts.sums)
        (depth,) = sums.reduce_axis
        keys, queries = factors
        if uses(keys, sums.axis[-1]) or uses(queries, sums.axis[-2]) or not known(depth):
            return None
        read = [substitute(i, there) for i in taken.indices]
        inside: dict[Expr, Expr] = {**dict(zip(sums.axis, read, strict=True)), depth: self.step}
        score = substitute(self._replaced(body, parts.sums, self.dot), there)
        return (
            substitute(queries, inside),
            substitute(keys, inside),
            known(depth),
            ex.cast(score, _F32),
        )


def in_buffers(e: Expr, buffers: Mapping[Tensor, Buffer]) -> Expr:
    """Return an expression that reads buffers in place of tensors."""

    def rule(n: Expr) -> Expr | None:
        if isinstance(n, ex.Load) and isinstance(n.source, Tensor):
            return ex.load(buffers[n.source], n.indices)
        return None

    return rewrite(e, rule)
