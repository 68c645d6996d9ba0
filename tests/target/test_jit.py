# SPDX-License-Identifier: Apache-2.0
"""Loading object files into the process."""

from __future__ import annotations

import ctypes

import pytest

from treadle.errors import InternalError
from treadle.target.host import host
from treadle.target.jit import JitModule
from treadle.target.llvm import CompileError, compile_ir


def adder(name: str, value: float) -> bytes:
    """Return a kernel with a constant in read-only data and a call between its functions."""
    return compile_ir(
        f'target triple = "{host().triple}"\n'
        f"@table.{name} = internal constant [2 x double] [double {value:.1f}, double 0.5]\n"
        f"define internal double @inner(double %x, i64 %i) noinline {{\n"
        f"  %p = getelementptr double, ptr @table.{name}, i64 %i\n"
        "  %c = load double, ptr %p\n  %s = fadd double %x, %c\n  ret double %s\n}\n"
        f"define double @{name}(double %x, i64 %i) {{\n"
        "  %s = call double @inner(double %x, i64 %i)\n  ret double %s\n}\n"
    )


def test_many_objects_live_in_one_module() -> None:
    module = JitModule([adder(f"add{n}", float(n)) for n in range(20)])
    kind = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_int64)
    for n in range(20):
        function = kind(module.address(f"add{n}"))
        assert function(1.0, 0) == 1.0 + n
        assert function(1.0, 1) == 1.5


def test_modules_are_independent() -> None:
    kind = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_int64)
    one, two = JitModule([adder("add", 1.0)]), JitModule([adder("add", 2.0)])
    first, second = kind(one.address("add")), kind(two.address("add"))
    assert (first(0.0, 0), second(0.0, 0)) == (1.0, 2.0)
    del two
    assert first(0.0, 0) == 1.0


def test_a_missing_function_is_an_error() -> None:
    with pytest.raises(InternalError, match="no function sub"):
        JitModule([adder("add", 1.0)]).address("sub")


def test_bytes_that_are_no_object_are_refused() -> None:
    with pytest.raises(InternalError, match="not for this machine"):
        JitModule([b"not an object file"])
    with pytest.raises(InternalError, match="not for this machine"):
        JitModule([compile_ir('target triple = "riscv64-linux-gnu"')])
    with pytest.raises(InternalError, match="cut short"):
        JitModule([adder("add", 1.0)[:-100]])


def test_ir_without_a_triple_is_refused() -> None:
    with pytest.raises(CompileError, match="no target triple"):
        compile_ir("define void @f() {\n  ret void\n}\n")
