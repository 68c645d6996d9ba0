# SPDX-License-Identifier: Apache-2.0
"""Elements read as another type of the same size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Expr
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.types import Type
from treadle.ops.numeric import ANY, check_elements
from treadle.te.operations import Tensor


@dataclass(frozen=True, slots=True)
class BitcastAttrs(Attrs):
    """The type the bits of an element are read as."""

    dtype: str = "int32"


def _infer(a: BitcastAttrs, x: Type) -> Type:
    source = check_elements(x, ANY)
    if a.dtype not in ANY or dt.itemsize(a.dtype) != dt.itemsize(source.dtype):
        raise TypeMismatch(f"the bits of {source.dtype} cannot be read as {a.dtype}")
    return source.with_dtype(a.dtype)


def _compute(a: BitcastAttrs, x: Tensor) -> Tensor:
    def element(*i: Expr) -> Expr:
        if a.dtype == x.dtype:
            return x[i]
        if "bool" in (a.dtype, x.dtype):  # a byte that is 0 or 1
            return nodes.cast(x[i], a.dtype)
        return nodes.call("bitcast", x[i], dtype=a.dtype)

    return te.compute_one(x.shape, element, "bitcast")


bitcast: Operator[BitcastAttrs] = register(
    Operator(
        name="bitcast",
        infer=_infer,
        reference=lambda a, x: np.ascontiguousarray(x).view(dt.to_numpy(a.dtype)).reshape(x.shape),
        compute=_compute,
        attrs_type=BitcastAttrs,
        fusion=Fusion.ELEMENTWISE,
        examples=(
            Example(((3, 5),), {"dtype": "int32"}),
            Example(((40,),), {"dtype": "float32"}, ("uint32",), 0, 2**30),
            Example(((),), {"dtype": "int64"}, ("float64",)),
            Example(((7,),), {"dtype": "uint16"}, ("float16",)),
            Example(((7,),), {"dtype": "int16"}, ("bfloat16",)),
            Example(((7,),), {"dtype": "int8"}, ("uint8",), 0, 255),
            Example(((7,),), {"dtype": "uint8"}, ("bool",)),
            Example(((7,),), {"dtype": "bool"}, ("int8",), 0, 1),
        ),
    )
)
