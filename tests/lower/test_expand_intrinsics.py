# SPDX-License-Identifier: Apache-2.0
"""Intrinsics that a target lacks are written out as what they mean."""

from __future__ import annotations

import pytest

from treadle.expr import nodes as ex
from treadle.expr.nodes import Const
from treadle.loop.nodes import Buffer, PrimFunc, Store, shape_of
from treadle.lower.expand_intrinsics import expand_intrinsics
from treadle.target.intrinsics.x86 import pmaddwd

pytestmark = pytest.mark.tiny


def kernel() -> PrimFunc:
    a, b = (Buffer(n, "int16", shape_of(2)) for n in "ab")
    c = Buffer("c", "int32", shape_of(1))
    args = [ex.load(x, [Const.of(k)]) for x in (a, b) for k in range(2)]
    return PrimFunc("k", (a, b, c), (), Store(c, (Const.of(0),), ex.apply(pmaddwd, args)))


def test_the_meaning_takes_the_place_of_an_intrinsic() -> None:
    text = str(expand_intrinsics(kernel()))
    assert "c[0] = ((int32(a[0]) * int32(b[0])) + (int32(a[1]) * int32(b[1])))" in text


def test_what_the_target_has_is_kept() -> None:
    text = str(expand_intrinsics(kernel(), is_kept=lambda record: record is pmaddwd))
    assert "c[0] = x86.pmaddwd(a[0], a[1], b[0], b[1])" in text
