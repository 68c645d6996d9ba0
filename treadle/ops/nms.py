# SPDX-License-Identifier: Apache-2.0
"""Non-maximum suppression: of boxes that overlap, the one with the best score stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Const, Expr, ExprLike, int_value, load, maximum, minimum
from treadle.graph.operator import Attrs, Example, Operator, register
from treadle.graph.size_rules import SizeRule, equal
from treadle.graph.types import Dim, TensorType, TupleType, Type, same_dim, tensor_type
from treadle.loop.build import ZERO, assign, counter, declared, loop, put, value_of
from treadle.loop.nodes import Buffer, If, Stmt, seq
from treadle.ops.merge_sort import MergeSort
from treadle.ops.numeric import dims_of
from treadle.ops.select import SCALAR, product
from treadle.te.operations import Tensor

F32 = "float32"


@dataclass(frozen=True, slots=True)
class NonMaxSuppressionAttrs(Attrs):
    """How boxes are written, and how many of a class there is room for.

    A box is two opposite corners (y, x, y, x), or with `centered` (x, y, width, height). With
    `filtered` only boxes with a score above the lowest one take part.
    """

    room: Dim
    centered: bool = False
    filtered: bool = True


def _infer(
    a: NonMaxSuppressionAttrs, boxes: Type, scores: Type, limit: Type, overlap: Type, lowest: Type
) -> Type:
    places, values = tensor_type(boxes), tensor_type(scores)
    fits = (
        (places.dtype, values.dtype) == (F32, F32)
        and (places.ndim, values.ndim) == (3, 3)
        and same_dim(places.shape[2], 4)
    )
    if not fits:
        raise TypeMismatch(
            f"boxes are float32[batches, boxes, 4] and scores float32[batches, classes, boxes], "
            f"not {places} and {values}"
        )
    if (limit, overlap, lowest) != (SCALAR, TensorType((), F32), TensorType((), F32)):
        raise TypeMismatch(
            f"a limit int64[] and two thresholds float32[] are expected, "
            f"not {limit}, {overlap}, {lowest}"
        )
    rows = product((*values.shape[:2], a.room))
    return TupleType((TensorType((rows, 3), dt.INDEX), SCALAR))


def _rules(
    a: NonMaxSuppressionAttrs, result: Type, boxes: Type, scores: Type, *_: Type
) -> Iterator[SizeRule]:
    places, values = tensor_type(boxes).shape, tensor_type(scores).shape
    return equal([(places[0], values[0]), (places[1], values[2])])


@dataclass(frozen=True, slots=True)
class _Boxes:
    """The boxes of one batch entry."""

    boxes: Buffer
    batch: Expr
    centered: bool

    def corners(self, box: Expr) -> tuple[Expr, Expr, Expr, Expr]:
        """Return the low and the high end along two axes: low, low, high, high."""
        a, b, c, d = (load(self.boxes, (self.batch, box, k)) for k in range(4))
        if self.centered:
            half = Const.of(0.5, F32)
            return a - c * half, b - d * half, a + c * half, b + d * half
        return minimum(a, c), minimum(b, d), maximum(a, c), maximum(b, d)

    def overlaps(self, first: Expr, second: Expr, most: Expr) -> Expr:
        """Return whether the common area of two boxes is more than `most` of what they cover."""
        zero = Const.of(0.0, F32)
        p, q = self.corners(first), self.corners(second)
        height = maximum(minimum(p[2], q[2]) - maximum(p[0], q[0]), zero)
        width = maximum(minimum(p[3], q[3]) - maximum(p[1], q[1]), zero)
        common = height * width
        sizes = [(c[2] - c[0]) * (c[3] - c[1]) for c in (p, q)]
        union = sizes[0] + sizes[1] - common
        is_real = (common > zero) & (sizes[0] > zero) & (sizes[1] > zero) & (union > zero)
        return is_real & (common / union > most)


def _compute(
    a: NonMaxSuppressionAttrs,
    boxes: Tensor,
    scores: Tensor,
    limit: Tensor,
    overlap: Tensor,
    lowest: Tensor,
) -> list[Tensor]:
    batches, classes, count = dims_of(scores)

    def build_kept(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        def row(batch: Expr, class_: Expr) -> Stmt:
            return _Class(a, ins, outs, batch, class_, count).build()

        return loop(
            batches,
            lambda b: loop(classes, lambda c: row(b, c), "class", "parallel"),
            "batch",
        )

    shapes: list[tuple[Dim, ...]] = [
        (batches, classes, 2, count),
        (batches, classes, a.room),
        (batches, classes),
    ]
    inputs = [boxes, scores, limit, overlap, lowest]
    made = te.extern(shapes, inputs, build_kept, "keep_best", (dt.INDEX,) * 3)
    assert isinstance(made, tuple)  # a list of shapes gives a tuple
    _, kept, counts = made
    rows = product((batches, classes, a.room))

    def build_rows(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        return _listed(ins, outs, (batches, classes), rows)

    listed = te.extern([(rows, 3), ()], [kept, counts], build_rows, "list_kept", (dt.INDEX,) * 2)
    assert isinstance(listed, tuple)
    return list(listed)


class _Class:
    """The loop nest of one class: take part, sort, keep what overlaps with nothing kept."""

    def __init__(
        self,
        a: NonMaxSuppressionAttrs,
        ins: Sequence[Buffer],
        outs: Sequence[Buffer],
        batch: Expr,
        class_: Expr,
        count: ExprLike,
    ) -> None:
        self.a = a
        boxes, self.scores, self.limit, self.overlap, self.lowest = ins
        self.order, self.kept, self.counts = outs
        self.at = (batch, class_)
        self.boxes = _Boxes(boxes, batch, a.centered)
        self.count = count

    def build(self) -> Stmt:
        """Return the statements in order."""
        candidates, found, clash, plane = map(counter, ("candidates", "found", "clash", "plane"))
        sort = MergeSort(self.order, value_of(candidates), self._compare, plane, self.at)
        return declared(
            [candidates, found, clash, plane],
            seq(
                assign(candidates, 0),
                loop(self.count, lambda j: self._take_part(j, candidates), "j"),
                sort.build(),
                assign(found, 0),
                loop(
                    value_of(candidates), lambda t: self._offer(sort.sorted(t), found, clash), "t"
                ),
                put(self.counts, self.at, value_of(found)),
                loop(
                    self.a.room - value_of(found),
                    lambda k: put(self.kept, (*self.at, value_of(found) + k), ZERO),
                    "rest",
                ),
            ),
        )

    def _take_part(self, j: Expr, candidates: Buffer) -> Stmt:
        note = seq(
            put(self.order, (*self.at, 0, value_of(candidates)), j),
            assign(candidates, value_of(candidates) + 1),
        )
        if not self.a.filtered:
            return note
        return If(load(self.scores, (*self.at, j)) > load(self.lowest, ()), note)

    def _compare(self, a: Expr, b: Expr, result: Buffer) -> Stmt:
        first, second = (load(self.scores, (*self.at, p)) for p in (a, b))
        return If(second > first, assign(result, 1), assign(result, 0))

    def _offer(self, box: Expr, found: Buffer, clash: Buffer) -> Stmt:
        def hold_against(k: Expr) -> Stmt:
            other = load(self.kept, (*self.at, k))
            hits = self.boxes.overlaps(box, other, load(self.overlap, ()))
            return If(value_of(clash) == 0, If(hits, assign(clash, 1)))

        keep = seq(
            put(self.kept, (*self.at, value_of(found)), box),
            assign(found, value_of(found) + 1),
        )
        test = seq(
            assign(clash, 0),
            loop(value_of(found), hold_against, "k"),
            If(value_of(clash) == 0, keep),
        )
        room = minimum(load(self.limit, ()), self.a.room)
        return If(value_of(found) < room, test)


def _listed(
    ins: Sequence[Buffer], outs: Sequence[Buffer], extents: Sequence[ExprLike], rows: ExprLike
) -> Stmt:
    """Return what lists (batch, class, box) of everything kept, without gaps."""
    (kept, counts), (out, total) = ins, outs
    found = counter("found")

    def line(values: Sequence[ExprLike]) -> Stmt:
        return seq(*(put(out, (value_of(found), k), v) for k, v in enumerate(values)))

    def one(b: Expr, c: Expr, k: Expr) -> Stmt:
        return seq(line((b, c, load(kept, (b, c, k)))), assign(found, value_of(found) + 1))

    def class_(b: Expr, c: Expr) -> Stmt:
        return loop(load(counts, (b, c)), lambda k: one(b, c, k), "k")

    def rest(j: Expr) -> Stmt:
        return seq(*(put(out, (value_of(found) + j, k), ZERO) for k in range(3)))

    return declared(
        [found],
        seq(
            assign(found, 0),
            loop(extents[0], lambda b: loop(extents[1], lambda c: class_(b, c), "class"), "batch"),
            put(total, (), value_of(found)),
            loop(rows - value_of(found), rest, "rest"),
        ),
    )


def _reference(
    a: NonMaxSuppressionAttrs,
    boxes: np.ndarray,
    scores: np.ndarray,
    limit: np.ndarray,
    overlap: np.ndarray,
    lowest: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    room = int_value(a.room) or 0
    most = min(int(limit), room)
    lines = [
        (b, c, k)
        for b in range(scores.shape[0])
        for c in range(scores.shape[1])
        for k in _kept(a, boxes[b], scores[b, c], most, overlap, lowest)
    ]
    result = np.zeros((scores.shape[0] * scores.shape[1] * room, 3), np.int64)
    result[: len(lines)] = np.array(lines, np.int64).reshape(-1, 3)
    return result, np.array(len(lines), np.int64)


def _kept(
    a: NonMaxSuppressionAttrs,
    boxes: np.ndarray,
    scores: np.ndarray,
    limit: int,
    overlap: np.ndarray,
    lowest: np.ndarray,
) -> list[int]:
    order = [k for k in np.argsort(-scores, kind="stable") if scores[k] > lowest or not a.filtered]
    p, q, r, s = boxes.T
    if a.centered:
        half = np.float32(0.5)
        low, high = np.stack([p - r * half, q - s * half]), np.stack([p + r * half, q + s * half])
    else:
        low = np.stack([np.minimum(p, r), np.minimum(q, s)])
        high = np.stack([np.maximum(p, r), np.maximum(q, s)])
    area = np.prod(high - low, axis=0)
    kept: list[int] = []
    for k in order:
        if len(kept) >= limit:
            break
        sides = np.minimum(high[:, kept], high[:, [k]]) - np.maximum(low[:, kept], low[:, [k]])
        common = np.prod(np.maximum(sides, 0), axis=0)
        union = area[kept] + area[k] - common
        is_real = (common > 0) & (area[kept] > 0) & (area[k] > 0) & (union > 0)
        with np.errstate(all="ignore"):
            if not np.any(is_real & (common / union > overlap)):
                kept.append(int(k))
    return kept


def _example(
    shape: tuple[int, int, int], limit: int, overlap: float, lowest: float, **attrs: object
) -> Example:
    batches, _, count = shape
    scalars: dict[int, np.ndarray] = {
        2: np.array(limit),
        3: np.array(overlap, F32),
        4: np.array(lowest, F32),
    }
    return Example(
        ((batches, count, 4), shape, (), (), ()),
        {"room": min(limit, count), **attrs},
        (F32, F32, dt.INDEX, F32, F32),
        0.0,
        1.0,
        scalars,
    )


non_max_suppression: Operator[NonMaxSuppressionAttrs] = register(
    Operator(
        name="non_max_suppression",
        infer=_infer,
        reference=_reference,
        compute=_compute,
        rules=_rules,
        attrs_type=NonMaxSuppressionAttrs,
        examples=(
            _example((1, 1, 12), 5, 0.3, 0.2),
            _example((2, 3, 30), 30, 0.1, 0.5),
            _example((1, 2, 20), 20, 0.4, 0.0, centered=True),
            _example((1, 2, 9), 9, 0.2, 0.0, filtered=False),
            _example((2, 1, 6), 0, 0.5, 0.0),
            _example((1, 1, 0), 3, 0.5, 0.0),
        ),
    )
)
"""(rows of batch, class and box, how many); equal scores by position."""
