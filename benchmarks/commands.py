# SPDX-License-Identifier: Apache-2.0
"""What whole commands take, from their start to their end, with and without compiled kernels kept.

    python -m benchmarks.commands [network or file.onnx ...] [--runs 5] [--json FILE]

Every row is one command: `treadle compile` to an artifact, `treadle run` of the model on random
input, and a Python program that compiles it. Cold is with an empty folder (`TREADLE_CACHE`) and
measured once. Kernels is with the kernels that this left and no models, as when weights or an
option changed; again is with the model, too: the same command once more. Of both the least of
several. Seconds are those of the clock and, in brackets, those of all its processes on the CPU.
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
AIMS = "aims on 2 cores: cold under 6 s, again under 1 s"
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


STATES: Mapping[str, Mapping[str, str]] = {"kernels": {"TREADLE_MODEL_CACHE": "0"}, "again": {}}
"""What is set for a command that finds kernels alone, and for one that finds its model."""


def spent(command: Sequence[str], cache: Path, settings: Mapping[str, str]) -> Spent:
    """Run a command with a folder of what was compiled before."""
    start, before = time.perf_counter(), os.times()
    subprocess.run(
        command,
        cwd=FOLDER.parent,
        env=os.environ | {"TREADLE_CACHE": str(cache), **settings},
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    after = os.times()
    cpu = after.children_user + after.children_system
    return Spent(time.perf_counter() - start, cpu - before.children_user - before.children_system)


def network(model: Path, runs: int) -> Mapping[str, Mapping[str, Spent]]:
    """Return what each command takes in each state."""
    found: dict[str, dict[str, Spent]] = {}
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
        artifact = Path(folder) / "model.tar"
        for name, command in commands(model, artifact).items():
            cache = Path(folder) / name
            found[name] = states = {"cold": spent(command, cache, {})}
            for state, settings in STATES.items():
                taken = []
                for _ in range(runs):
                    # To replace a file, ext4 waits for the disk to have the new one.
                    artifact.unlink(missing_ok=True)
                    taken.append(spent(command, cache, settings))
                states[state] = min(taken, key=lambda s: s.wall)
    return found


def main() -> int:
    """Print what commands take, write JSON if asked to; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commands")
    parser.add_argument("networks", nargs="*", default=DEFAULT, help="names, or .onnx files")
    parser.add_argument(
        "--runs", type=int, default=5, metavar="N", help="of each but the cold ones"
    )
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
            texts = (f"{state} {taken!s:18}" for state, taken in states.items())
            print(f"{Path(name).stem:16}{row:17}{''.join(texts).rstrip()}")
        sys.stdout.flush()
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
