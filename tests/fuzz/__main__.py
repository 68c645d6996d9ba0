# SPDX-License-Identifier: Apache-2.0
"""Fuzz by hand: python -m tests.fuzz --count N --seed S; --minimise shrinks the graph S."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait

SECONDS = 300.0
"""How long one graph may take."""


def _work(link: Connection, levels: tuple[int, ...], is_open: bool) -> None:
    """Check the seeds that come over a link until it closes; `is_open`: those of open sizes."""
    from tests.fuzz.check import check_graph
    from tests.fuzz.generate import make_graph

    while True:
        try:
            seed = link.recv()
        except EOFError:
            return
        graph = make_graph(seed, is_open)
        if is_open and not graph.others:
            link.send((0, None))
            continue
        finding = check_graph(graph, levels) if graph.nodes else None
        link.send((len(graph.nodes), finding and (finding.kind, finding.text, finding.level)))


class _Worker:
    def __init__(self, levels: tuple[int, ...], is_open: bool) -> None:
        self.link, other = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=_work, args=(other, levels, is_open))
        self.process.start()
        other.close()
        self.seed = -1
        self.since = 0.0

    def give(self, seed: int) -> None:
        self.seed, self.since = seed, time.monotonic()
        self.link.send(seed)

    def end(self) -> None:
        self.link.close()
        self.process.kill()
        self.process.join()


Row = tuple[int, int, "tuple[str, str, int] | None"]


def check_seeds(
    seeds: Iterator[int], jobs: int, levels: tuple[int, ...], is_open: bool = False
) -> Iterator[Row]:
    """Yield (seed, nodes, finding) as graphs are done; a death or a hang is a finding.

    With `is_open` graphs that cannot have open sizes have no nodes.
    """
    workers = [_Worker(levels, is_open) for _ in range(jobs)]
    busy = [w for w in workers if _next(w, seeds)]
    while busy:
        ready = wait([w.link for w in busy], timeout=1.0)
        for w in list(busy):
            late = time.monotonic() - w.since > SECONDS
            if w.link not in ready and not late:
                continue
            busy.remove(w)
            try:
                if late:
                    raise EOFError("hangs")
                nodes, finding = w.link.recv()
                yield w.seed, nodes, finding
            except (EOFError, OSError) as error:
                seed = w.seed
                w.end()
                w = _Worker(levels, is_open)
                yield seed, 0, ("crash", str(error) or "the process died", -1)
            if _next(w, seeds):
                busy.append(w)
            else:
                w.end()


def _next(worker: _Worker, seeds: Iterator[int]) -> bool:
    seed = next(seeds, None)
    if seed is not None:
        worker.give(seed)
    else:
        worker.end()
    return seed is not None


def main() -> int:
    """Check graphs and print what is found; return 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, metavar="N", help="graphs to check")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first seed")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="J")
    parser.add_argument("--levels", default="0,3", help="optimisation levels (default: 0,3)")
    parser.add_argument(
        "--coverage", action="store_true", help="only say which operators the graphs consist of"
    )
    parser.add_argument(
        "--open", action="store_true", help="only graphs with open sizes, which most can have"
    )
    parser.add_argument("--minimise", action="store_true", help="shrink the graph --seed")
    options = parser.parse_args()
    levels = tuple(int(word) for word in options.levels.split(","))
    with tempfile.TemporaryDirectory(prefix="treadle-fuzz-") as cache:
        os.environ.setdefault("TREADLE_CACHE", cache)
        os.environ.setdefault("TREADLE_COMPILE_WORKERS", "1")
        if options.coverage:
            return _print_coverage(range(options.seed, options.seed + options.count))
        if options.minimise:
            return _minimise(options.seed, levels, options.open)
        return _check(options, levels)


def _check(options: argparse.Namespace, levels: tuple[int, ...]) -> int:
    counts: Counter[str] = Counter()
    start = time.monotonic()
    seeds = iter(range(options.seed, options.seed + options.count))
    for done, (seed, nodes, finding) in enumerate(
        check_seeds(seeds, options.jobs, levels, options.open), 1
    ):
        counts["nodes"] += nodes
        counts["right" if finding is None else finding[0]] += bool(nodes or finding)
        if finding is not None:
            kind, text, level = finding
            print(f"seed {seed}: {kind} at level {level}: {text}", flush=True)
        if done % 100 == 0:
            rate = done / (time.monotonic() - start)
            print(f"{done} graphs, {rate:.1f}/s, {dict(counts)}", file=sys.stderr, flush=True)
    print(f"{options.count} graphs from seed {options.seed}: {dict(counts)}")
    return 1 if counts["wrong"] + counts["error"] + counts["crash"] else 0


def _print_coverage(seeds: range) -> int:
    """Print how often every operator is drawn, and those that the importer knows and none is."""
    from tests.fuzz.generate import make_graph
    from treadle.frontend.onnx.families import converters

    drawn = Counter((n.domain, n.op_type) for s in seeds for n in make_graph(s).nodes)
    for (domain, op), count in drawn.most_common():
        print(f"{count:7} {domain}{'.' if domain else ''}{op}")
    never = sorted(
        op for domain, op in converters().names() if not domain and ("", op) not in drawn
    )
    print(f"never drawn: {', '.join(never)}")
    return 0


def _minimise(seed: int, levels: tuple[int, ...], is_open: bool) -> int:
    from tests.fuzz.check import check_graph
    from tests.fuzz.generate import make_graph
    from tests.fuzz.minimise import describe, minimise

    graph = make_graph(seed, is_open)
    finding = check_graph(graph, levels)
    if finding is None:
        print(f"graph {seed} is right")
        return 0
    print(finding)
    small = minimise(graph, finding)
    print(check_graph(small, (finding.level,)))
    print(describe(small))
    return 1


if __name__ == "__main__":
    sys.exit(main())
