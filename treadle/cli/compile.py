# SPDX-License-Identifier: Apache-2.0
"""`treadle compile`: a model becomes a file with machine code, plan and weights."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from treadle.build.coverage import Coverage
from treadle.build.executable import Executable
from treadle.build.formats import FORMATS, check_format, format_of
from treadle.build.kernel import Kernel
from treadle.build.weights import added_weight_bytes
from treadle.cli.arguments import (
    add_compile_options,
    add_cross_compiler,
    add_model,
    cross_compiler,
)
from treadle.cli.compare import compare_outputs
from treadle.cli.inputs import chosen_shapes, filled_inputs, shapes_text
from treadle.cli.models import DEFAULT_TARGET, check_readable, compile_file
from treadle.cli.text import (
    console,
    count_text,
    print_row,
    seconds_text,
    size_text,
    type_text,
)
from treadle.errors import InputError, UsageError
from treadle.files import check_writable, replacing
from treadle.runtime.toolchain import check_linkable
from treadle.settings import use
from treadle.target.backend import backend_kinds, backend_of
from treadle.target.base import Target
from treadle.target.host import why_not_here
from treadle.target.parse import parse_target

_SHOWN_MISSING = 3

_OTHER_FORMATS = {
    ".a", ".dll", ".dylib", ".gz", ".h", ".json", ".lib", ".ll", ".npz", ".obj", ".onnx",
    ".params", ".py", ".s", ".tgz", ".txt", ".wasm", ".whl", ".xz", ".zip",
}  # fmt: skip
"""Suffixes that promise something else than any format."""

_CODE: dict[str, Callable[[Kernel], str]] = {
    "relay": Kernel.graph_text,
    "tir": Kernel.loop_text,
    "ll": Kernel.source,
    "c": Kernel.source,
    "asm": Kernel.asm,
}
"""What `--dump-code` can write, under the names of v0.8."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_model(parser, "the ONNX or TFLite file")
    add_compile_options(parser)
    parser.add_argument(
        "-o",
        "--output",
        "--out",  # a prefix of --output that scripts use; --output-format would make it unclear
        type=Path,
        metavar="FILE",
        help="the file to write (default: the model's name with the format's suffix, in this "
        "folder)",
    )
    parser.add_argument(
        "-f",
        "--output-format",
        choices=FORMATS,
        help="tar: an artifact; so: a shared object with all of the model; o: an object file and "
        "c: C source, each with a header, to be linked into a program; mlf: a tar in the Model "
        "Library Format (default: what the suffix of FILE says, else tar)",
    )
    add_cross_compiler(
        parser,
        "the C compiler or linker to link with; with a target of kind c, it also compiles "
        "(default: Treadle links itself)",
        "--linker",
    )
    parser.add_argument(
        "--dump-code",
        type=_kinds,
        default=(),
        metavar="KINDS",
        help=f"write texts of all kernels next to the artifact: {', '.join(_CODE)}, with commas",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="run the model on random input and compare every output with onnxruntime's, or, "
        "where that is not installed, with the operators' NumPy references; where each run decides "
        "sizes, at two choices of them",
    )


def run(arguments: argparse.Namespace) -> int:
    """Compile, write, and print what was done."""
    check_readable(arguments.model)
    suffix = {None: "tar", "mlf": "tar"}.get(arguments.output_format, arguments.output_format)
    output = arguments.output or Path(f"{arguments.model.stem}.{suffix}")
    _check_output(output, arguments.model)
    form = format_of(output, arguments.output_format)
    if arguments.target is None and form == "c":
        arguments.target = "c"
    linker = cross_compiler(arguments)
    target = parse_target(DEFAULT_TARGET if arguments.target is None else arguments.target)
    check_format(form, target)
    if form in ("tar", "so"):
        check_linkable(target.triple, linker)  # better now than after the work
    _check_code(arguments.dump_code, target)
    if arguments.check:
        _check_runs_here(target)
    with use(c_compiler=shlex.join(linker)) if linker and target.kind == "c" else nullcontext():
        compiled = compile_file(arguments)
    start = time.perf_counter()
    compiled.save(output, format=form, linker=linker if form in ("tar", "so") else None)
    seconds = {**compiled.seconds, "write": time.perf_counter() - start}
    print_summary(compiled, seconds)
    out = console()
    headers = [output.with_suffix(".h")] if form in ("o", "c") else []
    for path in [output, *headers]:
        print_row(out, "wrote", f"{path} ({size_text(path.stat().st_size)})")
    for kind in arguments.dump_code:
        path = output.with_name(f"{output.name}.{kind}")
        _write_code(compiled.kernels, _CODE[kind], path)
        print_row(out, "wrote", f"{path} ({size_text(path.stat().st_size)})")
    return _check(compiled, arguments.model, output) if arguments.check else 0


