# SPDX-License-Identifier: Apache-2.0
"""The first answer and its memory: compiled in memory, from an artifact, and in onnxruntime.

    python -m benchmarks.memory [network or file.onnx ...] [--warm] [--runs 15] [--json FILE]

Every row is a process of its own, from `import` to the last run, and one more for the times:

- `compile`: `treadle.compile(model)` and runs, with an empty cache of kernels (or, with `--warm`,
  one that holds them all);
- `load`: `treadle.load(artifact)` and runs, the file in the page cache;
- `in C`: the same artifact and one run by a C program with the runtime, without Python;
- `onnxruntime`: a session and runs.

`peak` is the largest resident memory at one moment, looked at every few milliseconds: what belongs
to the process and to each of its children (compile workers), and once, the most that one of them
maps of files (libraries, weights), which they share. `grown` is by how much the process itself was
larger at its peak than after the imports, `private` what belongs to it alone after the runs,
`shared` the pages of files that other processes could use. `first` is the first run, `steady` the
median of those from the third on. The threads of NumPy's BLAS, which spin for tens of milliseconds
after the import of NumPy and would share a core with any engine's first run, are told to sleep.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from benchmarks import machine
from benchmarks.engines import random_inputs
from benchmarks.first_run import Figures, status_bytes
from benchmarks.serving import FOLDER, model_file
from treadle.runtime import native
from treadle.settings import let_blas_sleep

DEFAULT = ("resnet50", "bert_base", "vit_base", "gpt2", "mobilenet_v2", "squeezenet")
AIMS = (
    "aims: compile peak <= 1.15 onnxruntime's; load peak <= 1.1 weights of the artifact; artifact "
    "<= 1.15 model; load <= 100 ms for 700 MB; first run <= 1.5 steady ones"
)
_SAMPLE_SECONDS = 0.004
_C_SAMPLE_SECONDS = 0.0005


# ---- memory of processes -------------------------------------------------------------------------


def family(process: int) -> Iterator[int]:
    """Yield a process and all its descendants.

    A child that does not run a program of its own yet borrows the memory of its parent.
    """
    yield process
    try:
        own = Path(f"/proc/{process}/cmdline").read_bytes()
        lists = [p.read_text() for p in Path(f"/proc/{process}/task").glob("*/children")]
        children = [int(child) for text in lists for child in text.split()]
        started = [c for c in children if Path(f"/proc/{c}/cmdline").read_bytes() != own]
    except OSError:  # one of them has just ended
        return
    for child in started:
        yield from family(child)


class Peak:
    """Watches the resident memory of a process and its descendants, in a thread."""

    def __init__(self, process: int) -> None:
        self.bytes = 0
        self._process = process
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(_SAMPLE_SECONDS):
            processes = list(family(self._process))
            own = sum(status_bytes(p, "RssAnon") for p in processes)
            files = max(status_bytes(p, "RssFile", "RssShmem") for p in processes)
            self.bytes = max(self.bytes, own + files)


def measure(engine: str, file: Path, inputs: Path, runs: int, caches: Sequence[Path]) -> Figures:
    """Return the figures of `benchmarks.first_run`, with the peak of all its processes.

    One process for each of two caches: looking at the memory of the first one takes a core at
    times, so that the times are those of the second.
    """
    words = [engine, str(file), str(inputs), str(runs)]
    first, second = caches
    watched = _started(words, first)
    with Peak(watched.pid) as peak:
        _figures(watched)
    return replace(_figures(_started(words, second)), peak_bytes=peak.bytes)


def _started(words: list[str], cache: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.first_run", *words],
        cwd=FOLDER.parent,
        env=os.environ | {"TREADLE_CACHE": str(cache)},
        stdout=subprocess.PIPE,
        text=True,
    )


def _figures(child: subprocess.Popen[str]) -> Figures:
    """Wait for a process of `benchmarks.first_run`; return what it prints."""
    text, _ = child.communicate()
    if child.returncode:
        raise SystemExit(f"{child.args!r} ends with {child.returncode}")
    return Figures(**json.loads(text.splitlines()[-1]))


# ---- without Python ------------------------------------------------------------------------------


def c_program(folder: Path) -> Path:
    """Build the example that runs a model from C, and return it."""
    source, program = FOLDER.parent / "native" / "examples" / "run_model.c", folder / "run_model"
    library = native.find_library()
    words = ["cc", "-std=c11", "-O2", f"-I{FOLDER.parent / 'native' / 'include'}", str(source)]
    subprocess.run(
        [*words, str(library), f"-Wl,-rpath,{library.parent}", "-o", str(program)], check=True
    )
    return program


def peak_in_c(artifact: Path, inputs: Path, folder: Path) -> int:
    """Return the largest resident memory of a C program that opens an artifact and runs it."""
    words = [str(artifact)]
    with np.load(inputs) as stored:
        for number, array in enumerate(stored.values()):
            file = folder / f"{number}.bin"
            np.ascontiguousarray(array).tofile(file)
            words.append(str(file))
    child = subprocess.Popen([c_program(folder), *words], stdout=subprocess.DEVNULL)
    peak = 0  # what wait4 says of it would count this process, which it was before it ran a program
    while child.poll() is None:
        peak = max(peak, status_bytes(child.pid, "VmHWM"))
        time.sleep(_C_SAMPLE_SECONDS)
    if child.returncode:
        raise SystemExit(f"the C program ends with {child.returncode}")
    return peak


# ---- a network -----------------------------------------------------------------------------------


def weight_bytes(artifact: Path) -> int:
    """Return the bytes of the weights of an artifact."""
    import treadle

    return treadle.load(artifact).executor.constant_bytes


def network(model: Path, runs: int, *, is_warm: bool) -> dict[str, object]:
    """Return all figures of one network."""
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
        artifact, cache = Path(folder) / "model.tar", Path(folder) / "cache"
        inputs = Path(folder) / "inputs.npz"
        np.savez(inputs, **random_inputs(model))  # type: ignore[arg-type]
        command = [sys.executable, "-m", "treadle", "compile", str(model), "-o", str(artifact)]
        start = time.perf_counter()
        subprocess.run(
            command,
            cwd=FOLDER.parent,
            env=os.environ | {"TREADLE_CACHE": str(cache)},
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        seconds = time.perf_counter() - start
        full = (cache, cache)
        used = full if is_warm else (Path(folder) / "empty", Path(folder) / "empty, too")
        figures = {
            "compile": measure("compile", model, inputs, runs, used),
            "load": measure("load", artifact, inputs, runs, full),
            "onnxruntime": measure("onnxruntime", model, inputs, runs, full),
        }
        sizes = {
            "c_peak_bytes": peak_in_c(artifact, inputs, Path(folder)),
            "model_bytes": model.stat().st_size,
            "artifact_bytes": artifact.stat().st_size,
            "weight_bytes": weight_bytes(artifact),
            "command_seconds": seconds,
        }
    return sizes | {name: asdict(found) for name, found in figures.items()}


def _rows(found: Mapping[str, object]) -> Iterator[str]:
    mb = 1e-6
    model, artifact, weights = (
        float(str(found[f"{name}_bytes"])) for name in ("model", "artifact", "weight")
    )
    yield (
        f"model {model * mb:.1f} MB, artifact {artifact * mb:.1f} MB ({artifact / model:.2f}), "
        f"weights {weights * mb:.1f} MB; treadle compile: {found['command_seconds']:.1f} s"
    )
    named = {n: Figures(**found[n]) for n in ("compile", "load", "onnxruntime")}  # type: ignore[arg-type]
    for name, f in named.items():
        of = {
            "compile": f"{f.peak_bytes / named['onnxruntime'].peak_bytes:.2f} of onnxruntime's",
            "load": f"{f.peak_bytes / weights:.2f} of weights",
        }.get(name, "")
        yield (
            f"  {name:12}peak {f.peak_bytes * mb:7.0f} MB {of:22} private "
            f"{f.private_bytes * mb:6.0f}  shared {f.shared_bytes * mb:6.0f}  grown "
            f"{f.grown_bytes * mb:6.0f} MB  open {f.open_seconds * 1e3:7.0f} ms  first "
            f"{f.first_seconds * 1e3:7.1f} ms ({f.first_seconds / f.steady_seconds:5.2f} of "
            f"steady {f.steady_seconds * 1e3:.1f})"
        )
    peak = float(str(found["c_peak_bytes"]))
    yield f"  {'in C':12}peak {peak * mb:7.0f} MB {peak / weights:.2f} of weights"


def main() -> int:
    """Print the figures of networks, write JSON if asked to; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory")
    parser.add_argument("networks", nargs="*", default=DEFAULT, help="names, or .onnx files")
    parser.add_argument("--warm", action="store_true", help="the cache holds the kernels")
    parser.add_argument("--runs", type=int, default=15, metavar="N", help="of each process")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    let_blas_sleep()  # in the processes that are measured
    print(f"{machine.describe()['cpu']}, {machine.usable_cores()} cores\n{AIMS}")
    results = {}
    for name in options.networks:
        found = network(model_file(name), options.runs, is_warm=options.warm)
        results[Path(name).stem] = found
        print(Path(name).stem, *_rows(found), sep="\n", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
