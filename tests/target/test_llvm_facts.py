# SPDX-License-Identifier: Apache-2.0
"""Sums that have no registers are found, and what an index is a multiple of."""

from __future__ import annotations

import pytest

from tests.target.kernel import flat
from tests.targets import AVX2
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr, Var
from treadle.loop.nodes import Buffer, For, PrimFunc, Stmt, Store, seq
from treadle.target.llvm import asm_text
from treadle.target.llvm_facts import Facts, in_whole_vectors, place_parts, sums_in_memory
from treadle.target.llvm_ir import emit

R, C, K = Var("r"), Var("c"), Var("k")
ZERO = Const.of(0)
X = flat("x", "float32", 64)


def add(to: Buffer, at: Expr, index: Expr) -> Stmt:
    return Store(to, (at,), ex.load(to, [at]) + ex.load(X, [index]))


def loop(var: Var, body: Stmt) -> For:
    return For(var, Const.of(8), "serial", body)


def test_a_sum_in_a_result_has_no_registers() -> None:
    out = flat("out", "float32", 8)
    assert sums_in_memory(loop(R, loop(K, add(out, R, R * 8 + K))))
    assert not sums_in_memory(loop(K, loop(R, add(out, R, R * 8 + K))))


def test_a_sum_in_a_local_buffer_has_registers_where_its_place_is_a_constant() -> None:
    total = flat("t", "float32", 8, "local")
    assert not sums_in_memory(loop(K, add(total, ZERO, K)))
    assert sums_in_memory(loop(R, loop(K, add(total, R, R * 8 + K))))


def test_a_local_sum_that_a_loop_reads_has_no_registers() -> None:
    total, out = flat("t", "float32", 8, "local"), flat("out", "float32", 8)
    reads = loop(R, Store(out, (R,), ex.load(total, [R])))
    assert sums_in_memory(seq(loop(K, add(total, ZERO, K)), reads))


def test_the_loop_of_a_sum_in_a_result_stores_nothing() -> None:
    out = flat("out", "float32", 1)
    asm = asm_text(emit(PrimFunc("k", (X, out), (), loop(K, add(out, ZERO, K))), AVX2))
    stores = [s for s in asm.splitlines() if "vmovss" in s and s.rstrip().endswith(")")]
    assert len(stores) == 1


@pytest.mark.parametrize(
    ("index", "multiple"),
    [
        (R * 8, 8),
        (R * 24 + 16, 8),
        (R * 8 + C, 1),
        (R // 8 * 32 - 4, 4),
        (ZERO, 64),
        (Const.of(-8), 8),
        (R * 16 * 16 * 16, 64),
        (ex.binary("max", R * 8, C * 8), 1),
    ],
)
def test_multiples_of_indices(index: Expr, multiple: int) -> None:
    assert Facts().multiple_of(index) == multiple


def test_places_of_lanes() -> None:
    lanes, four = ex.ramp(ZERO, 1, 8), ex.broadcast(Const.of(4), 8)
    pairs = lanes // four * four + lanes % four
    assert place_parts(pairs) == (ZERO, tuple(range(8)))
    found = place_parts(ex.broadcast(R * 8 + 3, 8) + lanes // four * four)
    assert found is not None
    assert found[1] == (0, 0, 0, 0, 4, 4, 4, 4)
    base, places = in_whole_vectors(*found)
    assert Facts().multiple_of(base) == 8
    assert places == (3, 3, 3, 3, 7, 7, 7, 7)
    for unknown in (
        ex.broadcast(R, 8) * lanes,
        lanes // ex.broadcast(R, 8),
        ex.ramp(ZERO, R, 8),
        lanes // ex.broadcast(ZERO, 8),
    ):
        assert place_parts(unknown) is None
