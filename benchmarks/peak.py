# SPDX-License-Identifier: Apache-2.0
"""Prints what the machine can do at most: float32 FMAs per second and memory read bandwidth.

python -m benchmarks.peak [--threads 1,2]
"""

from __future__ import annotations

import argparse
import json

from rich.console import Console
from rich.table import Table

from benchmarks import machine
from treadle.cli.peak import fma_gflops, read_gigabytes
from treadle.target.parse import parse_target
from treadle.target.probes import lanes_of


def main() -> None:
    """Measure at the numbers of threads on the command line and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peak")
    every = ",".join(map(str, range(1, machine.usable_cores() + 1)))
    parser.add_argument("--threads", default=every, help="as in 1,2 (default: up to all cores)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    figures = {
        threads: {"fma_gflops": fma_gflops(threads), "read_gb_per_s": read_gigabytes(threads)}
        for threads in map(int, arguments.threads.split(","))
    }
    if arguments.json:
        print(json.dumps({"machine": machine.describe(), "threads": figures}, indent=1))
        return
    lanes = lanes_of(parse_target("llvm"))
    table = Table(title=f"{machine.describe()['cpu']}, vectors of {32 * lanes} bits")
    for heading in ("threads", "float32 FMA, GFLOP/s", "memory read, GB/s"):
        table.add_column(heading, justify="right")
    for threads, figure in figures.items():
        gflops, gigabytes = figure["fma_gflops"], figure["read_gb_per_s"]
        table.add_row(str(threads), f"{gflops:.0f}", f"{gigabytes:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
