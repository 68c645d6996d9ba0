# SPDX-License-Identifier: Apache-2.0
"""Loads and stores of generated code: strides, gathers, masks, lanes that fill no register."""

from __future__ import annotations

import numpy as np
import pytest

from tests.target.kernel import FAR, flat, padded, run
from tests.targets import AVX2
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr, Var
from treadle.loop.nodes import Allocate, For, PrimFunc, Store, seq
from treadle.target.llvm import asm_text
from treadle.target.llvm_builder import Machine
from treadle.target.llvm_ir import emit
from treadle.target.parse import parse_target

BASE = Const.of(3)


def copy_kernel(lanes: int, dtype: str = "float32") -> PrimFunc:
    """Return y[3 + i] = x[3 + i] for `lanes` lanes at once."""
    x, y = flat("x", dtype, 40), flat("y", dtype, 40)
    at = ex.ramp(BASE, 1, lanes)
    return PrimFunc("f", (x, y), (), Store(y, (at,), ex.load(x, (at,))))


@pytest.mark.parametrize("lanes", [5, 7, 11, 15, 20, 31])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int16", "bool"])
def test_odd_lanes_are_copied_and_nothing_else(lanes: int, dtype: str) -> None:
    x = (np.arange(40) % 7).astype(dtype)
    y = np.ones(40, dtype)
    run(copy_kernel(lanes, dtype), [x, y])
    expected = np.ones(40, dtype)
    expected[3 : 3 + lanes] = x[3 : 3 + lanes]
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    ("target", "masked"),
    [("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512", True),
     ("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell", True),
     ("llvm -mtriple=x86_64-linux-gnu -mcpu=nehalem", False),
     ("llvm -mtriple=aarch64-linux-gnu", False)],
)  # fmt: skip
def test_only_machines_with_masks_use_them(target: str, masked: bool) -> None:
    machine = parse_target(target)
    assert (Machine.of(machine).least_masked > 0) == masked
    assert ("masked.load" in emit(copy_kernel(15), machine)) == masked


@pytest.mark.parametrize("odd", [0, 1])
def test_every_second_element_of_a_local_buffer_is_two_whole_vectors(odd: int) -> None:
    x, t, y = flat("x", "float32", 32), flat("t", "float32", 32, "local"), flat("y", "float32", 16)
    zero = Const.of(0)
    body = seq(
        Store(t, (ex.ramp(zero, 1, 16),), ex.load(x, (ex.ramp(zero, 1, 16),))),
        Store(t, (ex.ramp(Const.of(16), 1, 16),), ex.load(x, (ex.ramp(Const.of(16), 1, 16),))),
        Store(y, (ex.ramp(zero, 1, 16),), ex.load(t, (ex.ramp(Const.of(odd), 2, 16),))),
    )
    func = PrimFunc("f", (x, y), (), Allocate(t, body))
    assert "gather" not in emit(func, AVX2)
    values, result = np.arange(32, dtype=np.float32), np.zeros(16, np.float32)
    run(func, [values, result])
    np.testing.assert_array_equal(result, values[odd::2])


