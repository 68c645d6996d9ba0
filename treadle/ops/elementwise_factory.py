# SPDX-License-Identifier: Apache-2.0
"""Makers of element-wise operator records from a function of scalars and its NumPy twin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from treadle import te
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.types import Dim, TensorType, Type, broadcast_shapes, product_of
from treadle.ops.axis_names import axes_like
from treadle.ops.numeric import (
    FLOATS,
    NUMBERS,
    SPECIAL_FLOATS,
    Attributes,
    Scalar,
    broadcast_index,
    check_elements,
    check_same_elements,
    dims_of,
    half_examples,
    numpy_reference,
    rounded_once,
)
from treadle.te.operations import Tensor

NumpyFunction = Callable[..., Any]
"""function(attrs, *arrays) -> array; floats come as float64."""


def compute_of(name: str, scalar: Scalar) -> Callable[..., Tensor]:
    """Return a compute that applies `scalar(attrs, *elements)` to broadcast inputs."""
    rounded = rounded_once(scalar)

    def compute(attrs: Attributes, *xs: Tensor) -> Tensor:
        shape = broadcast_shapes(*(dims_of(x) for x in xs))
        return te.compute_one(
            shape,
            lambda *i: rounded(attrs, *(x[broadcast_index(x, i)] for x in xs)),
            name,
            axes=axes_like(len(shape), *xs),
        )

    return compute


def broadcast_size(attrs: Attributes, *types: TensorType) -> Dim:
    """Return the number of elements of the broadcast inputs: one operation each."""
    return product_of(broadcast_shapes(*(t.shape for t in types)))


def unary_examples(
    allowed: tuple[str, ...],
    bounds: tuple[float, float],
    attrs: dict[str, object],
    largest: float = math.inf,
) -> tuple[Example, ...]:
    """Return uses of a one-input operator for every element type in `allowed`.

    Among them are special floats; finite ones are at most `largest`.
    """
    lo, hi = bounds
    found = [
        Example(shape, attrs, (name,), lo, hi)
        for name in allowed
        if name not in ("float16", "bfloat16")
        for shape in ((((3, 5),), ((),), ((2, 1, 7),)) if name == "float32" else (((17,),),))
    ]
    if "float32" in allowed:
        found += half_examples(((4, 9),), **attrs)
        limited = np.clip(SPECIAL_FLOATS, -largest, largest, dtype=np.float32)
        special = np.where(np.isinf(SPECIAL_FLOATS), SPECIAL_FLOATS, limited)
        found.append(Example((special.shape,), attrs, inputs={0: special}))
    return tuple(found)


def unary(
    name: str,
    scalar: Scalar,
    function: NumpyFunction,
    allowed: tuple[str, ...] = FLOATS,
    *,
    attrs_type: type[Attrs] = Attrs,
    variety: tuple[dict[str, object], ...] = ({},),
    bounds: tuple[float, float] = (-4.0, 4.0),
    largest: float = math.inf,
    check: Callable[[Any], None] = lambda attrs: None,
    keeps_finite: bool = True,
) -> Operator[Any]:
    """Register and return an operator of one input that keeps shape and element type.

    `variety` are attribute values to test with, `bounds` the range of random inputs, `largest` the
    size up to which results are exact; `check` raises TypeMismatch for impossible attributes;
    `keeps_finite` see `Operator`.
    """

    def infer(attrs: Attributes, x: Type) -> Type:
        check(attrs)
        return check_elements(x, allowed)

    return register(
        Operator(
            name=name,
            infer=infer,
            reference=numpy_reference(function),
            compute=compute_of(name, scalar),
            attrs_type=attrs_type,
            fusion=Fusion.ELEMENTWISE,
            keeps_finite=keeps_finite,
            examples=tuple(e for v in variety for e in unary_examples(allowed, bounds, v, largest)),
            flops=broadcast_size,
        )
    )


def float_test(
    name: str,
    scalar: Scalar,
    function: NumpyFunction,
    attrs_type: type[Attrs] = Attrs,
    variety: tuple[dict[str, object], ...] = ({},),
) -> Operator[Any]:
    """Register and return an operator from floats to bool."""
    return register(
        Operator(
            name=name,
            infer=lambda a, x: check_elements(x, FLOATS).with_dtype("bool"),
            reference=function,
            compute=lambda a, x: te.compute_one(
                x.shape, lambda *i: scalar(a, x[i]), name=name, axes=axes_like(x.ndim, x)
            ),
            attrs_type=attrs_type,
            fusion=Fusion.ELEMENTWISE,
            keeps_finite=True,
            examples=tuple(e for v in variety for e in unary_examples(FLOATS, (-1.0, 1.0), v)),
            flops=broadcast_size,
        )
    )


_PAIRS = (((3, 5), (3, 5)), ((2, 3, 4), (4,)), ((3, 1), (1, 5)), ((), (3,)), ((), ()))
"""Shapes that are equal, or broadcast in each way."""


def pair_examples(
    allowed: tuple[str, ...], bounds: tuple[float, float], attrs: dict[str, object]
) -> tuple[Example, ...]:
    """Return uses of a two-input operator for every element type in `allowed`."""
    lo, hi = bounds
    first = "float32" if "float32" in allowed else allowed[0]
    found = [Example(shapes, attrs, (first, first), lo, hi) for shapes in _PAIRS]
    found += [
        Example(((4, 6), (4, 6)), attrs, (name, name), lo, hi)
        for name in allowed
        if name not in (first, "float16", "bfloat16")
    ]
    if "float32" in allowed:
        found += half_examples(((4, 9), (9,)), **attrs)
        n = SPECIAL_FLOATS.size
        special = {0: SPECIAL_FLOATS.reshape(n, 1), 1: SPECIAL_FLOATS}
        found.append(Example(((n, 1), (n,)), attrs, inputs=special))
    return tuple(found)


def pair(
    name: str,
    scalar: Scalar,
    function: NumpyFunction,
    allowed: tuple[str, ...] = NUMBERS,
    *,
    to_bool: bool = False,
    attrs_type: type[Attrs] = Attrs,
    variety: tuple[dict[str, object], ...] = ({},),
    bounds: tuple[float, float] = (-4.0, 4.0),
    keeps_finite: bool = True,
) -> Operator[Any]:
    """Register and return an operator of two inputs of one element type, broadcast.

    The result is of that type, or bool with `to_bool`.
    """

    def infer(attrs: Attributes, x: Type, y: Type) -> Type:
        a, b = check_elements(x, allowed), check_elements(y, allowed, "the second input")
        dtype = check_same_elements(a, b)
        return TensorType(broadcast_shapes(a.shape, b.shape), "bool" if to_bool else dtype)

    def test(attrs: Attributes, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(function(attrs, x, y))

    return register(
        Operator(
            name=name,
            infer=infer,
            reference=test if to_bool else numpy_reference(function),
            compute=compute_of(name, scalar),
            attrs_type=attrs_type,
            fusion=Fusion.BROADCAST,
            keeps_finite=keeps_finite,
            examples=tuple(e for v in variety for e in pair_examples(allowed, bounds, v)),
            flops=broadcast_size,
        )
    )
