# SPDX-License-Identifier: Apache-2.0
"""What a search spends on its own, without building and measuring: candidates per second.

    python -m benchmarks.searching [--target T] [--repeat N] [--json FILE]

The space is the template of a 1x1 convolution as ResNet-50 has it (256 channels, 14 x 14). The
first rows are calls of the space for 2,000 candidates each, after 64 of them have been run; `fit`
trains the trees on 1,000 rows; `propose` asks for 16 candidates after 16, 32, ... 128 measurements
(the time is given as a formula: nothing runs); `run` is one run of the template. All are CPU time
of this thread, medians of N.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.nests import conv1x1
from treadle.build.kernel import Kernel
from treadle.files import replacing
from treadle.target.parse import parse_target
from treadle.te.knobs import Space
from treadle.tune.cost_model import TreeModel, has_xgboost, make_model
from treadle.tune.search import make_search
from treadle.tune.template import Point, TemplateSpace

_COUNT, _ROWS, _BATCH, _ROUNDS = 2000, 1000, 16, 8


def cpu_seconds(work: Callable[[], object], repeat: int) -> float:
    """Return the CPU time that a call takes in this thread, the median of several."""
    spent = []
    for _ in range(repeat):
        start = time.thread_time()
        work()
        spent.append(time.thread_time() - start)
    return statistics.median(spent)


def of_space(space: TemplateSpace, repeat: int) -> dict[str, float]:
    """Return candidates per second of what a space does with many at once."""
    random = np.random.default_rng(0)
    for point in space.sample(64, random):
        space.choice(point)
    points = space.sample(_COUNT, random)
    others = space.mutate(points, random)
    calls: dict[str, Callable[[], object]] = {
        "sample": lambda: space.sample(_COUNT, random),
        "mutate": lambda: space.mutate(points, random),
        "cross": lambda: space.cross(points, others, random),
        "features": lambda: space.features(points),
        "estimate": lambda: space.estimate(points),
    }
    return {name: _COUNT / cpu_seconds(call, repeat) for name, call in calls.items()}


def of_model(repeat: int, columns: int) -> float:
    """Return the seconds to fit the trees to rows at random."""
    random = np.random.default_rng(0)
    rows = random.random((_ROWS, columns)).astype(np.float32)
    seconds = np.exp(2 * rows[:, 0] + rows[:, 1]).tolist()
    model = TreeModel()
    return cpu_seconds(lambda: model.fit(rows, seconds), repeat)


def of_search(name: str, space: Space) -> float:
    """Return the seconds to propose a batch, the median over the batches of one search."""
    points = TemplateSpace(space)
    model, _ = make_model()
    search = make_search(name, points, np.random.default_rng(0), model)
    spent = []
    for _ in range(_ROUNDS):
        start = time.thread_time()
        batch = search.propose(_BATCH)
        spent.append(time.thread_time() - start)
        search.tell(batch, [_seconds(points, point) for point in batch])
    return statistics.median(spent[1:])


def _seconds(space: TemplateSpace, point: Point) -> float | None:
    """Return some time for a configuration, always the same."""
    config = space.choice(point)
    return None if config is None else 1.0 + len(str(config)) % 17


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what a search spends."""
    parser = argparse.ArgumentParser(description="What a search spends on its own.")
    parser.add_argument("--target", default="llvm", metavar="T")
    parser.add_argument("--repeat", type=int, default=7, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers too")
    args = parser.parse_args(arguments)
    target = parse_target(args.target)
    kernel = Kernel(conv1x1(target.lanes(), blocks=16, size=14), target)
    space = TemplateSpace(kernel.space)
    rates = of_space(space, args.repeat)
    seconds = {"run": cpu_seconds(kernel.space.knobs, args.repeat)}
    if has_xgboost():
        seconds |= {f"fit, {n} columns": of_model(args.repeat, n) for n in (20, 100)}
    for name in ("genetic", "annealing", "evolutionary"):
        seconds[f"propose, {name}"] = of_search(name, kernel.space)
    table = Table("", "candidates / s", "ms", title=f"{space.size} configurations, {target}")
    for name, rate in rates.items():
        table.add_row(name, f"{rate:,.0f}", f"{1e3 * _COUNT / rate:.1f}")
    for name, second in seconds.items():
        table.add_row(name, "", f"{1e3 * second:.1f}")
    Console().print(table)
    if args.json is not None:
        found = {"target": str(target), "per_second": rates, "seconds": seconds}
        with replacing(args.json) as file:
            file.write((json.dumps(found, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
