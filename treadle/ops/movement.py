# SPDX-License-Identifier: Apache-2.0
"""Operators that put tensors together and take parts of them: concat, split, slice, pad, tile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Expr, int_value
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.size_rules import SizeRule, equal, filled
from treadle.graph.types import (
    Dim,
    TupleType,
    Type,
    as_dim,
    known_sizes,
    may_agree,
    tensor_type,
)
from treadle.ops.numeric import (
    check_axis,
    check_same_elements,
    dims_of,
)
from treadle.te.operations import Tensor

# concat and split


@dataclass(frozen=True, slots=True)
class AxisAttrs(Attrs):
    """The axis worked on."""

    axis: int = 0


def _infer_concat(a: AxisAttrs, *xs: Type) -> Type:
    if not xs:
        raise TypeMismatch("concat takes at least one input")
    types = [tensor_type(x) for x in xs]
    check_same_elements(*types)
    check_axis(a.axis, types[0].ndim)
    for t in types[1:]:
        fits = t.ndim == types[0].ndim and all(
            k == a.axis or may_agree(p, q)
            for k, (p, q) in enumerate(zip(types[0].shape, t.shape, strict=True))
        )
        if not fits:
            raise TypeMismatch(
                f"{types[0]} and {t} do not concatenate along axis {a.axis}",
                hint="all other extents must agree",
            )
    total: Dim = types[0].shape[a.axis]
    for t in types[1:]:
        total = as_dim(total + t.shape[a.axis])
    shape = list(types[0].shape)
    shape[a.axis] = total
    return types[0].with_shape(shape)


def _concat(a: AxisAttrs, *xs: Tensor) -> Tensor:
    parts = [x for x in xs if int_value(x.shape[a.axis]) != 0] or [xs[0]]
    starts = list(accumulate((dims_of(x)[a.axis] for x in parts), initial=0))
    shape = list(parts[0].shape)
    shape[a.axis] = nodes.convert(starts[-1])

    def read(i: tuple[Expr, ...], lo: int, hi: int) -> Expr:
        if hi - lo == 1:
            moved = i[a.axis] - starts[lo] if lo else i[a.axis]
            return parts[lo][(*i[: a.axis], moved, *i[a.axis + 1 :])]
        mid = (lo + hi) // 2
        return te.if_then_else(i[a.axis] < starts[mid], read(i, lo, mid), read(i, mid, hi))

    return te.compute_one(shape, lambda *i: read(i, 0, len(parts)), "concat")


def _concat_rules(a: AxisAttrs, result: Type, *parts: Type) -> Iterator[SizeRule]:
    first, *rest = (tensor_type(t).shape for t in parts)
    for shape in rest:
        pairs = enumerate(zip(first, shape, strict=True))
        yield from equal(pair for k, pair in pairs if k != a.axis)


concat: Operator[AxisAttrs] = register(
    Operator(
        name="concat",
        infer=_infer_concat,
        reference=lambda a, *xs: np.concatenate(xs, a.axis),
        compute=_concat,
        rules=_concat_rules,
        attrs_type=AxisAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((2, 3), (2, 5)), {"axis": 1}),
            Example(((2, 3), (1, 3), (4, 3)), {"axis": 0}),
            Example(((3,),), {"axis": 0}),
            Example(((0, 2), (3, 2), (0, 2)), {"axis": 0}),
            Example(((2, 0), (2, 0)), {"axis": 1}),
            Example(((2, 3, 1), (2, 1, 1), (2, 2, 1)), {"axis": 1}, ("int64",) * 3, -9, 9),
            Example(((2,),) * 9, {"axis": 0}, ("uint8",) * 9, 0, 99),
        ),
    )
)


@dataclass(frozen=True, slots=True)
class SplitAttrs(Attrs):
    """The extents of the parts along `axis`."""

    sections: tuple[int, ...]
    axis: int = 0


def _infer_split(a: SplitAttrs, x: Type) -> Type:
    source = tensor_type(x)
    dim = source.shape[check_axis(a.axis, source.ndim)]
    if not a.sections or any(s < 0 for s in a.sections):
        raise TypeMismatch(f"sections={a.sections} are not extents")
    if isinstance(dim, int) and sum(a.sections) != dim:
        raise TypeMismatch(
            f"sections={a.sections} add up to {sum(a.sections)}, axis {a.axis} of {source} is {dim}"
        )
    head, tail = source.shape[: a.axis], source.shape[a.axis + 1 :]
    return TupleType(tuple(source.with_shape((*head, s, *tail)) for s in a.sections))


def _split_rules(a: SplitAttrs, result: Type, x: Type) -> Iterator[SizeRule]:
    return equal([(tensor_type(x).shape[a.axis], sum(a.sections))])


def _split(a: SplitAttrs, x: Tensor) -> list[Tensor]:
    head, tail = x.shape[: a.axis], x.shape[a.axis + 1 :]

    def part(start: int, extent: int) -> Tensor:
        def read(*i: Expr) -> Expr:
            return x[(*i[: a.axis], i[a.axis] + start, *i[a.axis + 1 :])]

        return te.compute_one((*head, extent, *tail), read, "split")

    starts = accumulate(a.sections, initial=0)
    return [part(start, extent) for start, extent in zip(starts, a.sections, strict=False)]


split: Operator[SplitAttrs] = register(
    Operator(
        name="split",
        infer=_infer_split,
        reference=lambda a, x: tuple(np.split(x, list(accumulate(a.sections))[:-1], a.axis)),
        compute=_split,
        rules=_split_rules,
        attrs_type=SplitAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((6, 4),), {"sections": (2, 3, 1)}),
            Example(((2, 7),), {"sections": (3, 4), "axis": 1}, ("int32",), -9, 9),
            Example(((2, 3),), {"sections": (3,), "axis": 1}),
            Example(((4,),), {"sections": (0, 4)}),
        ),
    )
)


# slice


@dataclass(frozen=True, slots=True)
class SliceAttrs(Attrs):
    """Elements begin, begin + stride, ... before end, per axis; not counted from the end.

    Exact positions: 0 <= begin <= end <= extent, or for a negative stride
    extent > begin >= end >= -1 (an end of -1 takes element 0 too). Empty `strides` are all 1,
    empty `axes` are the first ones.
    """

    begin: tuple[int, ...]
    end: tuple[int, ...]
    strides: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()

    def ranges(self) -> dict[int, range]:
        """Return the positions taken by axis. Raises TypeMismatch if the lists do not fit."""
        strides = self.strides or (1,) * len(self.begin)
        axes = self.axes or tuple(range(len(self.begin)))
        if not len(self.begin) == len(self.end) == len(strides) == len(axes) == len(set(axes)):
            raise TypeMismatch(
                f"begin={self.begin}, end={self.end}, strides={strides}, axes={axes} do not "
                "give every axis one value"
            )
        if 0 in strides:
            raise TypeMismatch(f"a stride of 0 in strides={strides}")
        pairs = zip(axes, map(range, self.begin, self.end, strides), strict=True)
        return dict(pairs)


def _infer_slice(a: SliceAttrs, x: Type) -> Type:
    source = tensor_type(x)
    shape = list(source.shape)
    for axis, taken in a.ranges().items():
        (extent,) = known_sizes((shape[check_axis(axis, source.ndim)],))
        low, high = (0, extent) if taken.step > 0 else (-1, extent - 1)
        if not (low <= taken.start <= high and low <= taken.stop <= high) and len(taken):
            raise TypeMismatch(
                f"positions {taken.start} to {taken.stop} by {taken.step} are outside axis {axis} "
                f"of {source}"
            )
        shape[axis] = len(taken)
    return source.with_shape(shape)


def _slice(a: SliceAttrs, x: Tensor) -> Tensor:
    ranges = a.ranges()
    shape = [len(ranges[k]) if k in ranges else d for k, d in enumerate(x.shape)]

    def read(*i: Expr) -> Expr:
        at = list(i)
        for k, taken in ranges.items():
            at[k] = (i[k] if taken.step == 1 else i[k] * taken.step) + taken.start
        return x[tuple(at)]

    return te.compute_one(shape, read, "slice")


def _numpy_slice(a: SliceAttrs, x: np.ndarray) -> np.ndarray:
    for axis, taken in a.ranges().items():
        x = np.take(x, np.array(taken, np.int64), axis)
    return x


slice_: Operator[SliceAttrs] = register(
    Operator(
        name="slice",
        infer=_infer_slice,
        reference=_numpy_slice,
        compute=_slice,
        attrs_type=SliceAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((5, 6),), {"begin": (1, 2), "end": (4, 6)}),
            Example(((5, 6),), {"begin": (5,), "end": (-1,), "strides": (-1,), "axes": (1,)}),
            Example(((9,),), {"begin": (7,), "end": (0,), "strides": (-3,)}, ("int64",), -9, 9),
            Example(((3, 10),), {"begin": (1,), "end": (10,), "strides": (4,), "axes": (1,)}),
            Example(((4, 4),), {"begin": (2,), "end": (2,), "axes": (0,)}),
            Example(((),), {"begin": (), "end": ()}),
            Example(((2, 8),), {"begin": (0,), "end": (8,), "strides": (2,), "axes": (1,)}),
        ),
    )
)


# pad


@dataclass(frozen=True, slots=True)
class PadAttrs(Attrs):
    """Elements added before and after each axis; negative ones are cropped first.

    Mode "constant" adds `value`, "edge" repeats the border, "reflect" mirrors around it without
    repeating it, "wrap" goes on at the other side.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    mode: Literal["constant", "reflect", "edge", "wrap"] = "constant"
    value: float = 0.0

    def axes(self) -> list[int]:
        """Return the axes that change."""
        pairs = zip(self.before, self.after, strict=True)
        return [k for k, (b, a) in enumerate(pairs) if b or a]


