# SPDX-License-Identifier: Apache-2.0
"""Integers times real factors by integers alone: fixed-point products and shifts that round.

The arithmetic is that of gemmlowp ("Building a quantization paradigm from first principles", its
document), which TFLite's reference kernels define their quantised operators by.
"""

from __future__ import annotations

import numpy as np

from treadle import te
from treadle.expr.nodes import Expr, cast, select
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.types import TensorType, Type, broadcast_shapes
from treadle.ops.axis_names import axes_like
from treadle.ops.elementwise_factory import broadcast_size
from treadle.ops.numeric import broadcast_index, check_elements, dims_of
from treadle.te.operations import Tensor

_WORD = ("int32",)
_FRACTION = 31
"""Bits behind the point of a multiplier."""


def _infer(a: Attrs, *operands: Type) -> Type:
    found = [check_elements(t, _WORD) for t in operands]
    return TensorType(broadcast_shapes(*(t.shape for t in found)), "int32")


def _scaled(x: Expr, multiplier: Expr, shift: Expr) -> Expr:
    """Round twice by one shift: floor((floor(a / p) + b) / q) is floor((a + b * p) / (p * q)).

    The second rounding adds half of 2**shift, less 1 to what is negative after the first one: there
    x is negative. At x = -1 the first may give 0, of which both sums are rounded to 0.
    """
    wide = cast(x, "int64") * cast(multiplier, "int64")
    count = cast(shift, "int64")
    half = (cast(1, "int64") << count) >> 1
    offset = (half << _FRACTION) + (1 << (_FRACTION - 1))
    below = select(shift > 0, offset - (1 << _FRACTION), offset)
    return cast((wide + select(x < 0, below, offset)) >> (count + _FRACTION), "int32")


def _scaled_array(a: Attrs, *arrays: np.ndarray) -> np.ndarray:
    x, multiplier, shift = (v.astype(np.int64) for v in arrays)
    high = (x * multiplier + (1 << (_FRACTION - 1))) >> _FRACTION
    mask = (np.int64(1) << shift) - 1
    return np.asarray((high >> shift) + ((high & mask) > (mask >> 1) + (high < 0)), np.int32)


def _compute(a: Attrs, *operands: Tensor) -> Tensor:
    shape = broadcast_shapes(*(dims_of(x) for x in operands))
    return te.compute_one(
        shape,
        lambda *i: _scaled(*(x[broadcast_index(x, i)] for x in operands)),
        "fixed_point_multiply",
        axes=axes_like(len(shape), *operands),
    )


_EXTREMES = np.array([-(2**31), -(2**31) + 1, -(2**30), -3, -2, -1, 0, 1, 2, 3, 2**30, 2**31 - 1])
_FACTORS = np.array([2**30, 2**30 + 1, 3 * 2**29, 2**31 - 1, 0])

fixed_point_multiply: Operator[Attrs] = register(
    Operator(
        name="fixed_point_multiply",
        infer=_infer,
        reference=_scaled_array,
        compute=_compute,
        fusion=Fusion.BROADCAST,
        keeps_finite=True,
        examples=(
            Example(((4, 5, 5), (4, 1, 1), (4, 1, 1)), {}, ("int32",) * 3, 1, 20),
            Example(
                ((12, 1), (5,), ()),
                {},
                ("int32",) * 3,
                inputs={
                    0: _EXTREMES.reshape(12, 1).astype(np.int32),
                    1: _FACTORS.astype(np.int32),
                    2: np.array(1, np.int32),
                },
            ),
            Example(
                ((12, 1), (), (4,)),
                {},
                ("int32",) * 3,
                inputs={
                    0: _EXTREMES.reshape(12, 1).astype(np.int32),
                    1: np.array(3 * 2**29, np.int32),
                    2: np.array([0, 1, 8, 31], np.int32),
                },
            ),
        ),
        flops=broadcast_size,
    )
)
"""fixed_point_multiply(x, multiplier, shift) of int32, broadcast -> int32: x * multiplier / 2**31
to the nearest integer, of two the larger; that divided by 2**shift to the nearest integer, of two
the one farther from zero. Multipliers are 0 to 2**31 - 1, shifts 0 to 31."""
