# SPDX-License-Identifier: Apache-2.0
"""Runs networks of timm and transformers through Treadle beside eager, and writes a table.

    python -m benchmarks.torch_zoo --results zoo.jsonl --table table.md [pattern ...]

Needs torch, timm and transformers; weights are seeded, nothing is downloaded. Every network runs
in a process that may be lost to a crash or to --limit seconds. Results are kept line by line: the
same command goes on where it was stopped; --again runs anew what ended so.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing as mp
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from multiprocessing.connection import Connection
from pathlib import Path
from typing import get_args

import torch

from benchmarks import zoo_timm, zoo_transformers
from benchmarks.zoo import Case, Result, Road, State, results_of

STATES: tuple[str, ...] = get_args(State)
ROADS: tuple[Road, ...] = get_args(Road)


def names() -> list[str]:
    """Return the networks: "timm/FAMILY" and "transformers/ARCHITECTURE"."""
    return [
        *(f"timm/{name}" for name in zoo_timm.FAMILIES),
        *(f"transformers/{name}" for name in zoo_transformers.ARCHITECTURES),
    ]


def case_of(name: str) -> Case:
    """Return the network of a name."""
    library, _, rest = name.partition("/")
    return (zoo_timm if library == "timm" else zoo_transformers).case_of(rest)


# ---- processes -----------------------------------------------------------------------------------


def work(pipe: Connection, name: str, roads: tuple[Road, ...]) -> None:
    """Send the results of one network, and None after the last."""
    torch.set_num_threads(1)
    logging.getLogger("torch").setLevel(logging.CRITICAL)  # what goes wrong is a result
    warnings.simplefilter("ignore")
    try:
        case = case_of(name)
        case.module(*case.args, **case.kwargs)
    except Exception as e:  # the library may lack the network, or not run it
        pipe.send(Result(name, "make", "crash", detail=f"{type(e).__name__}: {e}"[:600]))
        return
    for result in results_of(name, case, roads):
        pipe.send(result)
    pipe.send(None)


def run(name: str, roads: tuple[Road, ...], limit: float) -> Iterator[Result]:
    """Yield the results of one network, run in a process of its own."""
    context = mp.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, name, roads), daemon=True)
    process.start()
    theirs.close()
    end = time.monotonic() + limit
    try:
        while True:
            if not ours.poll(max(end - time.monotonic(), 0)):
                yield Result(name, "process", "late", detail=f"not done after {limit:g} s")
                return
            result = ours.recv()
            if result is None or result.road == "make":
                yield from [] if result is None else [result]
                return
            yield result
    except EOFError:
        yield Result(name, "process", "crash", detail="the process died")
    finally:
        process.kill()
        process.join()
        ours.close()


# ---- tables --------------------------------------------------------------------------------------

_HEAD = """\
# Networks of timm and transformers on the roads of torch

Written by `python -m benchmarks.torch_zoo --table FILE`: a small member of every family of timm and
architectures of transformers from small configurations, all with seeded weights, compared with
eager. "compile" is `torch.compile(backend="treadle")`, "export" `treadle.compile(module, inputs)`,
"generate" six tokens of greedy search around a compiled `forward`, with the cache that is named
("own": the architecture's). Figures are the largest error over the largest element of an output
(over 1 where that is less). Whole: Treadle computes every operator. Partitioned: torch runs those
named. Refused: the reason is Treadle's or torch's own.
"""


def table(results: Sequence[Result]) -> str:
    """Return the page: for each library the counts, and a row for each network."""
    parts = [_HEAD]
    for library in ("timm", "transformers"):
        own = [r for r in results if r.name.startswith(f"{library}/")]
        rows: dict[str, list[Result]] = {}
        for r in own:
            rows.setdefault(r.name.partition("/")[2], []).append(r)
        parts += [
            f"## {library}\n",
            *_counts(own),
            "",
            "| network | model | results |",
            "|---|---|---|",
        ]
        parts += [
            f"| {name} | {found[0].model} | {'; '.join(map(_cell, found))} |"
            for name, found in rows.items()
        ]
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _counts(results: Iterable[Result]) -> Iterator[str]:
    by_road: dict[str, Counter[str]] = {}
    for r in results:
        by_road.setdefault(r.road, Counter())[r.state] += 1
    for road, counts in by_road.items():
        listed = ", ".join(f"{counts[s]} {s}" for s in STATES if counts[s])
        yield f"- {road}: {sum(counts.values())} networks; {listed}"


def _cell(r: Result) -> str:
    """Return what came of a network on a road, in words."""
    has_error = r.state in ("whole", "partitioned", "wrong") and not r.detail
    error = f" {r.error:.0e}" if has_error else ""
    texts = dict.fromkeys([*r.in_torch, *([r.detail] if r.detail else [])])
    said = " ".join(", ".join(texts).split()).partition(" hint ")[0][:240].replace("|", "\\|")
    return f"{r.road} {r.state}{error}" + (f": {said}" if said else "")


# ---- command line --------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked for; return 1 where a network is wrong, crashed or late."""
    args = _arguments(argv)
    chosen = [n for n in names() if not args.names or any(fnmatch(n, p) for p in args.names)]
    done = _kept(args.results)
    args.results.parent.mkdir(parents=True, exist_ok=True)
    with args.results.open("a", encoding="utf-8") as file:
        for name in chosen:
            if name in done and not any(r.state in args.again for r in done[name]):
                continue
            done[name] = []
            for result in run(name, tuple(args.roads), args.limit):
                done[name].append(result)
                file.write(json.dumps(result.record()) + "\n")
                file.flush()
                print(f"{result.seconds:6.1f} s  {name}: {_cell(result)}", flush=True)
    found = [r for name in chosen for r in done.get(name, ())]
    print(*_counts(found), sep="\n")
    if args.table:
        part = args.table.with_suffix(".part")
        part.write_text(table(found), encoding="utf-8")
        os.replace(part, args.table)
    return int(any(r.state in ("wrong", "crash", "late") for r in found))


def _kept(path: Path) -> dict[str, list[Result]]:
    """Return the results of a file by network: the last of each road."""
    kept: dict[str, dict[str, Result]] = {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in lines:
        result = Result(**json.loads(line))
        roads = kept.setdefault(result.name, {})
        for stale in ("make", "process"):
            roads.pop(stale, None)
        roads[result.road] = result
    return {name: list(roads.values()) for name, roads in kept.items()}


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="networks, as patterns: all by default")
    parser.add_argument("--roads", nargs="+", default=ROADS, choices=ROADS)
    parser.add_argument("--limit", type=float, default=600, help="seconds per network")
    parser.add_argument("--results", type=Path, default=Path("build/torch_zoo.jsonl"))
    parser.add_argument("--again", nargs="*", default=(), choices=STATES)
    parser.add_argument("--table", type=Path, help="file to write the table to")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