def _check_code(kinds: Sequence[str], target: Target) -> None:
    """Refuse to write the source text of another back end than the target's."""
    own = backend_of(target).suffix
    for kind in kinds:
        if _CODE[kind] is Kernel.source and kind != own:
            other = next(k for k in backend_kinds() if backend_of(k).suffix == kind)
            raise UsageError(
                f"there is no .{kind} text of code for the target {target}",
                hint=f"write --dump-code {own}, or compile with --target {other}",
            )


def _check(compiled: Executable, model: Path, output: Path) -> int:
    code = 0
    for shapes in chosen_shapes(compiled):
        if shapes:
            print_row(console(), "sizes", shapes_text(shapes))
        try:
            inputs = filled_inputs(compiled, "random", shapes)
            code |= compare_outputs(model, compiled, inputs, output)
        except InputError as error:
            raise InputError(
                f"the model is compiled, but not checked: {error.problem}",
                hint=f"give sizes it runs at: treadle compare {model} {output} "
                f'--input-shapes "{shapes_text(shapes)}"',
            ) from None
    if code:
        print(f"  note  {output} is kept, to be looked at", file=sys.stderr)
    return code


def print_summary(compiled: Executable, seconds: dict[str, float]) -> None:
    """Print nodes, kernels, weights, memory and seconds per stage."""
    out = console()
    memory = compiled.memory
    calls = sum(step.kind == "call" for step in memory.steps)
    copies = sum(step.is_copy for step in memory.steps)
    inputs = ", ".join(type_text(n, v.type.dtype, v.type.shape) for n, v in memory.inputs)
    print_row(out, "read", f"{count_text(compiled.nodes, 'node')}, input {inputs or 'none'}")
    for note in compiled.notes:
        print_row(out, "note", note)
    print_row(out, "target", str(compiled.target))
    if compiled.coverage is not None:
        print_row(out, "tuned", _coverage_text(compiled.coverage))
    print_row(
        out,
        "fused",
        f"{count_text(compiled.nodes, 'node')} → {count_text(calls, 'call')} of "
        f"{count_text(len(compiled.kernels), 'kernel')}"
        + (f", {count_text(copies, 'copy').replace('copys', 'copies')}" if copies else ""),
    )
    print_row(out, "weights", _weights_text(compiled))
    planned = f"peak {size_text(memory.arena_bytes)} planned, {size_text(memory.naive_bytes)} naive"
    print_row(out, "memory", "as each run needs" if memory.is_dynamic else planned)
    stages = " · ".join(f"{stage} {seconds_text(s)}" for stage, s in seconds.items())
    print_row(out, "time", f"{seconds_text(sum(seconds.values()))}: {stages}")


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


def _check_runs_here(target: Target) -> None:
    if (error := why_not_here(target)) is not None:
        raise UsageError(
            f"--check runs the model, but {error.problem}",
            hint="compile without --check, and check for this machine without --target",
        )


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    wrong = [kind for kind in kinds if kind not in _CODE]
    if wrong:
        raise argparse.ArgumentTypeError(f"{wrong[0][:40]!r} is none of {', '.join(_CODE)}")
    return kinds


def _write_code(kernels: Sequence[Kernel], text: Callable[[Kernel], str], path: Path) -> None:
    with replacing(path) as file:
        for kernel in kernels:
            file.write(f"{text(kernel).rstrip()}\n\n".encode())
            kernel.release()


def _check_output(output: Path, model: Path) -> None:
    if output.exists() and output.samefile(model):
        raise UsageError(f"the output {output} is the model itself", hint="give another -o")
    if output.suffix in _OTHER_FORMATS:
        raise UsageError(
            f"{output} is named as a {output.suffix} file, but an artifact is a .tar",
            hint=f"write {output.with_suffix('.tar')}, or another format: --output-format",
        )
    check_writable(output)
