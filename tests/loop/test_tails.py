# SPDX-License-Identifier: Apache-2.0
"""The last part of a split that does not divide its axis has code of its own, or is guarded."""

from __future__ import annotations

import re

import numpy as np
import pytest

import treadle
from tests.loop.test_from_schedule import elementwise, lines_inside
from tests.te.scripts import check, matrix_product
from treadle import te


@pytest.mark.parametrize(("extent", "factor"), [(100, 16), (130, 16), (7, 16), (16, 16), (33, 32)])
def test_a_tail_is_a_loop_of_its_own(extent: int, factor: int) -> None:
    s, a, c = elementwise(extent)
    _, inner = s[c].split(s[c].op.axis[0], factor=factor)
    s[c].vectorize(inner)
    text = str(treadle.lower(s, [a, c]))
    assert "if " not in text
    widths = [int(w) for w in re.findall(r"vectorized\((\d+)\)", text)]
    full, rest = divmod(extent, factor)
    assert widths == [w for w in (factor if full else 0, rest) if w > 1]
    check(s, [a, c])


def test_uneven_tiles_of_a_product_have_no_test_inside() -> None:
    a, b, c = matrix_product(20, 36, 9)
    s = te.create_schedule(c.op)
    i, j = c.op.axis  # type: ignore[union-attr]
    _, _, ii, ji = s[c].tile(i, j, 6, 16)
    (k,) = s[c].op.reduce_axis  # type: ignore[union-attr]
    ko, ki = s[c].split(k, factor=4)
    s[c].reorder(ko, ki, ii, ji)
    s[c].vectorize(ji)
    text = str(treadle.lower(s, [a, b, c]))
    assert "if " not in text
    assert set(re.findall(r"vectorized\((\d+)\)", text)) == {"16", "4"}
    check(s, [a, b, c])


def test_a_parallel_loop_asks_once_per_turn() -> None:
    s, a, c = elementwise(100)
    outer, inner = s[c].split(s[c].op.axis[0], factor=16)
    s[c].parallel(outer)
    s[c].vectorize(inner)
    text = str(treadle.lower(s, [a, c]))
    assert text.count("if ") == 1
    assert not any("if " in line for line in lines_inside(text, "vectorized(16)"))
    check(s, [a, c])


def test_symbolic_size_is_cut_in_full_tiles_and_a_rest() -> None:
    s, a, c = elementwise(te.var("n"))
    _, inner = s[c].split(s[c].op.axis[0], factor=16)
    s[c].vectorize(inner)
    text = str(treadle.lower(s, [a, c]))
    assert "if " not in text
    assert "for i0.outer in range((n // 16)):" in text
    assert "vectorized(16)" in text


def test_a_factor_may_be_symbolic() -> None:
    n = te.var("n")
    s, a, c = elementwise(100)
    s[c].split(s[c].op.axis[0], factor=n)
    text = str(treadle.lower(s, [a, c, n]))
    assert "def main(A: float32[100], C: float32[100], n: int64):" in text


def test_a_shortened_tail_is_the_same_code() -> None:
    s, a, c = elementwise(te.var("n"))
    s[c].split(s[c].op.axis[0], factor=16, tail="shorten")
    text = str(treadle.lower(s, [a, c]))
    assert text.count("for ") == 2
    assert "min((n - (i0.outer * 16)), 16)" in text
    module = treadle.build(s, [a, c])
    for size in (0, 5, 16, 33):
        given, made = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
        module(given, made)
        np.testing.assert_array_equal(made, given * 2)
