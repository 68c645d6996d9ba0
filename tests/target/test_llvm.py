# SPDX-License-Identifier: Apache-2.0
"""LLVM makes of emitted text the machine code that it is meant to."""

from __future__ import annotations

import pytest

from tests.target.kernel import flat
from tests.target.test_llvm_ir import ZERO, fill, row_sums, tile, two_stages
from tests.targets import AVX2, AVX512, MACHINES, NEON
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Var
from treadle.loop.nodes import For, Prefetch, PrimFunc, Store, seq
from treadle.target.base import Target
from treadle.target.llvm import asm_text, compile_ir, spill_count
from treadle.target.llvm_ir import emit
from treadle.target.parse import parse_target


def copy_of(value: str, lanes: int) -> PrimFunc:
    x, out = flat("x", "float32", 64), flat("out", "float32", 64)
    i = Var("i")
    at = ex.ramp(i * lanes, 1, lanes)
    loaded = ex.load(x, [at])
    result = ex.maximum(loaded, 0.0) if value == "relu" else loaded
    body = For(i, Const.of(64 // lanes), "serial", Store(out, (at,), result))
    return PrimFunc("k", (x, out), (), body)


def loop_lines(asm: str) -> list[str]:
    """Return the vector instructions of an assembly text, without moves of constants."""
    return [s.strip() for s in asm.splitlines() if s.strip().startswith("v")]


@pytest.mark.parametrize(
    ("options", "instruction"),
    [
        ("-mtriple=x86_64-linux-gnu", ("prefetcht0", "prefetcht1")),
        ("-mtriple=aarch64-linux-gnu", ("pldl1keep", "pldl2keep")),
    ],
)
@pytest.mark.parametrize("level", [1, 2])
def test_a_prefetch_reaches_the_machine(
    options: str, instruction: tuple[str, str], level: int
) -> None:
    x, out, i = flat("x", "float32", 64), flat("out", "float32", 64), Var("i")
    copy = seq(Prefetch(x, (i * 4 + 32,), level), Store(out, (i,), ex.load(x, [i])))
    func = PrimFunc("copy", (x, out), (), For(i, Const.of(64), "parallel", copy))
    assert instruction[level - 1] in asm_text(emit(func, parse_target(f"llvm {options}")))


def test_an_unroll_pragma_reaches_llvm() -> None:
    x, out = flat("x", "float32", 64), flat("out", "float32", 1)
    i = Var("i")
    add = Store(out, (ZERO,), ex.load(out, [ZERO]) + ex.load(x, [i]))
    pragmas = (("unroll", 8),)
    func = PrimFunc("k", (x, out), (), For(i, Const.of(64), "serial", add, pragmas=pragmas))
    assert '!"llvm.loop.unroll.count", i32 8' in emit(func, AVX2)
    plain = PrimFunc("k", (x, out), (), For(i, Const.of(64), "serial", add))
    assert asm_text(emit(func, AVX2)).count("addss") == 8
    assert asm_text(emit(plain, AVX2)).count("addss") == 1


@pytest.mark.parametrize("target", [AVX2, AVX512], ids=["avx2", "avx512"])
def test_relu_is_one_instruction(target: Target) -> None:
    asm = asm_text(emit(copy_of("relu", target.lanes()), target))
    lines = [s for s in loop_lines(asm) if not s.startswith(("vxorps", "vzeroupper"))]
    assert [s.split()[0] for s in lines] == ["vmaxps", "vmovups"]


def _bounded_size(target: Target, limit: float) -> str:
    """Return the code of the size of a value of at most `limit`: of a choice with a constant."""
    lanes = target.lanes()
    x, out, i = flat("x", "float32", 64), flat("out", "float32", 64), Var("i")
    at = ex.ramp(i * lanes, 1, lanes)
    loaded = ex.load(x, [at])
    bound = ex.broadcast(Const.of(limit, "float32"), lanes)
    size = ex.call("abs", ex.select(ex.binary("gt", loaded, bound), bound, loaded))
    body = For(i, Const.of(64 // lanes), "serial", Store(out, (at,), size))
    return asm_text(emit(PrimFunc("k", (x, out), (), body), target))


@pytest.mark.parametrize("target", [AVX2, AVX512, NEON], ids=["avx2", "avx512", "neon"])
def test_a_bound_is_one_instruction(target: Target) -> None:
    """LLVM would choose between the size of the bound and that of the value."""
    asm = _bounded_size(target, 16.0)
    assert "minps" in asm or "fmin" in asm
    assert not any(word in asm for word in ("blend", "cmpltps", "fcmgt", "bsl"))


def test_a_bound_of_zero_keeps_the_sign_of_zero() -> None:
    assert "fmin" not in _bounded_size(NEON, 0.0)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("func", [fill(0.0), copy_of("copy", 1)], ids=["fill", "copy"])
def test_copies_and_fills_call_no_library(func: PrimFunc, machine: str) -> None:
    asm = asm_text(emit(func, MACHINES[machine]))
    assert "memset" not in asm
    assert "memcpy" not in asm


@pytest.mark.parametrize(
    ("target", "rows", "vectors"), [(AVX512, 12, 2), (AVX512, 6, 4), (AVX2, 6, 2), (NEON, 8, 3)]
)
def test_register_tiles_stay_in_registers(target: Target, rows: int, vectors: int) -> None:
    asm = asm_text(emit(tile(rows, vectors, target.lanes()), target))
    assert spill_count(asm) == 0
    fused = [s for s in asm.splitlines() if s.strip().startswith(("vfmadd", "fmla"))]
    assert len(fused) == rows * vectors


def test_a_tile_too_large_for_the_registers_is_seen_to_spill() -> None:
    asm = asm_text(emit(tile(12, 2, 16), AVX2))
    assert spill_count(asm) > 10


def test_spills_are_counted_in_innermost_loops_only() -> None:
    asm = """
    vmovups %zmm0, 64(%rsp)
.LBB0_1:
    vmovups 64(%rsp), %zmm1
.LBB0_2:
    vfmadd231ps 128(%rsp), %zmm1, %zmm2
    movq 8(%rsp), %rax
    jne .LBB0_2
    jl .LBB0_1
"""
    assert spill_count(asm) == 1
    arm = "\n.LBB0_1:\n\tldr\tq0, [sp, #16]\n\tldr\tx0, [sp]\n\tb.ne\t.LBB0_1\n"
    assert spill_count(arm) == 1


@pytest.mark.parametrize(
    ("options", "magic", "machine"),
    [
        ("-mtriple=aarch64-linux-gnu", b"\x7fELF\x02", 183),
        ("-mtriple=x86_64-linux-gnu", b"\x7fELF\x02", 62),
        ("-mtriple=riscv64-linux-gnu", b"\x7fELF\x02", 243),
    ],
)
def test_other_machines_get_objects(options: str, magic: bytes, machine: int) -> None:
    target = parse_target(f"llvm {options}")
    for func in (row_sums(), tile(4, 2, 4), two_stages({"a": 0, "b": 128}, 256)):
        data = compile_ir(emit(func, target))
        assert data.startswith(magic)
        assert int.from_bytes(data[18:20], "little") == machine
