# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of NEON kernels as they run, in an emulator of the 64-bit Arm.

    python -m benchmarks.emulated [--only conv] [--cpu cortex-a72]

Every operator is compiled for aarch64 and run by `native/examples/run_model.c`, built for aarch64
too, under qemu. qemu writes down every instruction it executes; those of the kernel that does most
of the work are counted. `needed` is the share of what executes that is the arithmetic itself: one
instruction for four multiply-adds. `spilled` counts the stores and loads of vector registers on the
stack. Results are compared with those of the same model compiled for this machine. Needs
`qemu-aarch64`, `aarch64-linux-gnu-gcc` and its `nm` (Debian: qemu-user, gcc-aarch64-linux-gnu,
libc6-dev-arm64-cross).
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

import treadle
from benchmarks.kernels import Case, conv, gemm, model_of

ROOT = Path(__file__).resolve().parents[1]
EMULATOR, COMPILER = "qemu-aarch64", "aarch64-linux-gnu-gcc"
SYMBOLS = "aarch64-linux-gnu-nm"
LIBRARIES = "/usr/aarch64-linux-gnu"
_LANES = 4
_TIMEOUT_S = 300
_LARGEST_FUNCTION = 1 << 20

_EXECUTED = re.compile(rb"^Trace \d+: 0x[0-9a-f]+ \[[0-9a-f]+/([0-9a-f]+)/")
_TRANSLATED = re.compile(rb"^0x([0-9a-f]+):\s+([0-9a-f]{8})\s+(.*\S)")
_SPILL = re.compile(r"^(?:ld|st)[pru]+ +[qdv]\d+.*\[(?:sp|x29)\b")


def missing_tools() -> list[str]:
    """Return what this machine lacks to run anything."""
    found = [tool for tool in (EMULATOR, COMPILER) if shutil.which(tool) is None]
    return found if found or Path(LIBRARIES).is_dir() else [LIBRARIES]


def build_runner(folder: Path) -> Path:
    """Return the C program that runs a model, built for aarch64 in `folder`."""
    sources = sorted(str(path) for path in (ROOT / "native" / "src").glob("*.c"))
    sources.append(str(ROOT / "native" / "examples" / "run_model.c"))
    options = ["-std=c11", "-O2", "-pthread", "-D_DEFAULT_SOURCE"]
    runner = folder / "run_model"
    command = [COMPILER, *options, f"-I{ROOT / 'native' / 'include'}", *sources]
    subprocess.run([*command, "-o", str(runner), "-ldl"], check=True, timeout=_TIMEOUT_S)
    return runner


@dataclass(frozen=True)
class Run:
    """What an emulated run gave: outputs, and by kernel how often each instruction ran."""

    outputs: list[np.ndarray]
    executed: dict[str, Counter[str]]

    def busiest(self) -> Counter[str]:
        """Return the instructions of the kernel with the most multiply-adds."""
        return max(self.executed.values(), key=multiply_adds)


def multiply_adds(executed: Counter[str]) -> int:
    """Return how many vector multiply-adds are among those instructions."""
    return sum(n for text, n in executed.items() if text.startswith("fmla"))


def spills(executed: Counter[str]) -> int:
    """Return how many of those instructions store or load vector registers on the stack."""
    return sum(n for text, n in executed.items() if _SPILL.match(text))


def needed(case: Case, executed: Counter[str]) -> float:
    """Return the multiply-adds of an operator's plain algorithm over the instructions executed.

    Above what a direct algorithm can reach where another, as Winograd's, multiplies less.
    """
    return case.flops / 2 / _LANES / executed.total()


@dataclass(frozen=True)
class Code:
    """The machine code of an artifact: address and name of its functions in order, and the first
    instruction of each kernel by its address."""

    entries: dict[int, int]
    symbols: list[tuple[int, str]]

    def base(self, words: Mapping[int, int]) -> int:
        """Return where the file was mapped, told by the words (by address) that executed there."""
        first = next(iter(self.entries))
        for address in words:
            base = address - first
            if all(words.get(base + entry) == word for entry, word in self.entries.items()):
                return base
        raise ValueError("a kernel did not run")


_LOADED = 1
"""The kind of a segment that is mapped, in the program headers of ELF."""


def word_at(content: bytes, address: int) -> int:
    """Return the instruction at an address of a 64-bit ELF file, which need not be its offset."""
    first, size, count = struct.unpack_from("<Q14xHH", content, 32)
    for k in range(count):
        header = struct.unpack_from("<IIQQQQ", content, first + k * size)
        kind, _, offset, start, _, length = header
        if kind == _LOADED and start <= address < start + length:
            return int(struct.unpack_from("<I", content, address - start + offset)[0])
    raise ValueError(f"nothing of the file lies at {address:#x}")


def _code_of(artifact: Path, folder: Path) -> Code:
    file = folder / "mod.so"
    with tarfile.open(artifact) as archive:
        member = archive.extractfile("mod.so")
        assert member is not None
        file.write_bytes(member.read())
    text = subprocess.run(
        [SYMBOLS, str(file)], check=True, timeout=_TIMEOUT_S, capture_output=True, text=True
    ).stdout
    rows = (line.split() for line in text.splitlines())
    symbols = sorted((int(row[0], 16), row[2]) for row in rows if row[1] in "tT")
    content = file.read_bytes()
    return Code({at: word_at(content, at) for at, name in symbols if "." not in name}, symbols)


