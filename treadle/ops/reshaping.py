# SPDX-License-Identifier: Apache-2.0
"""Operators that give the same elements another shape: reshape, transpose, broadcast_to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Expr, ExprLike, int_value
from treadle.graph.broadcasting import stretch_rules
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.size_rules import SizeRule, equal
from treadle.graph.types import (
    Dim,
    TensorType,
    Type,
    as_dim,
    broadcast_shapes,
    product_of,
    same_dim,
    tensor_type,
)
from treadle.ops.numeric import (
    broadcast_index,
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
