# SPDX-License-Identifier: Apache-2.0
"""Engines held to an instruction set: what their libraries are told of the CPU."""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
from pathlib import Path

import pytest

from benchmarks import isa

XGETBV = bytes.fromhex("0f01d0")
RETURN = bytes.fromhex("c3")
ASKS = {
    "rdx": bytes.fromhex("31c9") + XGETBV + bytes.fromhex("89c048c1e2204809c24889d0") + RETURN,
    "rdi": bytes.fromhex("31c9")
    + XGETBV
    + bytes.fromhex("48c1e22089c04889d74809c74889f8")
    + RETURN,
}
"""Functions that return XCR0, by the register that its halves are joined in."""

AVX, AVX512 = 0x6, 0xE0


def answer(code: bytes) -> int:
    """Return what a function of machine code without arguments returns."""
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as m:
        m.write(code)
        place = (ctypes.c_char * len(code)).from_buffer(m)
        try:
            return int(ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(place))())
        finally:
            del place


@pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.platform != "linux" or not isa.ISAS["avx2"].is_here,
    reason="asks the processor by its own instruction",
)
@pytest.mark.parametrize("register", ASKS)
def test_masked_code_is_told_of_fewer_registers(register: str) -> None:
    code = ASKS[register]
    bound, places = isa.masked(code, isa.ISAS["avx2"].saved)
    assert (places, len(bound)) == (1, len(code))
    assert answer(code) & AVX == AVX
    assert answer(bound) == answer(code) & ~AVX512 & isa.ISAS["avx2"].saved


def test_other_answers_stay() -> None:
    """One that is tested for AVX at once, and the same bytes without the instruction."""
    asks_for_avx = XGETBV + bytes.fromhex("48f7d0a806")
    joins = bytes.fromhex("89c048c1e2204809c2")
    assert isa.masked(asks_for_avx + joins, 0x1F) == (asks_for_avx + joins, 0)


def package(folder: Path, name: str, code: bytes) -> Path:
    """Write a package with the library that an engine of that name asks for its CPU in."""
    library = folder / name / "capi" / "onnxruntime_pybind11_state.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(code)
    (folder / name / "__init__.py").write_text("")
    return library


def test_a_copy_is_bound_and_the_installed_package_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = ASKS["rdx"]
    installed = package(tmp_path / "installed", "onnxruntime", code)
    spec = type("Spec", (), {"origin": str(installed.parents[1] / "__init__.py")})
    monkeypatch.setattr(isa.importlib.util, "find_spec", lambda _: spec)
    isa.bound_copies(["onnxruntime"], isa.ISAS["avx2"], tmp_path / "held")
    copy = tmp_path / "held" / "onnxruntime" / "capi" / installed.name
    assert copy.read_bytes() == isa.masked(code, 0x1F)[0] != code
    assert installed.read_bytes() == code


def test_a_library_that_asks_in_another_way_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = package(tmp_path / "installed", "onnxruntime", XGETBV + RETURN)
    spec = type("Spec", (), {"origin": str(installed.parents[1] / "__init__.py")})
    monkeypatch.setattr(isa.importlib.util, "find_spec", lambda _: spec)
    with pytest.raises(isa.NotBoundError, match="cannot be held to avx2; leave it out of --peers"):
        isa.bound_copies(["onnxruntime"], isa.ISAS["avx2"], tmp_path / "held")
    with pytest.raises(isa.NotBoundError, match="inductor cannot be held"):
        isa.bound_copies(["inductor"], isa.ISAS["avx2"], tmp_path / "other")