def _infer_pad(a: PadAttrs, x: Type) -> Type:
    source = tensor_type(x)
    if not len(a.before) == len(a.after) == source.ndim:
        raise TypeMismatch(f"before={a.before}, after={a.after} do not match the axes of {source}")
    if a.mode not in ("constant", "reflect", "edge", "wrap"):
        raise TypeMismatch(f"{a.mode!r} is not a pad mode: constant, reflect, edge, wrap")
    if not dt.is_float(source.dtype) and not float(a.value).is_integer():
        raise TypeMismatch(f"the pad value {a.value} is not an element of {source.dtype}")
    shape = list(source.shape)
    for k in a.axes():
        kept = as_dim(shape[k] + min(a.before[k], 0) + min(a.after[k], 0))
        added = max(a.before[k], 0) + max(a.after[k], 0)
        if a.mode != "constant" and added and isinstance(kept, int) and kept == 0:
            raise TypeMismatch(f"axis {k} of {source} has no element to pad with")
        shape[k] = as_dim(kept + added)
    return source.with_shape(shape)


def _pad_rules(a: PadAttrs, result: Type, x: Type) -> Iterator[SizeRule]:
    """Yield that an axis has an element to pad with, after what negative pads remove."""
    if a.mode == "constant":
        return
    for k in a.axes():
        if max(a.before[k], a.after[k]) > 0:
            cropped = min(a.before[k], 0) + min(a.after[k], 0)
            for rule in filled(x, (k,), result):
                yield replace(rule, a=as_dim(rule.a + cropped))


