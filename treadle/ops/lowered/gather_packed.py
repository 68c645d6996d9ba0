# SPDX-License-Identifier: Apache-2.0
"""`gather_packed`: rows of a table that lies in the panels of a product with its transpose."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.types import TensorType, Type, tensor_type
from treadle.ops.indexing import numpy_positions, position_in
from treadle.ops.numeric import INTEGERS, check_elements


@dataclass(frozen=True, slots=True)
class GatherPackedAttrs(Attrs):
    """`n`: the rows of the table; panels may be padded beyond them."""

    n: int


def _infer(attrs: GatherPackedAttrs, panels: Type, indices: Type) -> TensorType:
    """panels [n/nb, k, nb], indices [...] -> [..., k]"""
    held, at = tensor_type(panels), check_elements(indices, INTEGERS, "the index")
    if held.ndim != 3:
        raise TypeMismatch(f"{held} are not panels [n/nb, k, nb]")
    count, k, width = held.static_shape
    if not 0 < attrs.n <= count * width:
        raise TypeMismatch(f"{count} panels of {width} rows do not hold {attrs.n} rows")
    return held.with_shape((*at.shape, k))


def _compute(attrs: GatherPackedAttrs, panels: te.Tensor, indices: te.Tensor) -> te.Tensor:
    _, k, width = panels.shape

    def read(*i: Expr) -> Expr:
        *at, element = i
        row = position_in(indices[tuple(at)], attrs.n)
        return panels[te.floordiv(row, width), element, te.floormod(row, width)]

    return te.compute_one((*indices.shape, k), read, "gather_packed")


def _reference(attrs: GatherPackedAttrs, panels: np.ndarray, indices: np.ndarray) -> np.ndarray:
    table = panels.transpose(0, 2, 1).reshape(-1, panels.shape[1])
    return np.asarray(table[numpy_positions(indices, attrs.n)])


gather_packed: Operator[GatherPackedAttrs] = register(
    Operator(
        name="gather_packed",
        infer=_infer,
        reference=_reference,
        compute=_compute,
        attrs_type=GatherPackedAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((2, 5, 8), (2, 4)), {"n": 11}, ("float32", "int64"), -11, 10),
            Example(((3, 7, 4), ()), {"n": 12}, ("float32", "int32"), -15, 15),
        ),
    )
)
