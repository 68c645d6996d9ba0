# SPDX-License-Identifier: Apache-2.0
"""LLVM as a library: IR text in, optimised object code or assembly out, in this process.

LLVM options are global to a process and its Python binding holds one lock, so whole models are
compiled by the processes of treadle.target.workers, which run this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import llvmlite.binding as llvm

_SPEED_LEVEL = 3


class CompileError(Exception):
    """LLVM refuses a module; the text is LLVM's."""


@cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@cache
def disable_machine_scheduler() -> None:
    """Switch LLVM's machine scheduler off: it spills register tiles. Holds for the process."""
    _initialize()
    llvm.set_option("", "-enable-misched=false")


def triple_of(ir_text: str) -> str:
    """Return the target triple a module names."""
    found = re.search(r'^target triple = "([^"]*)"', ir_text, re.MULTILINE)
    if found is None:
        raise CompileError("the module names no target triple")
    return found[1]


@contextmanager
def _optimized(ir_text: str, cpu: str, features: str) -> Iterator[tuple[object, object]]:
    """Parse, verify and optimise a module; yields it with its target machine."""
    _initialize()
    context = llvm.create_context()
    try:
        machine = llvm.Target.from_triple(triple_of(ir_text)).create_target_machine(
            cpu=cpu, features=features, opt=_SPEED_LEVEL, reloc="pic", codemodel="default"
        )
        module = llvm.parse_assembly(ir_text, context)
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise CompileError(str(error)) from error
    options = llvm.create_pipeline_tuning_options(speed_level=_SPEED_LEVEL)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    yield module, machine


def compile_ir(ir_text: str, cpu: str = "", features: str = "") -> bytes:
    """Return the object file of a module. Raises CompileError when LLVM refuses it."""
    with _optimized(ir_text, cpu, features) as (module, machine):
        return bytes(machine.emit_object(module))  # type: ignore[attr-defined]


def asm_text(ir_text: str, cpu: str = "", features: str = "") -> str:
    """Return the assembly of a module. Raises CompileError when LLVM refuses it."""
    with _optimized(ir_text, cpu, features) as (module, machine):
        return str(machine.emit_assembly(module))  # type: ignore[attr-defined]


def optimized_text(ir_text: str, cpu: str = "", features: str = "") -> str:
    """Return the IR of a module after the optimiser."""
    with _optimized(ir_text, cpu, features) as (module, _):
        return str(module)
