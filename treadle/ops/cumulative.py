# SPDX-License-Identifier: Apache-2.0
"""Running sums and products along an axis, and running sums of numbers given by logarithms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.expr.nodes import Const, Expr, ExprLike, cast, load
from treadle.graph.operator import Attrs, Example, Operator, register
from treadle.graph.types import Type, tensor_type
from treadle.loop.build import loop, nest, put
from treadle.loop.nodes import Buffer, ForKind, If, Stmt, seq
from treadle.ops.accumulate import narrowed
from treadle.ops.numeric import (
    FLOATS,
    NUMBERS,
    accumulator,
    check_axis,
    check_elements,
    dims_of,
    half_examples,
    in_float64,
)
from treadle.ops.schedules.stages import is_much
from treadle.te.operations import Tensor


@dataclass(frozen=True, slots=True)
class CumulativeAttrs(Attrs):
    """From the front, or the back with `reverse`; `exclusive` leaves out the element itself."""

    axis: int = 0
    exclusive: bool = False
    reverse: bool = False


def _infer(a: CumulativeAttrs, x: Type, allowed: tuple[str, ...]) -> Type:
    source = check_elements(x, allowed)
    check_axis(a.axis, source.ndim)
    return tensor_type(source)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A running combination: what it starts from, how it combines, and NumPy's twin."""

    start: float
    combine: Callable[[Expr, Expr], Expr]
    function: np.ufunc


def _log_add_exp(a: Expr, b: Expr) -> Expr:
    """Return log(exp(a) + exp(b)), the larger factored out; equal infinities stay what they are."""
    large, small = te.max(a, b), te.min(a, b)
    return te.if_then_else(a == b, _twice(a), large + te.log1p(te.exp(small - large)))


def _twice(a: Expr) -> Expr:
    return a + Const.of(math.log(2), a.dtype)


def _running(a: CumulativeAttrs, x: Tensor, name: str, kind: _Kind) -> list[Tensor]:
    """Return the running combination: in order along the axis, everything else side by side."""
    extents = dims_of(x)
    outer, count, inner = extents[: a.axis], extents[a.axis], extents[a.axis + 1 :]
    wide = accumulator(x.dtype)

    def build(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        (source,), (out,) = ins, outs

        def place(step: ExprLike) -> ExprLike:
            return count - 1 - step if a.reverse else step

        def element(o: tuple[Expr, ...], step: ExprLike, i: tuple[Expr, ...]) -> Expr:
            return cast(load(source, (*o, place(step), *i)), wide)

        def first(o: tuple[Expr, ...], i: tuple[Expr, ...]) -> Stmt:
            value = Const.of(kind.start, wide) if a.exclusive else element(o, 0, i)
            return put(out, (*o, place(0), *i), value)

        def next_(o: tuple[Expr, ...], step: Expr, i: tuple[Expr, ...]) -> Stmt:
            before = load(out, (*o, place(step), *i))
            new = element(o, step if a.exclusive else step + 1, i)
            return put(out, (*o, place(step + 1), *i), kind.combine(before, new))

        def row(*o: Expr) -> Stmt:
            wide_last: list[ForKind] = ["serial"] * len(inner)
            if inner:
                wide_last[-1] = "vectorized"
            begin = nest(inner, lambda *i: first(o, i), "c", wide_last)
            rest = loop(
                count - 1,
                lambda k: nest(inner, lambda *i: next_(o, k, i), "c", wide_last),
                "k",
            )
            steps = seq(begin, rest)
            return steps if isinstance(count, int) else If(count > 0, steps)

        many = is_much(extents)
        whole = nest(outer, row, "o", ["parallel"] if outer and many else [])
        return seq() if isinstance(count, int) and count == 0 else whole

    made = te.extern(x.shape, [x], build, name, wide)
    assert isinstance(made, Tensor)  # one shape gives one tensor
    return narrowed(made, x.dtype, f"{name}.cast")


def _reference(kind: _Kind) -> Any:
    def reference(a: CumulativeAttrs, x: np.ndarray) -> np.ndarray:
        rows = np.moveaxis(in_float64(x), a.axis, -1)
        rows = rows[..., ::-1] if a.reverse else rows
        if a.exclusive:
            first = np.full((*rows.shape[:-1], min(1, rows.shape[-1])), kind.start, rows.dtype)
            rows = np.concatenate([first, rows[..., :-1]], -1)
        with np.errstate(all="ignore"):
            result = kind.function.accumulate(rows, axis=-1, dtype=rows.dtype)
        result = result[..., ::-1] if a.reverse else result
        return np.asarray(np.moveaxis(result, -1, a.axis), x.dtype)

    return reference


_EXAMPLES = (
    Example(((7,),)),
    Example(((3, 5),), {"axis": 1}),
    Example(((3, 5),), {"axis": 0, "exclusive": True}),
    Example(((3, 5, 4),), {"axis": 1, "reverse": True}),
    Example(((3, 5),), {"axis": 1, "reverse": True, "exclusive": True}),
    Example(((2, 1, 3),), {"axis": 1, "exclusive": True}),
    Example(((0, 3),)),
    Example(((3, 0),), {"axis": 0}),
    Example(((6,),), {}, ("int32",), -3, 3),
    Example(((6,),), {}, ("uint8",), 0, 200),
    Example(((5, 2),), {}, ("float64",)),
    *half_examples(((2, 9),), axis=1),
)


def _register(
    name: str, kind: _Kind, allowed: tuple[str, ...], examples: tuple[Example, ...]
) -> Operator[CumulativeAttrs]:
    return register(
        Operator(
            name=name,
            infer=lambda a, x: _infer(a, x, allowed),
            reference=_reference(kind),
            compute=lambda a, x: _running(a, x, name, kind),
            attrs_type=CumulativeAttrs,
            examples=examples,
        )
    )


_SUM = _Kind(0, lambda a, b: a + b, np.add)
_PRODUCT = _Kind(1, lambda a, b: a * b, np.multiply)
_LOG_SUM = _Kind(-math.inf, _log_add_exp, np.logaddexp)
_OF_FLOATS = tuple(e for e in _EXAMPLES if not e.dtypes or dt.is_float(e.dtypes[0]))
_FAR_APART = np.array([-np.inf, -np.inf, 3, 700, -800, np.inf, np.inf, 1], np.float32)

cumsum = _register("cumsum", _SUM, NUMBERS, (*_EXAMPLES, Example(((5000,),), rtol=1e-4)))
cumprod = _register("cumprod", _PRODUCT, NUMBERS, _EXAMPLES)
logcumsumexp = _register(
    "logcumsumexp", _LOG_SUM, FLOATS, (*_OF_FLOATS, Example(((8,),), inputs={0: _FAR_APART}))
)
"""Half-precision elements are combined in float32 and rounded once."""
