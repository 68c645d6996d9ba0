# SPDX-License-Identifier: Apache-2.0
"""Features of loop nests: what they count, and that they follow the schedule."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest

from tests.targets import AVX2, AVX512
from tests.tune.test_template import product
from treadle.build.kernel import Kernel
from treadle.errors import UsageError
from treadle.expr.nodes import Const, Var, load
from treadle.loop.nodes import Buffer, For, Let, PrimFunc, Stmt, Store
from treadle.tune.features import KINDS, loop_features

pytestmark = pytest.mark.tiny

ROW, COLUMN, DEPTH = (Var(name, "int64") for name in ("row", "column", "depth"))
HEAD = 3
"""Columns of the whole function."""
PER_LOOP = 3 + 5 + 3 * 4


def size(n: int) -> Const:
    return Const.of(n, "int64")


def nest(rows: int, columns: int, *, is_swapped: bool = False) -> PrimFunc:
    """Return out[i, j] = x[j, i] as a loop nest."""
    x = Buffer("x", "float32", (size(columns), size(rows)))
    out = Buffer("out", "float32", (size(rows), size(columns)))
    body: Stmt = Store(out, (ROW, COLUMN), load(x, (COLUMN, ROW)))
    loops = [(ROW, rows, "parallel"), (COLUMN, columns, "vectorized")]
    for var, extent, kind in loops if is_swapped else reversed(loops):
        body = For(var, size(extent), kind, body)  # type: ignore[arg-type]  # a kind
    return PrimFunc("transpose", (x, out), (), body)


def inner_loop(func: PrimFunc) -> list[float]:
    """Return the columns of the innermost loop of the store that runs most often."""
    return [float(x) for x in loop_features(func, "itervar")[HEAD : HEAD + PER_LOOP]]


def test_a_loop_has_its_extent_its_kind_and_what_it_touches() -> None:
    row = inner_loop(nest(8, 16))
    assert row[:3] == pytest.approx([log2(17), log2(9), log2(17)])
    assert row[3:8] == [0, 0, 1, 0, 0]  # vectorized
    touched, reuse, stride = row[8:11]
    assert touched == pytest.approx(log2(1 + 16 * 4))
    assert reuse == 1.0  # every element once
    assert sorted((stride, row[13])) == pytest.approx([1.0, log2(1 + 8)])  # along rows, and across


def test_the_order_of_loops_is_seen() -> None:
    there, back = nest(8, 16), nest(8, 16, is_swapped=True)
    assert inner_loop(back)[3:8] == [0, 1, 0, 0, 0]
    for kind in KINDS:
        assert not np.array_equal(loop_features(there, kind), loop_features(back, kind))


def test_reuse_grows_where_a_loop_reads_the_same_again() -> None:
    x, out = Buffer("x", "float32", (size(4),)), Buffer("out", "float32", (size(1),))
    body: Stmt = Store(out, (size(0),), load(x, (DEPTH,)))
    for var, extent in ((DEPTH, 4), (ROW, 32)):
        body = For(var, size(extent), "serial", body)
    outer = loop_features(PrimFunc("sum", (x, out), (), body), "itervar")[HEAD + PER_LOOP :]
    assert outer[8:11] == pytest.approx([log2(1 + 16), log2(1 + 32), 0.0])  # x, 32 times
    assert outer[11:14] == pytest.approx([log2(1 + 4), log2(1 + 128), 0.0])  # out


def test_names_for_values_are_looked_through() -> None:
    x, out = (Buffer(n, "float32", (size(64),)) for n in ("x", "out"))
    name = Var("at", "int64")
    inner = Let(name, ROW * 2, Store(out, (ROW,), load(x, (name,))))
    func = PrimFunc("even", (x, out), (), For(ROW, size(32), "serial", inner))
    assert sorted(inner_loop(func)[10:14:3]) == pytest.approx([1.0, log2(3)])


def test_sizes_of_run_time_and_empty_functions_have_features() -> None:
    n = Var("n", "int64")
    out = Buffer("out", "float32", (n,))
    func = PrimFunc("fill", (out,), (n,), For(ROW, n, "serial", Store(out, (ROW,), Const.of(0.0))))
    for kind in KINDS:
        row = loop_features(func, kind)
        assert np.isfinite(row).all()
        assert row.any()
        assert not loop_features(func.with_body(Store(out, (size(0),), Const.of(0.0))), kind)[
            HEAD:
        ][:8].any()


@pytest.mark.parametrize("kind", KINDS)
def test_all_loop_nests_have_the_same_columns(kind: str) -> None:
    rows = []
    for shape, target in (((48, 64, 32), AVX512), ((5, 7, 3), AVX2)):
        kernel = Kernel(product(*shape), target)
        rows += [loop_features(kernel.loops, kind), loop_features(kernel.lowered, kind)]
    assert len({row.shape for row in rows}) == 1
    assert all(np.isfinite(row).all() for row in rows)
    assert len({row.tobytes() for row in rows}) == len(rows)


def test_configurations_of_a_kernel_differ_in_their_features() -> None:
    kernel = Kernel(product(48, 64, 32), AVX512)
    for kind in KINDS:
        seen = set()
        for config in list(kernel.space)[:6]:
            kernel.configure(config)
            seen.add(loop_features(kernel.loops, kind).tobytes())
        assert len(seen) > 1


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="no loop features of kind 'knob'"):
        loop_features(nest(2, 2), "knob")
