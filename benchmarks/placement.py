# SPDX-License-Identifier: Apache-2.0
"""Whether processes that run one network differ in speed: by where its memory lies, say.

    python -m benchmarks.placement resnet50 speech_features [--threads 1] [--processes 6]
                                   [--rounds 24] [--runs 8]

Every process compiles the network for itself, so that its arena, its weights and its code lie
wherever they came to lie; then the processes take turns, and the least of some runs counts. Printed
are, of each process, the median over the rounds of its time over that of all in the round, and how
those medians correlate between the first and the second half of the rounds. What stays with a
process correlates; what passes (other work, clocks) does not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import treadle
from benchmarks import networks
from benchmarks.tuning_zoo import inputs_of
from treadle.settings import use


@dataclass(frozen=True, slots=True)
class Spread:
    """By process: its time over that of all; and what that of the first half says of the second."""

    ratios: npt.NDArray[np.float64]
    correlation: float

    @staticmethod
    def of(seconds: npt.NDArray[np.float64]) -> Spread:
        """Return that of `seconds` by rounds and processes."""
        ratios = seconds / np.median(seconds, axis=1, keepdims=True)
        halves = np.array_split(ratios, 2)
        first, second = (np.median(h, axis=0) for h in halves)
        return Spread(np.median(ratios, axis=0), float(np.corrcoef(first, second)[0, 1]))


def measured(name: str, arguments: argparse.Namespace) -> npt.NDArray[np.float64]:
    """Return the seconds of a run by rounds and processes, the least of some runs each."""
    words = [sys.executable, "-m", "benchmarks.placement", "--serve", name]
    words += ["--threads", str(arguments.threads), "--runs", str(arguments.runs)]
    with ExitStack() as stack:
        children = [
            stack.enter_context(
                subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(arguments.processes)
        ]
        for child in children:
            _ask(child, "")  # until it is ready
        return np.array([[_ask(c, "run\n") for c in children] for _ in range(arguments.rounds)])


def _ask(child: subprocess.Popen[str], request: str) -> float:
    """Send a line to a process and return the number that it answers."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(request)
    child.stdin.flush()
    return float(child.stdout.readline())


def serve(name: str, arguments: argparse.Namespace) -> None:
    """Compile a network; for every line that comes, answer the least seconds of some runs."""
    with use(num_threads=arguments.threads):
        made = treadle.compile(networks.build(name))
        values = inputs_of(made)
        made.run(values)
        print(0.0, flush=True)
        for _ in sys.stdin:
            print(made.benchmark(values, number=1, repeat=arguments.runs).min, flush=True)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.placement")
    parser.add_argument("names", nargs="+", help="networks of the zoo")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.names[0], arguments)
        return
    for name in arguments.names:
        seconds = measured(name, arguments)
        spread = Spread.of(seconds)
        ratios = " ".join(f"{r:.3f}" for r in spread.ratios)
        print(
            f"{name:<20} {seconds.min() * 1e3:9.3f} ms  {ratios}  "
            f"correlation of the halves {spread.correlation:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
