# SPDX-License-Identifier: Apache-2.0
"""LLVM as a library: IR text in, optimised object code or assembly out, in this process.

LLVM options are global to a process and its Python binding holds one lock, so whole models are
compiled by the processes of treadle.target.workers, which run this module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import llvmlite
import llvmlite.binding as llvm
from llvmlite.utils import get_library_name

LIBRARY = get_library_name()
"""The file name of LLVM, which importing this module loads."""

_SPEED_LEVEL = 3
_PASSES = (
    "simplify_cfg",
    "sroa",
    "instruction_combine",
    "new_gvn",
    "jump_threading",
    "simplify_cfg",
    "dead_code_elimination",
)
"""What a module of kernels needs of LLVM's optimiser: its loops have the form that code generators
want, what is the same in all iterations stands before them, and nothing is to be inlined. A module
whose functions have the attribute "all-passes" is given all that LLVM does at its level."""


class CompileError(Exception):
    """LLVM refuses a module; the text is LLVM's."""


def _architecture(triple: str) -> str:
    return triple.partition("-")[0]


def _initialize(triple: str) -> None:
    """Make LLVM able to compile for a triple. All its back ends take ten megabytes."""
    if _architecture(triple) == _architecture(llvm.get_process_triple()):
        _initialize_own()
    else:
        _initialize_all()


@cache
def _initialize_own() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@cache
def _initialize_all() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@cache
def disable_machine_scheduler() -> None:
    """Switch LLVM's machine scheduler off: it spills register tiles. Holds for the process."""
    llvm.set_option("", "-enable-misched=false")


def _read(pattern: str, ir_text: str) -> str:
    found = re.search(pattern, ir_text, re.MULTILINE)
    return "" if found is None else found[1]


def _target_machine(ir_text: str) -> llvm.TargetMachine:
    """Make the target machine for the triple, CPU and features the module names."""
    triple = _read(r'^target triple = "([^"]*)"', ir_text)
    if not triple:
        raise CompileError("the module names no target triple")
    _initialize(triple)
    features = _read(r'"target-features"="([^"]*)"', ir_text)
    hard_floats = triple.startswith("riscv64") and "+d" in features.split(",")
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=_read(r'"target-cpu"="([^"]*)"', ir_text),
        features=features,
        opt=_SPEED_LEVEL,
        reloc="pic",
        codemodel="default",
        abiname="lp64d" if hard_floats else "",
    )


@contextmanager
def _optimized(ir_text: str) -> Iterator[tuple[llvm.ModuleRef, llvm.TargetMachine]]:
    """Parse, verify and optimise a module; yields it with its target machine."""
    try:
        machine = _target_machine(ir_text)
        module = llvm.parse_assembly(ir_text, llvm.create_context())
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise CompileError(str(error)) from error
    options = llvm.create_pipeline_tuning_options(speed_level=_SPEED_LEVEL)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    passes = builder.getModulePassManager()
    if '"all-passes"' not in ir_text:
        passes = llvm.create_new_module_pass_manager()
        for name in _PASSES:
            getattr(passes, f"add_{name}_pass")()
    passes.run(module, builder)
    yield module, machine


def compile_ir(ir_text: str) -> bytes:
    """Return the object file of a module for the CPU its attributes name.

    Raises: CompileError when LLVM refuses the module.
    """
    with _optimized(ir_text) as (module, machine):
        return bytes(machine.emit_object(module))


def asm_text(ir_text: str) -> str:
    """Return the assembly of a module. Raises CompileError when LLVM refuses it."""
    with _optimized(ir_text) as (module, machine):
        return str(machine.emit_assembly(module))


def facts_text() -> str:
    """Return what LLVM says of itself and this machine, as JSON of treadle.target.compiler_facts.

    The features are those that are on; null where LLVM cannot read them on this system.
    """
    try:
        features = sorted(f for f, on in llvm.get_host_cpu_features().items() if on)
    except RuntimeError:
        features = None
    facts = {
        "llvm": ".".join(map(str, llvm.llvm_version_info)),
        "llvmlite": llvmlite.__version__,
        "triple": llvm.get_process_triple(),
        "cpu": llvm.get_host_cpu_name(),
        "features": features,
    }
    return json.dumps(facts)


_SPILL = re.compile(
    r"\b[xyz]mm\d+\b.*\(%rsp\)|\(%rsp\).*\b[xyz]mm\d+\b"  # x86, AT&T order
    r"|\b(ld|st)[rpu]+\s+[qdv]\d+.*\[sp(, #\d+)?\]"  # aarch64
)
_LABEL = re.compile(r"^\s*([.A-Za-z_][\w.$]*):")
_JUMP = re.compile(r"^\s+(?:j\w+|b(?:\.\w+)?|t?b?cbn?z\s+\w+,|tbn?z\s+\w+,[^,]+,)\s+([.\w$]+)")


def spill_count(asm: str) -> int:
    """Return how many accesses of vector registers to the stack stand in innermost loops.

    A loop is the text between a label and a later jump back to it. An access with an index is one
    to an array on the stack and does not count.
    """
    lines = asm.splitlines()
    labels: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        if label := _LABEL.match(line):
            labels[label[1]] = number
        elif (jump := _JUMP.match(line)) and jump[1] in labels:
            loops.append((labels[jump[1]], number))
    innermost = [
        (first, last)
        for first, last in loops
        if not any(first < low and high < last for low, high in loops)
    ]
    inside = {n for first, last in innermost for n in range(first, last)}
    return sum(1 for n in inside if _SPILL.search(lines[n]))
