# SPDX-License-Identifier: Apache-2.0
"""Loading object code: linked by Treadle where it can, by LLVM where it cannot."""

from __future__ import annotations

import ctypes

import pytest

from treadle.errors import InternalError
from treadle.runtime.toolchain import own_machine
from treadle.target.host import host
from treadle.target.jit import JitModule
from treadle.target.llvm import compile_ir
from treadle.target.loading import LinkedCode, load_objects

pytestmark = pytest.mark.skipif(
    own_machine(None) is None, reason="Treadle does not link for this machine"
)


def adder(name: str, value: float) -> bytes:
    """Return a kernel that adds numbers of a table in read-only data."""
    return compile_ir(
        f'target triple = "{host().triple}"\n'
        f"@table.{name} = internal constant [2 x double] [double {value:.1f}, double 0.5]\n"
        f"define double @{name}(double %x, i64 %i) {{\n"
        f"  %p = getelementptr double, ptr @table.{name}, i64 %i\n"
        "  %c = load double, ptr %p\n  %s = fadd double %x, %c\n  ret double %s\n}\n"
    )


def caller() -> bytes:
    """Return a kernel that calls a function of the C library."""
    return compile_ir(
        f'target triple = "{host().triple}"\n'
        "declare i32 @toupper(i32)\n"
        "define i32 @large(i32 %x) {\n  %r = call i32 @toupper(i32 %x)\n  ret i32 %r\n}\n"
    )


def test_objects_are_linked_and_run() -> None:
    code = load_objects([adder(f"add{n}", float(n)) for n in range(5)])
    assert isinstance(code, LinkedCode)
    kind = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_int64)
    for n in range(5):
        function = kind(code.address(f"add{n}"))
        assert (function(1.0, 0), function(1.0, 1)) == (1.0 + n, 1.5)


def test_kernels_of_one_name_are_independent() -> None:
    kind = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_int64)
    one, two = load_objects([adder("add", 1.0)]), load_objects([adder("add", 2.0)])
    first, second = kind(one.address("add")), kind(two.address("add"))
    assert (first(0.0, 0), second(0.0, 0)) == (1.0, 2.0)
    del two
    assert first(0.0, 0) == 1.0


def test_code_that_calls_the_c_library_is_loaded_by_llvm() -> None:
    code = load_objects([caller()])
    assert isinstance(code, JitModule)
    large = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(code.address("large"))
    assert large(ord("a")) == ord("A")


def test_a_missing_function_is_an_error() -> None:
    with pytest.raises(InternalError, match="no function sub"):
        load_objects([adder("add", 1.0)]).address("sub")


def test_bytes_that_are_no_object_are_refused() -> None:
    with pytest.raises(InternalError, match="not for this machine"):
        load_objects([b"not an object file"])
    with pytest.raises(InternalError, match="cut short"):
        load_objects([adder("add", 1.0)[:-100]])
