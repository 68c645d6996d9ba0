# SPDX-License-Identifier: Apache-2.0
"""What Python and LLVM take to make one kernel, for each kind of loop nest.

    python -m benchmarks.lowering [--only NAME,...] [--target T] [--repeat N] [--json FILE]

The columns: `schedule` builds the tensor expression and lets the template choose, `lower` goes from
the schedule to the loops that are handed to the back end, `emit` prints its source text, `llvm` is
what the compiler then takes for it in this process. All are milliseconds of CPU time of this
thread, medians of N fresh kernels after one that is not counted; `least` is the shortest `lower`,
which other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.nests import NESTS, Nest, conv1x1, conv3x3
from treadle.build.group import build_group
from treadle.build.kernel import Kernel
from treadle.files import replacing
from treadle.target.base import Target
from treadle.target.llvm import compile_ir
from treadle.target.parse import parse_target
from treadle.te.knobs import Knobs

_CASES: dict[str, Nest] = {
    **NESTS,
    "conv3x3, 14 x 14": lambda n: conv3x3(n, blocks=16, size=14),
    "conv1x1, 14 x 14": lambda n: conv1x1(n, blocks=16, size=14),
}
STAGES = ("schedule", "lower", "emit", "llvm")


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time that a call takes in this thread."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


def seconds_of(nest: Nest, target: Target) -> list[float]:
    """Return the seconds of each stage for a fresh kernel."""
    kernel = Kernel(nest(target.lanes()), target)

    def template() -> None:
        group, schedule = build_group(kernel.function, target)
        schedule(group, target, Knobs())

    alone = cpu_seconds(template)
    lowered = cpu_seconds(lambda: kernel.lowered)  # chooses the schedule again
    emitted = cpu_seconds(kernel.source)
    compiled = cpu_seconds(lambda: compile_ir(kernel.source()))
    return [alone, max(lowered - alone, 0.0), emitted, compiled]


def medians(nest: Nest, target: Target, repeat: int) -> dict[str, float]:
    """Return the median milliseconds of each stage over fresh kernels."""
    seconds_of(nest, target)
    rows = [seconds_of(nest, target) for _ in range(repeat)]
    columns = dict(zip(STAGES, zip(*rows, strict=True), strict=True))
    found = {stage: statistics.median(column) for stage, column in columns.items()}
    found["least"] = min(columns["lower"])
    return {stage: round(1e3 * seconds, 2) for stage, seconds in found.items()}


def print_rows(rows: Sequence[tuple[str, dict[str, float]]]) -> None:
    """Print a line per nest."""
    shown = ("schedule", "lower", "least", "emit", "llvm")
    table = Table("nest", *shown, "all Python")
    for name, row in rows:
        python = row["schedule"] + row["lower"] + row["emit"]
        table.add_row(name, *(f"{row[s]:.1f}" for s in shown), f"{python:.1f}")
    Console(width=100).print(table)


def main() -> None:
    """Time what the command line says and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lowering")
    parser.add_argument("--only", default="", help="parts of names, with commas")
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--repeat", type=int, default=11)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    target = parse_target(arguments.target)
    wanted = [word for word in arguments.only.split(",") if word]
    rows = [
        (name, medians(nest, target, arguments.repeat))
        for name, nest in _CASES.items()
        if not wanted or any(word in name for word in wanted)
    ]
    print_rows(rows)
    if arguments.json is not None:
        facts = {"target": str(target), "repeat": arguments.repeat, "nests": dict(rows)}
        with replacing(arguments.json) as file:
            file.write((json.dumps(facts, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
