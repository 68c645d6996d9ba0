# SPDX-License-Identifier: Apache-2.0
"""The back end "c": loop nests to C11 that a person can read, compiled by a C compiler.

Loops keep the form the schedule gave them; the compiler vectorises and unrolls. It is for reading,
for machines that LLVM here has no code for, and as a second opinion on results; "llvm" is faster.
"""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from treadle.errors import ToolchainError
from treadle.expr.references import Instruction
from treadle.loop.nodes import PrimFunc
from treadle.lower.pipeline import source_lowering
from treadle.passes import Pipeline
from treadle.runtime.native_build import zig_command
from treadle.runtime.toolchain import find_compiler, is_native, named_tool
from treadle.settings import get as get_settings
from treadle.target.backend import Backend, CompileError, OnDone
from treadle.target.base import Target
from treadle.target.c_text import emit
from treadle.target.host import host
from treadle.target.loading import load_objects
from treadle.target.text_compiler import compile_texts
from treadle.te.intrinsics import Intrinsic

JOB_SECONDS = 300.0
"""How long one kernel may compile."""

FLAGS = (
    "-std=gnu11",
    "-O3",
    "-fPIC",
    "-fwrapv",  # integers wrap
    "-ffp-contract=off",  # floats are computed as written
    "-fno-math-errno",
    "-fno-strict-aliasing",  # buffers of a workspace share memory
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-ffreestanding",  # no calls of memset and the like
    "-fvisibility=default",
    "-w",
)
"""What the source relies on, and what keeps it free of libraries."""

_X86_FEATURES = (
    "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "fma", "f16c", "bmi", "bmi2",
    "lzcnt", "avx512f", "avx512bw", "avx512dq", "avx512vl",
)  # fmt: skip


def _lowering(target: Target) -> Pipeline[PrimFunc]:
    def is_kept(instruction: Instruction) -> bool:
        return isinstance(instruction, Intrinsic) and instruction.has_text(target.features)

    room = None if target.has_threads else target.machine.stack_bytes
    return source_lowering(is_kept, room)


def _machine_flags(target: Target) -> list[str]:
    """Return the options that let the compiler use what the target has, and no more."""
    if target.architecture != "x86_64":
        return []
    on = [f"-m{f}" for f in _X86_FEATURES if target.has(f)]
    return [*on, f"-mprefer-vector-width={target.vector_bits}"]


def _compiler(triple: str) -> tuple[str, ...]:
    """Return the command of a C compiler for machines of a triple.

    Raises: ToolchainError when there is none.
    """
    if named := get_settings().c_compiler:
        return named_tool(shlex.split(named)).command
    found = find_compiler(triple)
    if found is not None:
        return found.command
    zig = zig_command()
    if zig is not None:
        return (*zig, "cc", *(() if is_native(triple) else ("-target", triple)))
    raise ToolchainError(
        f"no C compiler is found for {triple}",
        hint='install gcc or clang for it, or: pip install "treadle[cross]"',
    )


@cache
def _version_of(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"the C compiler {command[0]} cannot be run: {error}") from error
    return done.stdout.partition("\n")[0].strip()


def _version(target: Target) -> str:
    command = _compiler(target.triple)
    return " ".join([_version_of(command), *command, *FLAGS, *_machine_flags(target)])


def _run(command: Sequence[str], text: str, form: str) -> bytes:
    """Return what the compiler makes of a source text. Raises CompileError with its words."""
    with tempfile.TemporaryDirectory(prefix="treadle-cc-") as folder:
        out = Path(folder) / "out"
        source = Path(folder) / "kernel.c"
        source.write_text(text)
        try:
            done = subprocess.run(
                [*command, *FLAGS, form, "-o", str(out), "-x", "c", str(source)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=JOB_SECONDS,
                check=False,
            )
        except OSError as error:
            raise CompileError(f"{command[0]} cannot be started: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise CompileError(f"it takes more than {JOB_SECONDS:.0f} seconds") from error
        if done.returncode != 0:
            raise CompileError(done.stderr.replace(folder, "").strip()[:4000])
        return out.read_bytes()


def _check(text: str, target: Target) -> None:
    _run([*_compiler(target.triple), *_machine_flags(target)], text, "-c")


def _compile(
    jobs: Iterable[tuple[str, str]], target: Target, on_done: OnDone | None
) -> dict[str, bytes]:
    """Compile kernels by the compiler for the target; see `Backend.compile`."""
    command = [*_compiler(target.triple), *_machine_flags(target)]
    return compile_texts(
        jobs, _version(target), lambda text: _run(command, text, "-c"), "C", on_done
    )


def _assembly(texts: Mapping[str, str], target: Target) -> dict[str, str]:
    command = [*_compiler(target.triple), *_machine_flags(target)]
    return {name: _run(command, text, "-S").decode() for name, text in texts.items()}


def _constant(name: str, data: bytes, target: Target) -> str:
    del target  # bytes are the same everywhere
    rows = [", ".join(map(str, data[k : k + 24])) for k in range(0, len(data), 24)]
    return "\n".join([f"const unsigned char {name}[] = {{", *(f"  {row}," for row in rows), "};\n"])


def _describe() -> str:
    return _version_of(_compiler(host().triple))


BACKEND = Backend(
    kind="c",
    suffix="c",
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