def _pad_position(mode: str, j: Expr, extent: Dim, wide: bool) -> Expr:
    """Return the source position of `j` in (-inf, inf) of an axis padded by `mode`."""
    last = extent - 1
    if mode == "edge":
        return te.max(te.min(j, last), 0)
    if mode == "wrap":
        return te.floormod(j, extent)
    if int_value(last) == 0:
        return nodes.convert(0)
    period = last * 2 if isinstance(last, int) else te.max(last * 2, 1)  # 0 with one element
    reflected = te.floormod(j, period) if wide else te.max(j, -j)
    return te.min(reflected, last * 2 - reflected)


def _pad(a: PadAttrs, x: Tensor) -> Tensor:
    dims = dims_of(x)
    crop = [(-min(b, 0), -min(e, 0)) for b, e in zip(a.before, a.after, strict=True)]
    kept = [as_dim(d - b - e) for d, (b, e) in zip(dims, crop, strict=True)]
    front = [max(b, 0) for b in a.before]
    back = [max(e, 0) for e in a.after]
    shape = [as_dim(d + b + e) for d, b, e in zip(kept, front, back, strict=True)]

    def read(*i: Expr) -> Expr:
        at, inside = list(i), []
        for k in a.axes():
            j = i[k] - front[k] if front[k] else i[k]
            if a.mode != "constant" and (front[k] or back[k]):
                n = kept[k]
                wide = not isinstance(n, int) or front[k] >= n or back[k] >= n
                j = _pad_position(a.mode, j, n, wide)
            inside += [j >= 0] if front[k] else []
            inside += [j < kept[k]] if back[k] else []
            at[k] = j + crop[k][0] if crop[k][0] else j
        value = x[tuple(at)]
        if a.mode != "constant" or not inside:
            return value
        return te.if_then_else(te.all(*inside), value, te.const(a.value, x.dtype))

    return te.compute_one(shape, read, "pad")


def _numpy_pad(a: PadAttrs, x: np.ndarray) -> np.ndarray:
    pairs = list(zip(a.before, a.after, strict=True))
    if not pairs:
        return x
    kept = x[
        tuple(slice(-min(b, 0), n + min(e, 0)) for n, (b, e) in zip(x.shape, pairs, strict=True))
    ]
    widths = [(max(b, 0), max(e, 0)) for b, e in pairs]
    if a.mode == "constant":
        return np.pad(kept, widths, constant_values=np.array(a.value).astype(x.dtype))
    return np.pad(kept, widths, mode=a.mode)


