# SPDX-License-Identifier: Apache-2.0
"""Reductions along axes, and the blocked te reductions that normalisations share.

Long reductions are cut into interleaved parts: part b of `parts` combines elements b, b + parts,
b + 2 parts, ... Adding few numbers at a time keeps the rounding error of a sum small in any loop
order, and parts lie side by side, so the innermost loop of every stage runs over contiguous data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Expr, ExprLike
from treadle.expr.traversal import walk
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.types import Dim, TensorType, Type, as_dim, product_of
from treadle.ops.numeric import (
    ANY,
    BOOL,
    NUMBERS,
    accumulator,
    check_axis,
    check_elements,
    dims_of,
    half_examples,
    in_float64,
)
from treadle.ops.summation import CHAINS, LANES, LONG_RUN, TERMS
from treadle.te.operations import Tensor

Read = Callable[..., Expr]
"""read(*indices) -> element: a tensor, or a formula over tensors."""

Combine = Callable[[Expr, list[te.IterVar]], Expr]
"""te.sum, te.prod, te.max or te.min."""


@dataclass(frozen=True, slots=True)
class ReduceAttrs(Attrs):
    """Axes to combine (none: nothing changes); kept as extents of 1 with `keepdims`."""

    axes: tuple[int, ...] = ()
    keepdims: bool = False


# Blocked reductions in te.


@dataclass(slots=True)
class _Run:
    """A reduction on its way: what is left to combine, read by `read` over `shape`."""

    read: Read
    shape: list[Dim]
    stages: list[Tensor]

    def is_contiguous(self, axis: int) -> bool:
        """True when neighbours along `axis` are neighbours in memory."""
        return all(nodes.int_value(d) == 1 for d in self.shape[axis + 1 :])


def reduce_stages(
    combine: Combine,
    read: Read,
    shape: Sequence[Dim],
    axes: Sequence[int],
    name: str,
    keepdims: bool = True,
    in_order: bool = False,
) -> list[Tensor]:
    """Return the stages that combine `axes` of what `read` reads over `shape`; the result last.

    `in_order`: where the last two axes are combined, one place after the other is read. Then they
    are one long axis whatever their extents; else only where these are known, as to find the axes
    in it takes divisions.
    """
    run = _Run(read, list(shape), [])
    pending = _merge(run, sorted(axes), in_order)
    while pending:
        group = _inner_group(run, pending)
        if not group:
            _cut(run, combine, pending[0], name)
            group = _group(run, pending)
        pending = [axis for axis in pending if axis not in group]
        if pending:
            _combine(run, combine, group, [], f"{name}.part")
        else:
            _combine(run, combine, group, [] if keepdims else sorted(axes), name)
    return run.stages


def _inner_group(run: _Run, pending: Sequence[int]) -> list[int]:
    """Return the innermost of several pending axes that few steps combine; [] if there are none.

    Where vectors run along an axis that is kept, their sums of rows do not wait for each other and
    walk through memory in order.
    """
    if len(pending) < 2 or run.is_contiguous(pending[-1]):
        return []
    group: list[int] = []
    terms = 1
    for axis in reversed(pending):
        extent = run.shape[axis]
        if not isinstance(extent, int) or terms * extent > TERMS:
            break
        group.insert(0, axis)
        terms *= extent
    return group


def _group(run: _Run, pending: Sequence[int]) -> list[int]:
    """Return the outermost pending axes that one accumulator can take in together.

    A long contiguous axis stays out, so that the loop over it can be the innermost one.
    """
    group, terms = [pending[0]], run.shape[pending[0]]
    for axis in pending[1:]:
        extent = run.shape[axis]
        if not isinstance(terms, int) or not isinstance(extent, int):
            break
        terms *= extent
        if terms > TERMS or (run.is_contiguous(axis) and extent >= LANES):
            break
        group.append(axis)
    return group


def _merge(run: _Run, axes: list[int], in_order: bool) -> list[int]:
    """Make one long axis of the axes that lie together in memory; return the axes that are left."""
    kept = list(axes)
    while len(kept) > 1 and kept[-2] == kept[-1] - 1 and run.is_contiguous(kept[-1]):
        first, last = kept[-2:]
        outer, inner = run.shape[first], run.shape[last]
        is_known = isinstance(outer, int) and isinstance(inner, int)
        if not is_known and (not in_order or len(axes) > 2):
            break
        run.read = _unmerged(run.read, first, last, inner)
        run.shape[first], run.shape[last] = 1, as_dim(outer * inner)
        kept.pop(-2)
    return kept


def _unmerged(read: Read, first: int, last: int, inner: Dim) -> Read:
    def at(*i: ExprLike) -> Expr:
        flat, parts = nodes.convert(i[last]), list(i)
        parts[first], parts[last] = te.floordiv(flat, inner), te.floormod(flat, inner)
        return read(*parts)

    if nodes.int_value(inner) == 1:
        return lambda *i: read(*i[:first], i[last], 0, *i[last + 1 :])
    return at


def _parts(extent: int, contiguous: bool) -> int:
    """Return into how many parts to cut an axis; 1 for no cut.

    A vector of parts is halved again and again: that takes fewer steps than adding one by one.
    """
    if not contiguous:
        return 1 if extent <= TERMS else math.ceil(extent / TERMS)
    if extent in (2 * LANES, LANES, LANES // 2, LANES // 4):
        return extent // 2
    if extent < LANES:
        return 1
    step = LANES * CHAINS if extent >= LONG_RUN else LANES
    return step * math.ceil(extent / (step * TERMS))


def _cut(run: _Run, combine: Combine, axis: int, name: str) -> None:
    """Combine interleaved elements of a long axis until it is short."""
    while isinstance(extent := run.shape[axis], int):
        parts = _parts(extent, run.is_contiguous(axis))
        if parts == 1:
            return
        made = _interleaved(run, combine, axis, parts, f"{name}.part")
        run.stages.append(made)
        run.read = _reader(made)
        run.shape[axis] = parts


def _interleaved(run: _Run, combine: Combine, axis: int, parts: int, name: str) -> Tensor:
    """Return part[b] = read(b) + read(b + parts) + ... along `axis`."""
    read, extent = run.read, run.shape[axis]
    assert isinstance(extent, int)  # asked by _cut
    if extent == 2 * parts:
        return _halved(run, combine, axis, parts, name)
    r = te.reduce_axis((0, math.ceil(extent / parts)), "r")

    def body(*i: Expr) -> Expr:
        place = r * parts + i[axis]
        made = combine(read(*i[:axis], place, *i[axis + 1 :]), [r])
        return made if extent % parts == 0 else _where(made, place < extent)

    return te.compute_one([*run.shape[:axis], parts, *run.shape[axis + 1 :]], body, name)


def _halved(run: _Run, combine: Combine, axis: int, half: int, name: str) -> Tensor:
    """Return part[b] = read(b) + read(b + half): one step, no neutral element to begin with."""

    def body(*i: Expr) -> Expr:
        first, second = (
            run.read(*i[:axis], i[axis] + start, *i[axis + 1 :]) for start in (0, half)
        )
        made = combine(first, [te.reduce_axis((0, 2), "r")])
        assert isinstance(made, te.Reduce)
        return made.combiner.combine([first], [second])[0]

    shape = [*run.shape[:axis], half, *run.shape[axis + 1 :]]
    return te.compute_one(shape, body, name, tag=te.KEPT)


def _where(made: Expr, inside: Expr) -> Expr:
    """Return a reduction that reads only where `inside` holds: elsewhere the neutral element."""
    assert isinstance(made, te.Reduce)
    (source,), (neutral,) = made.sources, made.combiner.identity
    guarded = te.if_then_else(inside, source, neutral)
    return te.Reduce(made.combiner, (guarded,), made.axes, made.condition, 0, made.dtype)


def padded_extent(extent: Dim, contiguous: bool) -> Dim:
    """Return a length of at least `extent` that is cut into parts without a rest."""
    if not isinstance(extent, int):
        return extent
    parts = _parts(extent, contiguous)
    return -(-extent // parts) * parts


def _reader(tensor: Tensor) -> Read:
    return lambda *i: tensor[i]


def _combine(
    run: _Run, combine: Combine, group: Sequence[int], dropped: Sequence[int], name: str
) -> None:
    """Combine everything along the axes in `group`; they become extents of 1, or are dropped."""
    read, ndim = run.read, len(run.shape)
    axes = {k: te.reduce_axis((0, run.shape[k]), f"r{k}") for k in group}
    kept = [k for k in range(ndim) if k not in dropped]

    def body(*i: Expr) -> Expr:
        at: list[ExprLike] = [0] * ndim
        for k, v in zip(kept, i, strict=True):
            at[k] = v
        for k, r in axes.items():
            at[k] = r
        return combine(read(*at), list(axes.values()))

    run.shape = [1 if k in axes else d for k, d in enumerate(run.shape)]
    made = te.compute_one([run.shape[k] for k in kept], body, name)
    run.stages.append(made)
    run.read = _reader(made)


def reduce_count(shape: Sequence[Dim], axes: Sequence[int]) -> Dim:
    """Return how many elements one result combines."""
    count: Dim = 1
    for k in axes:
        count = shape[k] if isinstance(count, int) and count == 1 else as_dim(count * shape[k])
    return count


def mean_of(total: Expr, count: Dim) -> Expr:
    """Return total / count; integers truncate, and the integer mean of nothing is 0."""
    if dt.is_float(total.dtype):
        return total / nodes.cast(count, total.dtype)
    some = max(count, 1) if isinstance(count, int) else nodes.maximum(count, 1)
    return nodes.truncdiv(total, nodes.cast(some, total.dtype))


# The operators.


def _infer(allowed: tuple[str, ...]) -> Callable[..., Type]:
    def infer(a: ReduceAttrs, x: Type) -> Type:
        source = check_elements(x, allowed)
        if len(set(a.axes)) != len(a.axes):
            raise TypeMismatch(f"axes={a.axes} name an axis twice")
        for axis in a.axes:
            check_axis(axis, source.ndim)
        return source.with_shape(_reduced_shape(source.shape, a.axes, a.keepdims))

    return infer


def _reduced_shape(shape: Sequence[Dim], axes: Sequence[int], keepdims: bool) -> list[Dim]:
    if keepdims:
        return [1 if k in axes else d for k, d in enumerate(shape)]
    return [d for k, d in enumerate(shape) if k not in axes]


def _compute(
    name: str,
    combine: Combine,
    widen: Callable[[str], str],
    finish: Callable[[Expr, Dim], Expr] | None = None,
) -> Callable[..., list[Tensor]]:
    """Return a compute: elements as type `widen(dtype)`, combined, finished, converted back."""

    def compute(a: ReduceAttrs, x: Tensor) -> list[Tensor]:
        dims, wide = dims_of(x), widen(x.dtype)
        stages = reduce_stages(
            combine, lambda *i: nodes.cast(x[i], wide), dims, a.axes, name, a.keepdims,
            in_order=_is_in_order(x),
        )  # fmt: skip
        if stages and wide == x.dtype and finish is None:
            return stages
        total = stages[-1] if stages else x
        count = reduce_count(dims, a.axes)

        def result(*i: Expr) -> Expr:
            value = nodes.cast(total[i], wide)
            return nodes.cast(value if finish is None else finish(value, count), x.dtype)

        return [*stages, te.compute_one(total.shape, result, name)]

    return compute


def _is_in_order(x: Tensor) -> bool:
    """True where what an element is made of lies in the same place, or is the same everywhere."""
    op = x.op
    if not isinstance(op, te.ComputeOp):
        return True
    loads = (n for body in op.body for n in walk(body) if isinstance(n, nodes.Load))
    return not op.reduce_axis and all(_is_read_in_order(n, x, op.axis[-2:]) for n in loads)


def _is_read_in_order(load: nodes.Load, x: Tensor, last: tuple[te.IterVar, ...]) -> bool:
    if all(nodes.int_value(i) is not None for i in load.indices[-2:]):
        return True
    source = load.source
    is_same = load.indices[-2:] == last and source.shape[-1] is x.shape[-1]
    return is_same and isinstance(source, Tensor) and _is_in_order(source)


def _reference(
    function: Callable[..., Any], initial: Callable[[str], Any], finish: Any = None
) -> Callable[..., np.ndarray]:
    """Return a NumPy reduction: floats in float64, integers in 64 bits, converted back."""

    def reference(a: ReduceAttrs, x: np.ndarray) -> np.ndarray:
        name = dt.from_numpy(x.dtype)
        wide = in_float64(x)
        if dt.is_integer(name):
            wide = x.astype(np.uint64 if dt.is_unsigned(name) else np.int64)
        with np.errstate(all="ignore"):
            total = np.asarray(
                function(wide, axis=a.axes, keepdims=a.keepdims, initial=initial(name))
            )
            if finish is not None:
                total = finish(total, math.prod(x.shape[k] for k in a.axes))
            return total.astype(x.dtype)

    return reference


def _numpy_mean(total: np.ndarray, count: int) -> np.ndarray:
    if total.dtype.kind == "f":
        return np.asarray(total / np.float64(count))
    whole, rest = np.divmod(total, total.dtype.type(count))
    return np.asarray(whole + ((rest != 0) & (total < 0)).astype(total.dtype))


_EXAMPLES = (
    Example(((3, 5),), {"axes": (1,)}),
    Example(((3, 5),), {"axes": (0,), "keepdims": True}),
    Example(((2, 3, 4),), {"axes": (0, 2)}),
    Example(((2, 3, 4),), {"axes": (2, 1, 0), "keepdims": True}),
    Example(((),), {"axes": ()}),
    Example(((2, 3),), {"axes": ()}),
    Example(((2, 768),), {"axes": (1,)}),
    Example(((3, 197),), {"axes": (1,), "keepdims": True}),
    Example(((1000, 3),), {"axes": (0,)}),
    Example(((2, 3, 14, 30),), {"axes": (2, 3), "keepdims": True}),
    Example(((1, 4, 7, 7),), {"axes": (2, 3)}),
    Example(((40003,),), {"axes": (0,)}),
    Example(((2, 3),), {"axes": (1,)}, ("float64",)),
    Example(((2, 5),), {"axes": (1,)}, ("int32",), -9, 9),
    Example(((2, 5),), {"axes": (0,)}, ("int64",), -9, 9),
    Example(((2, 5),), {"axes": (1,)}, ("uint8",), 0, 99),
    *half_examples(((2, 300),), axes=(1,)),
)


def _flops(a: ReduceAttrs, x: TensorType) -> Dim:
    return x.elements


def _reduction(
    name: str,
    combine: Combine,
    reference: Callable[..., np.ndarray],
    allowed: tuple[str, ...],
    widen: Callable[[str], str] = lambda dtype: dtype,
    finish: Callable[[Expr, Dim], Expr] | None = None,
    extra: tuple[Example, ...] = (),
) -> Operator[ReduceAttrs]:
    return register(
        Operator(
            name=name,
            infer=_infer(allowed),
            reference=reference,
            compute=_compute(name, combine, widen, finish),
            attrs_type=ReduceAttrs,
            fusion=Fusion.REDUCE,
            examples=_EXAMPLES + extra,
            flops=_flops,
        )
    )


def _mean_accumulator(dtype: str) -> str:
    if dt.is_integer(dtype):
        return "uint64" if dt.is_unsigned(dtype) else "int64"
    return accumulator(dtype)


def _no_bool(dtype: str) -> str:
    return "uint8" if dtype == "bool" else dtype


_EMPTY = Example(((0, 2),), {"axes": (0,)})
_BOOLS = (
    Example(((3, 4),), {"axes": (1,)}, ("bool",)),
    Example(((3, 0),), {"axes": (1,)}, ("bool",)),
)
_NAN = Example(
    ((2, 3),), {"axes": (1,)}, inputs={0: np.array([[1, np.nan, 2], [0, -1, 5]], np.float32)}
)

sum_ = _reduction(
    "sum", te.sum, _reference(np.sum, lambda t: 0), NUMBERS, accumulator, extra=(_EMPTY, _NAN)
)
mean = _reduction(
    "mean",
    te.sum,
    _reference(np.sum, lambda t: 0, _numpy_mean),
    NUMBERS,
    _mean_accumulator,
    mean_of,
    (_EMPTY, _NAN),
)
"""The sum divided by the number of elements; integers truncate towards zero."""
prod = _reduction(
    "prod", te.prod, _reference(np.prod, lambda t: 1), NUMBERS, accumulator, extra=(_EMPTY,)
)
max_ = _reduction(
    "max", te.max, _reference(np.max, dt.min_value), ANY, _no_bool, extra=(_EMPTY, _NAN, *_BOOLS)
)
min_ = _reduction(
    "min", te.min, _reference(np.min, dt.max_value), ANY, _no_bool, extra=(_EMPTY, _NAN, *_BOOLS)
)
"""Of nothing: the type's largest value. A NaN wins."""


