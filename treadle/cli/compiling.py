# SPDX-License-Identifier: Apache-2.0
"""Compiling what a command line names, and what there is to say of it; imports the compiler."""

from __future__ import annotations

import argparse
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from treadle.build.compile import Report, built, fused_model
from treadle.build.coverage import Coverage
from treadle.build.executable import Executable
from treadle.build.format_names import Format
from treadle.build.kernel import Kernel
from treadle.build.model_cache import Compilation, Row, keep
from treadle.build.record_context import records_to_read
from treadle.build.watch import overrides_watched
from treadle.build.weights import added_weight_bytes
from treadle.cli.named import DEFAULT_LEVEL, check_readable, given_shapes, target_of
from treadle.cli.operators import load_operators
from treadle.cli.progress import shown_progress
from treadle.cli.text import (
    count_text,
    print_made,
    print_written,
    size_text,
    type_text,
)
from treadle.files import replacing
from treadle.settings import use
from treadle.target.base import Target

_CODE: dict[str, Callable[[Kernel], str]] = {
    "relay": Kernel.graph_text,
    "tir": Kernel.loop_text,
    "ll": Kernel.source,
    "c": Kernel.source,
    "cu": Kernel.source,
    "cl": Kernel.source,
    "asm": Kernel.asm,
}
"""What `--dump-code` can write, under the names of v0.8."""

_SHOWN_MISSING = 3


def compile_named(
    arguments: argparse.Namespace, shapes: Mapping[str, Sequence[int]] | None
) -> Executable:
    """Return the model the command line names, compiled for these shapes; a run loads it."""
    check_readable(arguments.model)
    load_operators(arguments.operators)
    report, records = Report(), records_to_read(arguments.records)
    with shown_progress(report), overrides_watched():
        fused = fused_model(
            arguments.model,
            target=target_of(arguments),
            shapes=shapes,
            opt_level=DEFAULT_LEVEL if arguments.opt_level is None else arguments.opt_level,
            winograd=arguments.winograd,
            weight_growth=arguments.weight_growth,
            unchecked=arguments.unchecked,
            dynamic=arguments.dynamic,
            records=records,
            report=report,
        )
        return built(fused, records, report)


def compile_to(
    output: Path,
    form: Format,
    linker: Sequence[str] | None,
    target: Target,
    arguments: argparse.Namespace,
    wanted: Compilation | None,
) -> Executable:
    """Compile what the command line names, write it to `output`, and print what was done.

    It is kept as what is `wanted`, if anything is.
    """
    with use(c_compiler=shlex.join(linker)) if linker and target.kind == "c" else nullcontext():
        made = compile_named(arguments, given_shapes(arguments))
    start = time.perf_counter()
    made.save(output, format=form, linker=linker if form in ("tar", "so") else None)
    if wanted is not None:
        keep_made(wanted, made, output)
    seconds = {**made.seconds, "write": time.perf_counter() - start}
    headers = [output.with_suffix(".h")] if form in ("o", "c") else []
    print_made(summary(made), seconds, [output, *headers])
    for kind in arguments.dump_code:
        path = output.with_name(f"{output.name}.{kind}")
        _write_code(made.kernels, _CODE[kind], path)
        print_written(path)
    return made


def _write_code(kernels: Sequence[Kernel], text: Callable[[Kernel], str], path: Path) -> None:
    with replacing(path) as file:
        for kernel in kernels:
            file.write(f"{text(kernel).rstrip()}\n\n".encode())
            kernel.release()


def keep_made(wanted: Compilation, made: Executable, artifact: Path | None = None) -> None:
    """Keep a compiled model for the next command that wants it; `artifact` is one of it."""

    def write(path: Path) -> None:
        if artifact is None:
            made.save(path, format="tar")
        else:
            shutil.copyfile(artifact, path)

    keep(wanted, made.files, summary(made), made.weight_bytes, write)


def summary(made: Executable) -> list[Row]:
    """Return what there is to say of a model: nodes, kernels, weights and memory."""
    memory = made.memory
    calls = sum(step.kind == "call" for step in memory.steps)
    copies = sum(step.is_copy for step in memory.steps)
    inputs = ", ".join(type_text(n, v.type.dtype, v.type.shape) for n, v in memory.inputs)
    planned = f"peak {size_text(memory.arena_bytes)} planned, {size_text(memory.naive_bytes)} naive"
    fused = (
        f"{count_text(made.nodes, 'node')} → {count_text(calls, 'call')} of "
        f"{count_text(len(made.kernels), 'kernel')}"
        + (f", {count_text(copies, 'copy').replace('copys', 'copies')}" if copies else "")
    )
    return [
        ("read", f"{count_text(made.nodes, 'node')}, input {inputs or 'none'}"),
        *(("note", note) for note in made.notes),
        ("target", str(made.target)),
        *([] if made.coverage is None else [("tuned", _coverage_text(made.coverage))]),
        ("fused", fused),
        *_places(made),
        ("weights", _weights_text(made)),
        ("memory", "as each run needs" if memory.is_dynamic else planned),
        *_stack(made),
    ]


def _stack(made: Executable) -> list[Row]:
    """Return what kernels that become C source take of the stack; nothing for other models."""
    if not made.target.is_source_only:
        return []
    most = max((k.stack_bytes for k in made.kernels), default=0)
    room = made.target.machine.stack_bytes
    text = f"{size_text(most)} for arrays of kernels, of {size_text(room)} (-stack-bytes)"
    return [("stack", text)]


def _places(made: Executable) -> list[Row]:
    """Return how many kernels of a model for a GPU run where; nothing for other models."""
    if made.target.family != "gpu":
        return []
    there = sum(k.target.family == "gpu" for k in made.kernels)
    here = len(made.kernels) - there
    text = f"{made.target.kind}: {count_text(there, 'kernel')}"
    return [("runs on", text + (f", cpu: {count_text(here, 'kernel')}" if here else ""))]


def _coverage_text(coverage: Coverage) -> str:
    """Return how many kernels records are of, and for the first of the others what is nearest."""
    lines = [line for line in (str(coverage), coverage.methods_text) if line]
    for missing in coverage.missing[:_SHOWN_MISSING]:
        lines.append(f"{missing.kernel}: {missing.nearest or 'nothing like it'}")
    rest = len(coverage.missing) - _SHOWN_MISSING
    return "\n".join([*lines, f"and {rest} more"] if rest > 0 else lines)


def _weights_text(compiled: Executable) -> str:
    total, added = compiled.weight_bytes, added_weight_bytes(compiled.module.main)
    if not added:
        return size_text(total)
    return (
        f"{size_text(total)}, {size_text(added)} of it for Winograd's and Strassen's algorithms "
        f"(--weight-growth 0: slower, about {size_text(total - added)})"
    )