def gather_with(index: Expr, size: int, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    """Return x and x[index] computed by one vector load."""
    x = np.arange(1, size + 1).astype(dtype)
    source, out = flat("x", dtype, size), flat("out", dtype, index.lanes)
    body = Store(out, (ex.ramp(0, 1, index.lanes),), ex.load(source, [index]))
    result = np.zeros(index.lanes, dtype)
    run(PrimFunc("k", (source, out), (), body), [x, result])
    return x, result


@pytest.mark.parametrize("lanes", [2, 3, 4, 5, 8, 16, 32])
@pytest.mark.parametrize("stride", [-2, -1, 0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["float32", "uint8", "float64"])
def test_strided_loads(dtype: str, stride: int, lanes: int) -> None:
    base = 3 if stride >= 0 else 3 - stride * (lanes - 1)
    # The last element read is the last there is, so that reading on would leave the buffer.
    size = 4 + abs(stride) * (lanes - 1)
    x, got = gather_with(ex.ramp(base, stride, lanes), size, dtype)
    np.testing.assert_array_equal(got, x[base + stride * np.arange(lanes)])


def test_a_vector_index_that_is_a_sum_of_ramps_is_one_load() -> None:
    i = ex.ramp(0, 1, 8) * 2 + ex.broadcast(Const.of(5), 8) - ex.ramp(1, 1, 8)
    x, got = gather_with(i, 12)
    np.testing.assert_array_equal(got, x[4:12])
    source, out = flat("x", "float32", 12), flat("out", "float32", 8)
    body = Store(out, (ex.ramp(0, 1, 8),), ex.load(source, [i]))
    assert "gather" not in emit(PrimFunc("k", (source, out), (), body), AVX2)


def test_gather_and_scatter_with_computed_indices() -> None:
    table, places = flat("table", "float32", 50), flat("places", "int64", 16)
    out = flat("out", "float32", 64)
    at = ex.load(places, [ex.ramp(0, 1, 16)])
    body = Store(out, (at,), ex.load(table, [at]) + 1.0)
    rng = np.random.default_rng(0)
    x, where = rng.normal(size=50).astype(np.float32), rng.permutation(50)[:16].astype(np.int64)
    result = np.zeros(64, np.float32)
    run(PrimFunc("k", (table, places, out), (), body), [x, where, result])
    want = np.zeros(64, np.float32)
    want[where] = x[where] + 1
    np.testing.assert_array_equal(result, want)


def test_strided_store() -> None:
    out = flat("out", "int32", 40)
    body = Store(out, (ex.ramp(1, 4, 8),), ex.cast(ex.ramp(10, 1, 8), "int32"))
    result = np.zeros(40, np.int32)
    run(PrimFunc("k", (out,), (), body), [result])
    want = np.zeros(40, np.int32)
    want[1:33:4] = np.arange(10, 18)
    np.testing.assert_array_equal(result, want)


def test_bool_vectors_take_a_byte_each_and_any_nonzero_byte_is_true() -> None:
    x, out = flat("x", "bool", 8), flat("out", "bool", 8)
    i = ex.ramp(0, 1, 8)
    body = Store(out, (i,), ex.call("not", ex.load(x, [i])))
    raw = np.array([0, 1, 2, 255, 0, 0, 1, 1], np.uint8)
    result = np.zeros(8, bool)
    run(PrimFunc("k", (x, out), (), body), [raw.view(bool), result])
    np.testing.assert_array_equal(result, raw == 0)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("stride", [2, 3, 4])
def test_strided_loads_under_a_mask_read_only_lanes_that_are_on(stride: int, lanes: int) -> None:
    lane = ex.ramp(0, 1, lanes)
    for on in range(lanes + 1):
        size = max(1, stride * (on - 1) + 1)
        cond = ex.binary("lt", lane, ex.broadcast(Const.of(on), lanes))
        got = padded(lanes, ex.ramp(0, stride, lanes), cond, size)
        want = np.where(np.arange(lanes) < on, 1 + stride * np.arange(lanes), -1)
        np.testing.assert_array_equal(got, want)
    off = ex.binary("ge", lane, ex.broadcast(Const.of(lanes - 1), lanes))
    got = padded(lanes, ex.ramp(FAR, stride, lanes), ex.binary("lt", lane, lane), 1)
    np.testing.assert_array_equal(got, np.full(lanes, -1))
    got = padded(lanes, ex.ramp(0, stride, lanes), off, stride * (lanes - 1) + 1)
    np.testing.assert_array_equal(got[-2:], [-1, 1 + stride * (lanes - 1)])


def test_unaligned_elements_in_the_middle_of_a_buffer() -> None:
    x, out = flat("x", "float32", 64), flat("out", "float32", 64)
    i = Var("i")
    body = For(
        i,
        Const.of(3),
        "serial",
        Store(out, (ex.ramp(i * 17 + 1, 1, 16),), ex.load(x, [ex.ramp(i * 13 + 3, 1, 16)])),
    )
    a, result = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    run(PrimFunc("k", (x, out), (), body), [a, result])
    want = np.zeros(64, np.float32)
    for k in range(3):
        want[k * 17 + 1 : k * 17 + 17] = a[k * 13 + 3 : k * 13 + 19]
    np.testing.assert_array_equal(result, want)


def test_local_buffers_hold_bool_and_half() -> None:
    x, out = flat("x", "float16", 8), flat("out", "float16", 8)
    keep = flat("keep", "bool", 8, "local")
    half = flat("half", "float16", 8, "local")
    i = ex.ramp(0, 1, 8)
    body = Allocate(
        keep,
        Allocate(
            half,
            seq(
                Store(keep, (i,), ex.load(x, [i]) > 2.0),
                Store(half, (i,), ex.load(x, [i]) * 2.0),
                Store(out, (i,), ex.select(ex.load(keep, [i]), ex.load(half, [i]), 0.0)),
            ),
        ),
    )
    a, result = np.arange(8).astype(np.float16), np.zeros(8, np.float16)
    run(PrimFunc("k", (x, out), (), body), [a, result])
    np.testing.assert_array_equal(result, np.where(a > 2, a * 2, 0))


def picked(base: Expr, places: Expr, size: int = 64) -> PrimFunc:
    """Return y = the 16 elements of x at `base` + `places`."""
    x, y = flat("x", "float32", size), flat("y", "float32", 16)
    at = ex.broadcast(base, 16) + places
    return PrimFunc("f", (x, y), (), Store(y, (ex.ramp(Const.of(0), 1, 16),), ex.load(x, (at,))))


LANES = ex.ramp(Const.of(0), 1, 16)
OF_FOUR = LANES // ex.broadcast(Const.of(4), 16) * ex.broadcast(Const.of(4), 16)


@pytest.mark.parametrize("past", range(4))
def test_places_within_a_vector_are_a_shuffle(past: int) -> None:
    kernel = picked(Const.of(32 + past), OF_FOUR)
    text = emit(kernel, parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512"))
    assert "gather" not in text
    x, y = np.arange(64, dtype="float32"), np.zeros(16, "float32")
    run(kernel, [x, y])
    np.testing.assert_array_equal(y, 32 + past + np.arange(16) // 4 * 4)


@pytest.mark.parametrize(
    ("base", "places", "size"),
    [
        (36, OF_FOUR, 64),  # the last lanes lie in the next vector
        (32, OF_FOUR, 60),  # what is read beside them lies past the end
        (32, LANES // ex.broadcast(Const.of(4), 16) * ex.broadcast(Const.of(7), 16), 64),
    ],
)
def test_places_of_several_vectors_are_gathered(base: int, places: Expr, size: int) -> None:
    kernel = picked(Const.of(base), places, size)
    text = emit(kernel, parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512"))
    assert "gather" in text


@pytest.mark.parametrize(
    "target",
    ["llvm -mtriple=aarch64-linux-gnu", "llvm -mtriple=riscv64-linux-gnu"],
)
def test_every_machine_shuffles(target: str) -> None:
    assert asm_text(emit(picked(Const.of(33), OF_FOUR), parse_target(target)))


def test_a_vector_is_loaded_for_each_of_its_shuffles() -> None:
    """A shared one would take a register as long as one of them is still to be made."""
    x, y = flat("x", "float32", 64), flat("y", "float32", 64)
    stores = [
        Store(
            y,
            (ex.ramp(Const.of(16 * k), 1, 16),),
            ex.load(x, (ex.broadcast(Const.of(k), 16) + OF_FOUR,)),
        )
        for k in range(4)
    ]
    target = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512")
    asm = asm_text(emit(PrimFunc("f", (x, y), (), seq(*stores)), target))
    shuffles = [line for line in asm.splitlines() if "vpermilps" in line or "vshufps" in line]
    assert len([line for line in shuffles if "(" in line]) == 4