# argmax and argmin


@dataclass(frozen=True, slots=True)
class ArgAttrs(Attrs):
    """The axis searched; ties go to the first position, or the last with `select_last`."""

    axis: int = 0
    keepdims: bool = False
    select_last: bool = False


def _infer_arg(a: ArgAttrs, x: Type) -> Type:
    source = check_elements(x, NUMBERS + BOOL)
    extent = source.shape[check_axis(a.axis, source.ndim)]
    result = TensorType(tuple(_reduced_shape(source.shape, (a.axis,), a.keepdims)), dt.INDEX)
    if nodes.int_value(extent) == 0 and nodes.int_value(product_of(result.shape)) != 0:
        raise TypeMismatch(f"axis {a.axis} of {source} has no element to find")
    return result


def _compute_arg(best: Combine, name: str) -> Callable[..., list[Tensor]]:
    """Return a compute in two reductions: the best value, then the first position that has it.

    Both are plain reductions of one value, which is faster than one reduction of pairs.
    """

    def compute(a: ArgAttrs, x: Tensor) -> list[Tensor]:
        dims, wide = dims_of(x), _no_bool(x.dtype)
        values = reduce_stages(
            best, lambda *i: nodes.cast(x[i], wide), dims, [a.axis], f"{name}.value"
        )
        missing, pick = (-1, te.max) if a.select_last else (dt.max_value(dt.INDEX), te.min)

        def position(*i: ExprLike) -> Expr:
            value = nodes.cast(x[i], wide)
            found = value == values[-1][(*i[: a.axis], 0, *i[a.axis + 1 :])]
            if dt.is_float(wide):
                found = found | te.isnan(value)
            return nodes.select(found, i[a.axis], missing)

        return values + reduce_stages(pick, position, dims, [a.axis], name, a.keepdims)

    return compute


