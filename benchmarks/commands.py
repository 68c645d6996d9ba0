# SPDX-License-Identifier: Apache-2.0
"""What whole commands take, from their start to their end, with and without compiled kernels kept.

    python -m benchmarks.commands [network or file.onnx ...] [--runs 5] [--json FILE]

Every row is one command: `treadle compile` to an artifact, `treadle run` of the model on random
input, and a Python program that compiles it. Cold is with an empty folder of
kernels (`TREADLE_CACHE`) and measured once, warm with what that left, the least of several. Seconds
are those of the clock and, in brackets, those of all its processes on the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import machine
from benchmarks.serving import FOLDER, model_file

DEFAULT = ("squeezenet", "mobilenet_v2", "resnet50", "densenet121", "bert_base")
AIMS = "aims on 2 cores: cold under 6 s, warm under 1 s"
_PROGRAM = "import sys, treadle; treadle.compile(sys.argv[1])"


class Spent(NamedTuple):
    """Seconds that a process and its children took: on the clock, and on the CPU."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.2f} s ({self.cpu:.2f})"


def commands(model: Path, artifact: Path) -> dict[str, list[str]]:
    """Return the commands by the names of their rows."""
    treadle = [sys.executable, "-m", "treadle_command"]
    return {
        "treadle compile": [*treadle, "compile", str(model), "-o", str(artifact)],
        "treadle run": [*treadle, "run", str(model)],
        "treadle.compile": [sys.executable, "-c", _PROGRAM, str(model)],
    }


def spent(command: Sequence[str], cache: Path) -> Spent:
    """Run a command with a folder of kernels."""
    start, before = time.perf_counter(), os.times()
    subprocess.run(
        command,
        cwd=FOLDER.parent,
        env=os.environ | {"TREADLE_CACHE": str(cache)},
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    after = os.times()
    cpu = after.children_user + after.children_system
    return Spent(time.perf_counter() - start, cpu - before.children_user - before.children_system)


def network(model: Path, runs: int) -> dict[str, Mapping[str, Spent]]:
    """Return what each command takes, cold and warm."""
    found: dict[str, Mapping[str, Spent]] = {}
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
        artifact = Path(folder) / "model.tar"
        for name, command in commands(model, artifact).items():
            cache = Path(folder) / name
            cold = spent(command, cache)
            warm = []
            for _ in range(runs):
                # To replace a file, ext4 waits for the disk to have the new one.
                artifact.unlink(missing_ok=True)
                warm.append(spent(command, cache))
            found[name] = {"cold": cold, "warm": min(warm, key=lambda s: s.wall)}
    return found


def main() -> int:
    """Print what commands take, write JSON if asked to; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commands")
    parser.add_argument("networks", nargs="*", default=DEFAULT, help="names, or .onnx files")
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="of each warm command")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    print(f"{machine.describe()['cpu']}, {machine.usable_cores()} cores\n{AIMS}")
    results = {}
    for name in options.networks:
        found = network(model_file(name), options.runs)
        results[Path(name).stem] = {
            row: {state: s._asdict() for state, s in states.items()}
            for row, states in found.items()
        }
        for row, states in found.items():
            print(f"{Path(name).stem:16}{row:17}cold {states['cold']!s:18}warm {states['warm']}")
        sys.stdout.flush()
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