pad: Operator[PadAttrs] = register(
    Operator(
        name="pad",
        infer=_infer_pad,
        reference=_numpy_pad,
        compute=_pad,
        rules=_pad_rules,
        attrs_type=PadAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((1, 2, 5, 5),), {"before": (0, 0, 1, 2), "after": (0, 0, 3, 0)}),
            Example(((4, 3),), {"before": (1, 0), "after": (0, 2), "value": -np.inf}),
            Example(((4, 5),), {"before": (-1, 2), "after": (1, -2), "value": 1.5}),
            Example(((4, 5),), {"before": (2, 3), "after": (3, 4), "mode": "reflect"}),
            Example(((4, 2),), {"before": (7, 0), "after": (9, 5), "mode": "reflect"}),
            Example(((1, 3),), {"before": (2, 0), "after": (1, 0), "mode": "reflect"}),
            Example(((4, 5),), {"before": (2, 0), "after": (0, 6), "mode": "edge"}),
            Example(((4, 5),), {"before": (2, 0), "after": (0, 12), "mode": "wrap"}),
            Example(((6, 5),), {"before": (-2, 1), "after": (3, -1), "mode": "reflect"}),
            Example(((3,),), {"before": (2,), "after": (1,), "value": 7.0}, ("int32",), -9, 9),
            Example(((3,),), {"before": (2,), "after": (1,), "value": 1.0}, ("bool",)),
            Example(((0, 2),), {"before": (1, 1), "after": (1, 0)}),
            Example(((),), {"before": (), "after": ()}),
        ),
    )
)


# tile and trilu


@dataclass(frozen=True, slots=True)
class TileAttrs(Attrs):
    """How often each axis is repeated."""

    repeats: tuple[int, ...] = ()


def _infer_tile(a: TileAttrs, x: Type) -> Type:
    source = tensor_type(x)
    if len(a.repeats) != source.ndim or any(r < 0 for r in a.repeats):
        raise TypeMismatch(f"repeats={a.repeats} do not fit the axes of {source}")
    return source.with_shape(d * r for d, r in zip(source.shape, a.repeats, strict=True))


def _tile(a: TileAttrs, x: Tensor) -> Tensor:
    dims = dims_of(x)

    def read(*i: Expr) -> Expr:
        return x[
            tuple(
                j if r == 1 else 0 if int_value(d) == 1 else j % d
                for j, d, r in zip(i, dims, a.repeats, strict=True)
            )
        ]

    shape = [as_dim(d * r) for d, r in zip(dims, a.repeats, strict=True)]
    return te.compute_one(shape, read, "tile")


tile: Operator[TileAttrs] = register(
    Operator(
        name="tile",
        infer=_infer_tile,
        reference=lambda a, x: np.tile(x, a.repeats),
        compute=_tile,
        attrs_type=TileAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((2, 3),), {"repeats": (2, 3)}),
            Example(((1, 3),), {"repeats": (4, 1)}),
            Example(((),), {"repeats": ()}),
            Example(((3,),), {"repeats": (0,)}, ("int64",), -9, 9),
        ),
    )
)


@dataclass(frozen=True, slots=True)
class TriluAttrs(Attrs):
    """Keep the elements on and above (or below) diagonal `k` of the last two axes, 0 elsewhere."""

    upper: bool = True
    k: int = 0


def _infer_trilu(a: TriluAttrs, x: Type) -> Type:
    source = tensor_type(x)
    if source.ndim < 2:
        raise TypeMismatch(f"trilu takes matrices, not {source}")
    return source


def _trilu(a: TriluAttrs, x: Tensor) -> Tensor:
    def read(*i: Expr) -> Expr:
        diagonal = i[-2] + a.k
        kept = i[-1] >= diagonal if a.upper else i[-1] <= diagonal
        return te.if_then_else(kept, x[i], te.const(0, x.dtype))

    return te.compute_one(x.shape, read, "trilu")


trilu: Operator[TriluAttrs] = register(
    Operator(
        name="trilu",
        infer=_infer_trilu,
        reference=lambda a, x: (np.triu if a.upper else np.tril)(x, a.k),
        compute=_trilu,
        attrs_type=TriluAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((4, 5),)),
            Example(((2, 3, 3),), {"upper": False, "k": 1}),
            Example(((3, 4),), {"upper": True, "k": -1}, ("int64",), -9, 9),
            Example(((4, 3),), {"upper": False, "k": -2}, ("bool",)),
        ),
    )
)
