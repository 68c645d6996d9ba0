# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements without computing: reshape, transpose, slice, pad, gather, ...

Indices that come as data wrap once when negative and are clamped to the extent, so no index can
read outside its tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Expr, ExprLike, int_value
from treadle.graph.broadcasting import stretch_rules
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.size_rules import SizeRule, equal, filled, within
from treadle.graph.types import (
    Dim,
    TensorType,
    TupleType,
    Type,
    as_dim,
    broadcast_shapes,
    known_sizes,
    may_agree,
    product_of,
    same_dim,
    shapes_may_agree,
    tensor_type,
)
from treadle.ops.numeric import (
    INTEGERS,
    broadcast_index,
    check_axis,
    check_elements,
    check_same_elements,
    dims_of,
)
from treadle.te.operations import Tensor


@dataclass(frozen=True, slots=True)
class ShapeAttrs(Attrs):
    """The result's shape; in `reshape` one extent may be -1: what the others leave."""

    shape: tuple[Dim, ...] = ()


# reshape


def _factors(dims: Iterable[Dim]) -> tuple[int, list[Expr]]:
    """Return the known part of a product of extents, and its symbolic factors."""
    number = 1
    symbols: list[Expr] = []
    rest = list(reversed(tuple(dims)))
    while rest:
        d = rest.pop()
        known = int_value(d)
        if known is not None:
            number *= known
        elif isinstance(d, nodes.Binary) and d.op == "mul":
            rest += (d.b, d.a)
        elif isinstance(d, Expr):
            symbols.append(d)
    return number, symbols


def _product(dims: Iterable[Dim]) -> Dim:
    number, symbols = _factors(dims)
    if not symbols or number == 0:
        return number
    return as_dim(math.prod(symbols[1:], start=symbols[0]) * number)


def _cancel(above: Sequence[Dim], below: Sequence[Dim]) -> tuple[list[Dim], list[Dim]]:
    """Return the factors of two products without the symbolic ones they share."""
    (have, more), (need, fewer) = _factors(above), _factors(below)
    left: list[Dim] = [have, *more]
    right: list[Dim] = [need]
    for d in fewer:
        at = next((k for k, x in enumerate(left) if x is d), None)
        if at is None:
            right.append(d)
        else:
            del left[at]
    return left, right