def _reference_arg(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    def reference(a: ArgAttrs, x: np.ndarray) -> np.ndarray:
        if not a.select_last:
            found = function(in_float64(x), axis=a.axis, keepdims=a.keepdims)
        else:
            from_end = function(in_float64(np.flip(x, a.axis)), axis=a.axis, keepdims=a.keepdims)
            found = x.shape[a.axis] - 1 - from_end
        return np.asarray(found, np.int64)

    return reference


def _arg(name: str, best: Combine, function: Callable[..., Any]) -> Operator[ArgAttrs]:
    ties = np.array([[1, 3, 3, 0], [np.nan, 1, np.nan, 0], [-np.inf] * 4], np.float32)
    return register(
        Operator(
            name=name,
            infer=_infer_arg,
            reference=_reference_arg(function),
            compute=_compute_arg(best, name),
            attrs_type=ArgAttrs,
            fusion=Fusion.REDUCE,
            examples=(
                Example(((3, 5),), {"axis": 1}),
                Example(((3, 5, 2),), {"axis": 1, "keepdims": True}),
                Example(((2, 1000),), {"axis": 1}),
                Example(((3, 4),), {"axis": 1}, inputs={0: ties}),
                Example(((3, 4),), {"axis": 1, "select_last": True}, inputs={0: ties}),
                Example(((4, 6),), {"axis": 0, "select_last": True}, ("int32",), -2, 2),
                Example(((4, 6),), {"axis": 1}, ("uint8",), 0, 3),
                Example(((4, 6),), {"axis": 1}, ("bool",)),
                Example(((4, 90),), {"axis": 1}, ("float16",)),
            ),
            flops=_flops,
        )
    )


argmax = _arg("argmax", te.max, np.argmax)
argmin = _arg("argmin", te.min, np.argmin)
"""A NaN wins, as in NumPy. The result is int64."""
