# SPDX-License-Identifier: Apache-2.0
"""Updates written into a copy of a tensor at positions that are data.

Updates apply one after the other in their own order, so that of several for one place the last
wins, or all of them are combined. An index outside its axis writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.conditions import all_of
from treadle.expr.nodes import Expr, cast, convert, load
from treadle.graph.operator import Attrs, Example, Operator, register
from treadle.graph.size_rules import SizeRule, equal, within
from treadle.graph.types import (
    Dim,
    TensorType,
    Type,
    as_dim,
    known_sizes,
    known_true,
    shapes_may_agree,
    tensor_type,
)
from treadle.loop.build import nest, put
from treadle.loop.nodes import Buffer, ForKind, If, Stmt, seq
from treadle.ops.numeric import (
    HALVES,
    INTEGERS,
    check_axis,
    check_elements,
    check_same_elements,
)
from treadle.ops.schedules.stages import is_much
from treadle.te.operations import Tensor

REDUCTIONS = ("none", "add", "mul", "max", "min")


@dataclass(frozen=True, slots=True)
class ScatterElementsAttrs(Attrs):
    """The axis that indices choose along, and how an update meets what is there."""

    axis: int = 0
    reduction: str = "none"


@dataclass(frozen=True, slots=True)
class ScatterNdAttrs(Attrs):
    """How an update meets what is there."""

    reduction: str = "none"


def _check(data: Type, indices: Type, updates: Type, reduction: str) -> TensorType:
    if reduction not in REDUCTIONS:
        raise TypeMismatch(f"reduction={reduction!r} is not one of {', '.join(REDUCTIONS)}")
    check_same_elements(data, updates)
    check_elements(indices, INTEGERS, "the index")
    return tensor_type(data)


def _infer_elements(a: ScatterElementsAttrs, data: Type, indices: Type, updates: Type) -> Type:
    source = _check(data, indices, updates, a.reduction)
    check_axis(a.axis, source.ndim)
    at, new = tensor_type(indices).shape, tensor_type(updates).shape
    fits = len(at) == source.ndim and all(
        k == a.axis or known_true(convert(p) <= q) is not False
        for k, (p, q) in enumerate(zip(at, source.shape, strict=True))
    )
    if not shapes_may_agree(at, new) or not fits:
        raise TypeMismatch(f"indices {indices} and updates {updates} do not fit {source}")
    return source


def _elements_rules(
    a: ScatterElementsAttrs, result: Type, data: Type, indices: Type, updates: Type
) -> Iterator[SizeRule]:
    at, new = tensor_type(indices).shape, tensor_type(updates).shape
    yield from equal(zip(new, at, strict=True))
    across = (k for k in range(len(at)) if k != a.axis % len(at))
    yield from within(at, data, across)


def _infer_nd(a: ScatterNdAttrs, data: Type, indices: Type, updates: Type) -> Type:
    source = _check(data, indices, updates, a.reduction)
    shape, at = source.shape, tensor_type(indices).shape
    depth = at[-1] if at else None
    if not isinstance(depth, int) or depth > len(shape):
        raise TypeMismatch(f"indices {indices} are too deep for {source}")
    if not shapes_may_agree(tensor_type(updates).shape, at[:-1] + shape[depth:]):
        raise TypeMismatch(f"updates {updates} do not fit indices {indices} into {source}")
    return source


def _nd_rules(
    a: ScatterNdAttrs, result: Type, data: Type, indices: Type, updates: Type
) -> Iterator[SizeRule]:
    shape, at = tensor_type(data).shape, tensor_type(indices).shape
    (depth,) = known_sizes(at[-1:])
    return equal(zip(tensor_type(updates).shape, at[:-1] + shape[depth:], strict=True))


def _combined(old: Expr, new: Expr, reduction: str) -> Expr:
    """Return what an update makes of an element; halves are rounded after every update."""
    if reduction == "none":
        return new
    if old.dtype == "bool":
        return old | new if reduction in ("add", "max") else old & new
    if old.dtype in HALVES:
        wide = _combined(cast(old, "float32"), cast(new, "float32"), reduction)
        return cast(wide, old.dtype)
    if reduction == "add":
        return old + new
    if reduction == "mul":
        return old * new
    return nodes.maximum(old, new) if reduction == "max" else nodes.minimum(old, new)


def _update(
    out: Buffer, at: Sequence[Expr], value: Expr, reduction: str, checks: Sequence[Expr]
) -> Stmt:
    stored = put(out, at, _combined(load(out, at), value, reduction))
    return If(all_of(checks), stored) if checks else stored


def _wrapped(index: Expr, extent: Dim) -> tuple[Expr, Expr]:
    """Return an index as a position, negative ones counted from the end, and its check."""
    at = cast(index, dt.INDEX)
    at = nodes.select(at < 0, at + extent, at)
    return at, (at >= 0) & (at < extent)


def _extents(buffer: Buffer | Tensor) -> list[Dim]:
    return [as_dim(d) for d in buffer.shape]


def _copy(source: Buffer, to: Buffer) -> Stmt:
    extents = _extents(source)
    kinds: list[ForKind] = ["serial"] * len(extents)
    if kinds:
        kinds[-1] = "vectorized"
    if len(kinds) > 1 and is_much(extents):
        kinds[0] = "parallel"
    return nest(extents, lambda *i: put(to, i, load(source, i)), "c", kinds)


def _scatter_elements(
    a: ScatterElementsAttrs, data: Tensor, indices: Tensor, updates: Tensor
) -> Tensor:
    extent = _extents(data)[a.axis]

    def build(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        source, chosen, new = ins
        (out,) = outs

        def step(*i: Expr) -> Stmt:
            at, inside = _wrapped(load(chosen, i), extent)
            place = (*i[: a.axis], at, *i[a.axis + 1 :])
            return _update(out, place, load(new, i), a.reduction, [inside])

        extents = _extents(chosen)
        # Rows across the axis never write the same place; the order along it matters.
        kinds: list[ForKind] = ["parallel"] if a.axis > 0 and is_much(extents) else []
        return seq(_copy(source, out), nest(extents, step, "u", kinds))

    return _one(te.extern(data.shape, [data, indices, updates], build, "scatter", data.dtype))


def _scatter_nd(a: ScatterNdAttrs, data: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    extents, chosen_shape = _extents(data), _extents(indices)
    depth, outer = chosen_shape[-1], chosen_shape[:-1]
    assert isinstance(depth, int)  # as inferred

    def build(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        source, chosen, new = ins
        (out,) = outs

        def step(*i: Expr) -> Stmt:
            found = [_wrapped(load(chosen, (*i, k)), extents[k]) for k in range(depth)]
            at, checks = [p for p, _ in found], [c for _, c in found]

            def one(*j: Expr) -> Stmt:
                return _update(out, (*at, *j), load(new, (*i, *j)), a.reduction, ())

            inner = extents[depth:]
            kinds: list[ForKind] = ["serial"] * len(inner)
            if inner:
                kinds[-1] = "vectorized"
            block = nest(inner, one, "s", kinds)
            return If(all_of(checks), block) if checks else block

        return seq(_copy(source, out), nest(outer, step, "u"))

    return _one(te.extern(data.shape, [data, indices, updates], build, "scatter", data.dtype))


def _one(made: Tensor | tuple[Tensor, ...]) -> Tensor:
    assert isinstance(made, Tensor)  # one shape gives one tensor
    return made


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": np.maximum,
    "min": np.minimum,
}


def _numpy_position(index: int, extent: int) -> int | None:
    at = index + extent if index < 0 else index
    return at if 0 <= at < extent else None


def _numpy_elements(
    a: ScatterElementsAttrs, data: np.ndarray, indices: np.ndarray, updates: np.ndarray
) -> np.ndarray:
    out, combine = data.copy(), _COMBINE[a.reduction]
    with np.errstate(all="ignore"):
        for i in product(*map(range, indices.shape)):
            at = _numpy_position(int(indices[i]), data.shape[a.axis])
            if at is not None:
                place = (*i[: a.axis], at, *i[a.axis + 1 :])
                out[place] = combine(out[place], updates[i])
    return out


def _numpy_nd(
    a: ScatterNdAttrs, data: np.ndarray, indices: np.ndarray, updates: np.ndarray
) -> np.ndarray:
    out, combine = data.copy(), _COMBINE[a.reduction]
    with np.errstate(all="ignore"):
        for i in product(*map(range, indices.shape[:-1])):
            pairs = zip(indices[i].tolist(), data.shape, strict=False)
            place = tuple(_numpy_position(p, n) for p, n in pairs)
            if None not in place:
                out[place] = combine(out[place], updates[i])
    return out


_INDEX = "int64"


def _element_examples() -> tuple[Example, ...]:
    plain = ("float32", _INDEX, "float32")
    return (
        Example(((3, 5), (2, 4), (2, 4)), {"axis": 0}, plain, -3, 2),
        Example(((3, 5), (3, 9), (3, 9)), {"axis": 1}, plain, -5, 4),
        Example(((200, 120), (200, 90), (200, 90)), {"axis": 1, "reduction": "add"}, plain, -9, 9),
        Example(((6,), (4,), (4,)), {}, ("int32", "int32", "int32"), -9, 9),
        *(
            Example(((4, 3), (7, 3), (7, 3)), {"reduction": r}, (t, _INDEX, t), -4, 3)
            for r in REDUCTIONS[1:]
            for t in ("float32", "float16", "int64", "bool")
        ),
    )


def _nd_examples() -> tuple[Example, ...]:
    plain = ("float32", _INDEX, "float32")
    return (
        Example(((4, 5, 6), (3, 1), (3, 5, 6)), {}, plain, -4, 3),
        Example(((4, 5, 6), (2, 3, 2), (2, 3, 6)), {}, plain, -5, 4),
        Example(((4, 5), (7, 2), (7,)), {}, plain, -6, 6),
        Example(((4, 5), (0,), (4, 5)), {}, plain, -4, 3),
        Example(((), (2, 0), (2,)), {"reduction": "add"}, plain, -4, 3),
        *(
            Example(((4, 37), (5, 1), (5, 37)), {"reduction": r}, (t, _INDEX, t), -4, 3)
            for r in REDUCTIONS[1:]
            for t in ("float32", "bfloat16", "int8")
        ),
    )


scatter_elements: Operator[ScatterElementsAttrs] = register(
    Operator(
        name="scatter_elements",
        infer=_infer_elements,
        reference=_numpy_elements,
        rules=_elements_rules,
        compute=_scatter_elements,
        attrs_type=ScatterElementsAttrs,
        examples=_element_examples(),
    )
)
scatter_nd: Operator[ScatterNdAttrs] = register(
    Operator(
        name="scatter_nd",
        infer=_infer_nd,
        reference=_numpy_nd,
        rules=_nd_rules,
        compute=_scatter_nd,
        attrs_type=ScatterNdAttrs,
        examples=_nd_examples(),
    )
)