def kernel_instructions(log: Iterable[bytes], code: Code) -> dict[str, Counter[str]]:
    """Return the instructions executed in each kernel, by their text, and how often.

    `log` is what qemu writes for `-singlestep -d in_asm,exec,nochain`: the text of an instruction
    where it is met first, an address whenever one executes. The parts of a kernel are functions
    called `<kernel>.<part>`.
    """
    texts: dict[int, str] = {}
    words: dict[int, int] = {}
    times: Counter[int] = Counter()
    for line in log:
        if met := _EXECUTED.match(line):
            times[int(met[1], 16)] += 1
        elif met := _TRANSLATED.match(line):
            address = int(met[1], 16)
            words[address] = int(met[2], 16)
            texts[address] = " ".join(met[3].decode().split())
    base = code.base(words)
    starts = [base + start for start, _ in code.symbols]
    found: dict[str, Counter[str]] = {}
    for address, count in times.items():
        if starts[0] <= address < starts[-1] + _LARGEST_FUNCTION:
            name = code.symbols[bisect_right(starts, address) - 1][1].split(".")[0]
            found.setdefault(name, Counter())[texts[address]] += count
    return found


def emulate(
    runner: Path, artifact: Path, inputs: Sequence[np.ndarray], shapes: Sequence[tuple[int, ...]]
) -> Run:
    """Return the run of an artifact on `inputs`, in order; its float32 outputs have `shapes`."""
    folder = Path(tempfile.mkdtemp(prefix="treadle-emulated-"))
    try:
        ins = [folder / f"in{k}" for k in range(len(inputs))]
        outs = [folder / f"out{k}" for k in range(len(shapes))]
        for path, value in zip(ins, inputs, strict=True):
            value.tofile(path)
        code, log = _code_of(artifact, folder), folder / "log"
        os.mkfifo(log)
        logging = ["-singlestep", "-d", "in_asm,exec,nochain", "-D", str(log)]
        command = [EMULATOR, "-L", LIBRARIES, *logging, str(runner), str(artifact)]
        process = subprocess.Popen(
            [*command, *map(str, ins), *map(str, outs)],
            env={**os.environ, "TREADLE_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
        )
        with log.open("rb") as lines:
            executed = kernel_instructions(lines, code)
        if (status := process.wait(_TIMEOUT_S)) != 0:
            raise subprocess.CalledProcessError(status, command)
        read = [np.fromfile(p, np.float32).reshape(s) for p, s in zip(outs, shapes, strict=True)]
        return Run(read, executed)
    finally:
        shutil.rmtree(folder)


def emulate_model(
    model: onnx.ModelProto, inputs: dict[str, np.ndarray], runner: Path, cpu: str
) -> tuple[Run, list[np.ndarray]]:
    """Return the emulated run of a model on `inputs`, and its outputs on this machine."""
    native = treadle.compile(model)
    expected = [np.asarray(value) for value in native.run(inputs)]
    target = "llvm -mtriple=aarch64-linux-gnu" + (f" -mcpu={cpu}" if cpu else "")
    artifact = runner.with_name("model.tar")
    treadle.compile(model, target=target).save(artifact)
    ordered = [inputs[name] for name, _, _ in native.inputs]
    return emulate(runner, artifact, ordered, [value.shape for value in expected]), expected


def cases() -> list[Case]:
    """Return the operators that are counted; small, for an emulator runs them."""
    one, two = [1] * 4, [2] * 4
    return [
        conv("conv 1x1 64-64@14", (1, 64, 14, 14), (64, 64, 1, 1)),
        conv("conv 1x1 64-64@7", (1, 64, 7, 7), (64, 64, 1, 1)),
        conv("conv 3x3/2 32-64@28", (1, 32, 28, 28), (64, 32, 3, 3), pads=one, strides=[2, 2]),
        conv("conv 5x5 32-32@14", (1, 32, 14, 14), (32, 32, 5, 5), pads=two),
        conv("conv 7x7/2 3-32@56", (1, 3, 56, 56), (32, 3, 7, 7), pads=[3] * 4, strides=[2, 2]),
        conv("winograd 3x3 32-64@28", (1, 32, 28, 28), (64, 32, 3, 3), pads=one),
        conv("depthwise 3x3 64@28", (1, 64, 28, 28), (64, 1, 3, 3), pads=one, group=64),
        conv("depthwise 5x5 64@28", (1, 64, 28, 28), (64, 1, 5, 5), pads=two, group=64),
        gemm(32, 256, 256),
        gemm(1, 512, 512),
    ]


def main() -> int:
    """Count what the command line says and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.emulated")
    parser.add_argument("--only", default="")
    parser.add_argument("--cpu", default="")
    arguments = parser.parse_args()
    if missing := missing_tools():
        print(f"not on this machine: {', '.join(missing)}", file=sys.stderr)
        return 2
    table = Table("operator", "executed", "multiply-adds", "needed", "spilled", "largest error")
    with tempfile.TemporaryDirectory() as folder:
        runner = build_runner(Path(folder))
        for case in cases():
            if not any(word in case.name for word in arguments.only.split(",")):
                continue
            run, expected = emulate_model(*model_of(case), runner, arguments.cpu)
            executed = run.busiest()
            error = float(np.abs(run.outputs[0] - expected[0]).max() / np.abs(expected[0]).max())
            table.add_row(
                case.name,
                f"{executed.total():,}",
                f"{multiply_adds(executed):,}",
                f"{needed(case, executed):.0%}",
                f"{spills(executed):,}",
                f"{error:.1e}",
            )
    Console(width=100).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