def resolve_shape(source: Sequence[Dim], wanted: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return `wanted` with its -1 replaced. Raises TypeMismatch if the sizes cannot agree."""
    holes = [k for k, d in enumerate(wanted) if int_value(d) == -1]
    if len(holes) > 1:
        raise TypeMismatch(f"the shape {list(wanted)} has more than one -1")
    above, below = _cancel(source, [d for d in wanted if int_value(d) != -1])
    (have, more), (need, fewer) = _factors(above), _factors(below)
    text = f"{list(source)} cannot be reshaped to {list(wanted)}"
    if not holes:
        if not more and not fewer and have != need:
            raise TypeMismatch(f"{text}: {have} elements against {need}")
        return tuple(wanted)
    if need == 0:
        raise TypeMismatch(f"{text}: with an extent of 0 the -1 may be anything")
    if have % need and not more and not fewer:
        raise TypeMismatch(f"{text}: {have} elements do not divide by {need}")
    shared = math.gcd(have, need)
    hole, divisor = _product([have // shared, *more]), _product([need // shared, *fewer])
    hole = hole if int_value(divisor) == 1 else as_dim(hole // divisor)
    return tuple(hole if k in holes else d for k, d in enumerate(wanted))


def _infer_reshape(a: ShapeAttrs, x: Type) -> Type:
    source = tensor_type(x)
    return source.with_shape(resolve_shape(source.shape, a.shape))


def _same_runs(old: Sequence[Dim], new: Sequence[Dim]) -> list[tuple[range, range]]:
    """Return matching runs of axes: the shortest ones whose sizes certainly agree.

    They are found from the left, then from the right; what is left between is one run.

    [b * 4, n, 16], [b, 4, n, 16]  ->  b * 4 with b and 4, n with n, 16 with 16
    """
    left, (i, j) = _runs_from_left(old, new)
    right, (a, b) = _runs_from_left(old[i:][::-1], new[j:][::-1])
    m, n = len(old), len(new)
    middle = (range(i, m - a), range(j, n - b))
    last = [
        (range(m - x.stop, m - x.start), range(n - y.stop, n - y.start)) for x, y in right[::-1]
    ]
    return [*left, middle, *last]


def _runs_from_left(
    old: Sequence[Dim], new: Sequence[Dim]
) -> tuple[list[tuple[range, range]], tuple[int, int]]:
    """Return the runs of axes whose sizes agree one after the other, and where they end."""
    runs: list[tuple[range, range]] = []
    i = j = 0
    while (end := _end_of_run(old[i:], new[j:])) is not None:
        runs.append((range(i, i + end[0]), range(j, j + end[1])))
        i, j = i + end[0], j + end[1]
    return runs, (i, j)


def _end_of_run(old: Sequence[Dim], new: Sequence[Dim]) -> tuple[int, int] | None:
    """Return the fewest leading axes of two shapes that have the same number of elements."""
    sizes = [_product(new[: k + 1]) for k in range(len(new))]
    for i in range(len(old)):
        size = _product(old[: i + 1])
        for j, other in enumerate(sizes):
            if same_dim(size, other):
                return i + 1, j + 1
    return None


def _flatten(index: Sequence[ExprLike], dims: Sequence[Dim]) -> ExprLike:
    flat: ExprLike = 0
    for i, d in zip(index, dims, strict=True):
        if int_value(d) != 1:
            flat = i if int_value(flat) == 0 else flat * d + i
    return flat


def _unflatten(flat: ExprLike, dims: Sequence[Dim]) -> list[ExprLike]:
    index: list[ExprLike] = []
    for k, d in enumerate(dims):
        inner = _product(dims[k + 1 :])
        at = flat if int_value(inner) == 1 else flat // inner
        outermost = all(int_value(e) == 1 for e in dims[:k])
        index.append(0 if int_value(d) == 1 else at if outermost else nodes.convert(at) % d)
    return index


def _reshape(a: ShapeAttrs, x: Tensor) -> Tensor:
    old = dims_of(x)
    new = tuple(as_dim(d) for d in resolve_shape(old, a.shape))
    runs = _same_runs(old, new) if 0 not in map(int_value, old) else []

    def read(*i: Expr) -> Expr:
        at: list[ExprLike] = [0] * len(old)
        for from_axes, to_axes in runs:
            flat = _flatten([i[k] for k in to_axes], [new[k] for k in to_axes])
            for k, v in zip(from_axes, _unflatten(flat, [old[k] for k in from_axes]), strict=True):
                at[k] = v
        return x[tuple(at)]

    return te.compute_one(new, read, "reshape")


def _reshape_rules(a: ShapeAttrs, result: Type, x: Type) -> Iterator[SizeRule]:
    return equal([(product_of(tensor_type(x).shape), product_of(tensor_type(result).shape))])


reshape: Operator[ShapeAttrs] = register(
    Operator(
        name="reshape",
        infer=_infer_reshape,
        reference=lambda a, x: x.reshape(resolve_shape(x.shape, a.shape)),
        compute=_reshape,
        rules=_reshape_rules,
        attrs_type=ShapeAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((2, 3, 4),), {"shape": (6, 4)}),
            Example(((2, 3, 4),), {"shape": (2, -1)}),
            Example(((6, 4),), {"shape": (4, 6)}),
            Example(((2, 1, 3, 1),), {"shape": (1, 3, 2)}),
            Example(((4, 6, 5),), {"shape": (4, 2, 3, 5)}),
            Example(((3, 8, 5),), {"shape": (4, 6, 1, 5)}),
            Example(((),), {"shape": (1, 1)}),
            Example(((1, 1),), {"shape": ()}),
            Example(((1, 5, 1),), {"shape": (5,)}),
            Example(((0, 3),), {"shape": (3, 0)}),
            Example(((7,),), {"shape": (-1,)}, ("int64",), -9, 9),
            Example(((2, 6),), {"shape": (3, 4)}, ("bool",)),
        ),
    )
)


# transpose and broadcast_to


@dataclass(frozen=True, slots=True)
class TransposeAttrs(Attrs):
    """Axis k of the result is axis perm[k] of the input."""

    perm: tuple[int, ...] = ()


def _infer_transpose(a: TransposeAttrs, x: Type) -> Type:
    source = tensor_type(x)
    if sorted(a.perm) != list(range(source.ndim)):
        raise TypeMismatch(f"perm={a.perm} does not order the {source.ndim} axes of {source}")
    return source.with_shape(source.shape[k] for k in a.perm)


def _transpose(a: TransposeAttrs, x: Tensor) -> Tensor:
    return te.compute_one(
        tuple(x.shape[k] for k in a.perm),
        lambda *i: x[tuple(i[a.perm.index(k)] for k in range(x.ndim))],
        "transpose",
    )


transpose: Operator[TransposeAttrs] = register(
    Operator(
        name="transpose",
        infer=_infer_transpose,
        reference=lambda a, x: np.transpose(x, a.perm),
        compute=_transpose,
        attrs_type=TransposeAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((3, 5),), {"perm": (1, 0)}),
            Example(((2, 3, 4, 5),), {"perm": (0, 2, 3, 1)}),
            Example(((2, 3, 4, 5),), {"perm": (3, 0, 2, 1)}, ("int8",), -9, 9),
            Example(((2, 3, 4),), {"perm": (1, 2, 0)}, ("float16",)),
            Example(((),), {"perm": ()}),
            Example(((17, 33),), {"perm": (1, 0)}, ("float64",)),
        ),
    )
)


def _infer_broadcast_to(a: ShapeAttrs, x: Type) -> Type:
    source, wanted = tensor_type(x), TensorType(a.shape, "bool").shape
    merged = broadcast_shapes(source.shape, wanted)
    if len(merged) != len(wanted) or any(
        isinstance(m, int) and isinstance(w, int) and m != w
        for m, w in zip(merged, wanted, strict=True)
    ):
        raise TypeMismatch(f"{source} does not broadcast to {list(wanted)}")
    return source.with_shape(wanted)


def _broadcast_to_rules(a: ShapeAttrs, result: Type, x: Type) -> Iterator[SizeRule]:
    return stretch_rules(tensor_type(x).shape, tensor_type(result).shape)


def _broadcast_to(a: ShapeAttrs, x: Tensor) -> Tensor:
    return te.compute_one(a.shape, lambda *i: x[broadcast_index(x, i, a.shape)], "broadcast_to")


broadcast_to: Operator[ShapeAttrs] = register(
    Operator(
        name="broadcast_to",
        rules=_broadcast_to_rules,
        infer=_infer_broadcast_to,
        reference=lambda a, x: np.broadcast_to(x, a.shape),
        compute=_broadcast_to,
        attrs_type=ShapeAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((3, 1),), {"shape": (2, 3, 4)}),
            Example(((),), {"shape": (2, 3)}),
            Example(((),), {"shape": ()}),
            Example(((4,),), {"shape": (4,)}, ("int32",), -9, 9),
            Example(((1, 5),), {"shape": (0, 5)}),
        ),
    )
)


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
    turned = te.floormod(j, period) if wide else te.max(j, -j)
    return te.min(turned, last * 2 - turned)


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


# gather


def _infer_gather(a: AxisAttrs, data: Type, indices: Type) -> Type:
    source, at = tensor_type(data), check_elements(indices, INTEGERS, "the index")
    check_axis(a.axis, source.ndim)
    return source.with_shape(source.shape[: a.axis] + at.shape + source.shape[a.axis + 1 :])


_MOST_SHORT = (1 << 31) - 1


def _position(index: Expr, extent: Dim) -> Expr:
    """Return an index from data as a position: negative ones wrap, the rest is clamped.

    That is done in 32 bits where index and extent have no more: twice as many to a vector.
    """
    is_short = index.dtype == "int32" and isinstance(extent, int) and extent <= _MOST_SHORT
    at = index if is_short else nodes.cast(index, dt.INDEX)
    at = nodes.select(at < 0, at + extent, at)
    return nodes.cast(te.max(te.min(at, extent - 1), 0), dt.INDEX)


def _gather_rules(a: AxisAttrs, result: Type, data: Type, indices: Type) -> Iterator[SizeRule]:
    return filled(data, (a.axis,), result)


def _numpy_positions(indices: np.ndarray, extent: int) -> np.ndarray:
    at = indices.astype(np.int64)
    return np.clip(np.where(at < 0, at + extent, at), 0, max(extent - 1, 0))


def _gather(a: AxisAttrs, data: Tensor, indices: Tensor) -> Tensor:
    n, extent = indices.ndim, dims_of(data)[a.axis]

    def read(*i: Expr) -> Expr:
        at = indices[i[a.axis : a.axis + n]]
        return data[(*i[: a.axis], _position(at, extent), *i[a.axis + n :])]

    shape = (*data.shape[: a.axis], *indices.shape, *data.shape[a.axis + 1 :])
    return te.compute_one(shape, read, "gather")


gather: Operator[AxisAttrs] = register(
    Operator(
        name="gather",
        infer=_infer_gather,
        reference=lambda a, x, i: np.asarray(
            np.take(x, _numpy_positions(i, x.shape[a.axis]), a.axis)
        ),
        compute=_gather,
        rules=_gather_rules,
        attrs_type=AxisAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((7, 3), (2, 4)), {}, ("float32", "int64"), -7, 6),
            Example(((3, 7, 2), (5,)), {"axis": 1}, ("float32", "int32"), -7, 6),
            Example(((3, 7), ()), {"axis": 1}, ("int64", "int64"), -7, 6),
            Example(((6,), ()), {}, ("float32", "int64"), -9, 9),
            Example(((6, 2), (3,)), {}, ("uint8", "uint8"), 0, 5),
        ),
    )
)


def _infer_gather_elements(a: AxisAttrs, data: Type, indices: Type) -> Type:
    source, at = tensor_type(data), check_elements(indices, INTEGERS, "the index")
    check_axis(a.axis, source.ndim)
    if at.ndim != source.ndim or any(
        k != a.axis and isinstance(p, int) and isinstance(q, int) and q > p
        for k, (p, q) in enumerate(zip(source.shape, at.shape, strict=True))
    ):
        raise TypeMismatch(f"indices {at} do not fit {source} along axis {a.axis}")
    return source.with_shape(at.shape)


def _gather_elements(a: AxisAttrs, data: Tensor, indices: Tensor) -> Tensor:
    extent = dims_of(data)[a.axis]

    def read(*i: Expr) -> Expr:
        return data[(*i[: a.axis], _position(indices[i], extent), *i[a.axis + 1 :])]

    return te.compute_one(indices.shape, read, "gather_elements")


def _gather_elements_rules(
    a: AxisAttrs, result: Type, data: Type, indices: Type
) -> Iterator[SizeRule]:
    at = tensor_type(indices)
    yield from filled(data, (a.axis,), result)
    yield from within(at.shape, data, (k for k in range(at.ndim) if k != a.axis))


def _numpy_gather_elements(a: AxisAttrs, x: np.ndarray, i: np.ndarray) -> np.ndarray:
    inside = tuple(slice(None) if k == a.axis else slice(n) for k, n in enumerate(i.shape))
    return np.take_along_axis(x[inside], _numpy_positions(i, x.shape[a.axis]), a.axis)


gather_elements: Operator[AxisAttrs] = register(
    Operator(
        name="gather_elements",
        infer=_infer_gather_elements,
        reference=_numpy_gather_elements,
        compute=_gather_elements,
        rules=_gather_elements_rules,
        attrs_type=AxisAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((3, 5), (3, 5)), {"axis": 0}, ("float32", "int64"), -3, 2),
            Example(((3, 5), (2, 7)), {"axis": 1}, ("float32", "int32"), -5, 4),
            Example(((5,), (2,)), {}, ("int64", "int64"), -5, 4),
        ),
    )
)


@dataclass(frozen=True, slots=True)
class GatherNdAttrs(Attrs):
    """How many leading axes `data` and `indices` share."""

    batch_dims: int = 0


def _infer_gather_nd(a: GatherNdAttrs, data: Type, indices: Type) -> Type:
    source, at = tensor_type(data), check_elements(indices, INTEGERS, "the index")
    depth = at.shape[-1] if at.ndim else 0
    if not isinstance(depth, int) or at.ndim < 1:
        raise TypeMismatch(f"the last extent of the indices {at} must be known")
    b = a.batch_dims
    if not 0 <= b < at.ndim or b + depth > source.ndim:
        raise TypeMismatch(f"indices {at} with batch_dims={b} are too deep for {source}")
    if not shapes_may_agree(at.shape[:b], source.shape[:b]):
        raise TypeMismatch(f"indices {at} and {source} differ in their {b} batch extents")
    return source.with_shape(at.shape[:-1] + source.shape[b + depth :])


def _gather_nd(a: GatherNdAttrs, data: Tensor, indices: Tensor) -> Tensor:
    b, outer, dims = a.batch_dims, indices.ndim - 1, dims_of(data)
    depth = int_value(indices.shape[-1]) or 0

    def read(*i: Expr) -> Expr:
        at = [_position(indices[(*i[:outer], k)], dims[b + k]) for k in range(depth)]
        return data[(*i[:b], *at, *i[outer:])]

    shape = (*indices.shape[:-1], *data.shape[b + depth :])
    return te.compute_one(shape, read, "gather_nd")


def _gather_nd_rules(
    a: GatherNdAttrs, result: Type, data: Type, indices: Type
) -> Iterator[SizeRule]:
    b, at = a.batch_dims, tensor_type(indices).shape
    depth = at[-1] if isinstance(at[-1], int) else 0
    yield from filled(data, range(b, b + depth), result)
    yield from equal(zip(at[:b], tensor_type(data).shape[:b], strict=True))


def _numpy_gather_nd(a: GatherNdAttrs, x: np.ndarray, i: np.ndarray) -> np.ndarray:
    b, outer = a.batch_dims, i.shape[:-1]
    batch = [
        np.arange(n).reshape((-1,) + (1,) * (len(outer) - 1 - k)) for k, n in enumerate(outer[:b])
    ]
    at = [_numpy_positions(i[..., k], x.shape[b + k]) for k in range(i.shape[-1])]
    if not batch and not at:
        return np.broadcast_to(x, outer + x.shape)
    taken = x[(*batch, *at)]
    return np.broadcast_to(taken, outer + x.shape[b + len(at) :])


gather_nd: Operator[GatherNdAttrs] = register(
    Operator(
        name="gather_nd",
        infer=_infer_gather_nd,
        reference=_numpy_gather_nd,
        compute=_gather_nd,
        rules=_gather_nd_rules,
        attrs_type=GatherNdAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((3, 4, 5), (6, 2)), {}, ("float32", "int64"), -3, 2),
            Example(((3, 4, 5), (6, 3)), {}, ("float32", "int64"), -3, 2),
            Example(((2, 4, 5), (2, 3, 1)), {"batch_dims": 1}, ("float32", "int64"), -4, 3),
            Example(((4,), (1,)), {}, ("float32", "int64"), -4, 3),
        ),
    )
)
