# SPDX-License-Identifier: Apache-2.0
"""The back end "llvm": loop nests to LLVM IR text, compiled by worker processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from treadle.dtype import itemsize
from treadle.expr.references import Instruction
from treadle.loop.nodes import PrimFunc
from treadle.lower.pipeline import lowering
from treadle.passes import Pipeline
from treadle.target import workers
from treadle.target.backend import Backend, CompileError, OnDone
from treadle.target.base import Target
from treadle.target.compiler_facts import compiler_facts
from treadle.target.cpus import architecture_names, architecture_of
from treadle.target.intrinsics.x86 import LOOKUPS
from treadle.target.llvm_ir import emit
from treadle.target.loading import load_objects
from treadle.te.intrinsics import Intrinsic


@cache
def _lowering(target: Target) -> Pipeline[PrimFunc]:
    def is_kept(instruction: Instruction) -> bool:
        return isinstance(instruction, Intrinsic) and bool(instruction.forms_for(target.features))

    line = target.machine.line_bytes // itemsize("float32")
    return lowering(target.least_masked, line, tuple(filter(is_kept, LOOKUPS)), is_kept)


def _check(text: str, target: Target) -> None:
    del target  # the text names it
    if problem := workers.refusal(text):
        raise CompileError(problem)


def _compile(
    jobs: Iterable[tuple[str, str]], target: Target, on_done: OnDone | None
) -> dict[str, bytes]:
    del target  # every text names it
    return workers.compile_many(jobs, on_done)


def _assembly(texts: Mapping[str, str], target: Target) -> dict[str, str]:
    del target  # every text names it
    return workers.assembly(texts)


def _version(target: Target) -> str:
    del target  # one LLVM makes code for all
    return workers.compiler_version()


def _constant(name: str, data: bytes, target: Target) -> str:
    shown = "".join(chr(b) if b < 128 and chr(b).isalnum() else f"\\{b:02x}" for b in data)
    features = f'"target-cpu"="{target.cpu}" "target-features"="{target.feature_string()}"'
    return (
        f'target triple = "{target.triple}"\n'
        f'@{name} = constant [{len(data)} x i8] c"{shown}"\n'
        f"attributes #0 = {{ {features} }}\n"
    )


def _describe() -> str:
    every = {a.name: n for n in reversed(architecture_names()) if (a := architecture_of(n))}
    targets = " ".join(reversed(every.values()))
    facts = compiler_facts()
    return f"{facts.llvm} (llvmlite {facts.llvmlite}) · targets {targets}"


BACKEND = Backend(
    kind="llvm",
    suffix="ll",
    lowering=_lowering,
    emit=emit,
    constant=_constant,
    check=_check,
    compile=_compile,
    assembly=_assembly,
    version=_version,
    load=load_objects,
    describe=_describe,
)
