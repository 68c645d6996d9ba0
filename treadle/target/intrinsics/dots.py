# SPDX-License-Identifier: Apache-2.0
"""Which intrinsic sums the products of elements of two types on a target."""

from __future__ import annotations

from treadle.target.base import Target
from treadle.target.intrinsics import arm, x86
from treadle.te.intrinsics import Intrinsic

DOTS = (
    x86.vpdpbusd,
    x86.vpdpwssd,
    x86.pmaddwd,
    x86.vdpbf16ps,
    arm.sdot,
    arm.udot,
    arm.usdot,
    arm.bfdot,
)
"""The dot products, of those for the same types the better ones first."""


def dot_for(a: str, b: str, target: Target) -> Intrinsic | None:
    """Return the intrinsic that a target has for products of `a` and `b`; None: it has none."""
    for record in DOTS:
        types = tuple(o.dtype for o in record.operands)
        if types == (a, b) and record.forms_for(target.features):
            return record
    return None
