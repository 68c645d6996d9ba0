# SPDX-License-Identifier: Apache-2.0
"""What instructions of several machines mean: sums of products, choices from a table."""

from __future__ import annotations

from treadle import te
from treadle.expr.nodes import int_value
from treadle.te.intrinsics import Meaning
from treadle.te.operations import Tensor


def dot(dtype: str) -> Meaning:
    """Return the meaning of an instruction that sums products of two operands' elements.

    The products and their sum are of element type `dtype`.
    """

    def meaning(a: Tensor, b: Tensor) -> Tensor:
        k = te.reduce_axis((0, a.shape[0]), "k")
        product = a[k].astype(dtype) * b[k].astype(dtype)
        return te.compute_one((), lambda: te.sum(product, axis=k), name="dot")

    return meaning


def choice(table: Tensor, index: Tensor) -> Tensor:
    """Return the element of a table of 2**n that the low n bits of an index number."""
    last = int_value(table.shape[0]) or 1
    low = index[0] & (last - 1)
    return te.compute_one((), lambda: table[low.astype("int64")], name="choice")
