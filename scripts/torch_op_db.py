# SPDX-License-Identifier: Apache-2.0
"""Runs the samples of torch's operator database through Treadle and counts what is right.

    python -m scripts.torch_op_db --samples 5 --dtypes float32 --results results.jsonl

--road says which way: trace (make_fx and the importer) or compile (torch.compile).
Samples of an operator, of all its element types, are compiled together as long as they are right.
Every operator runs in a process that may be lost: after a crash, or samples that take longer than
--limit seconds, its element types are run apart, and the one it is of loses the rest. Results are
kept line by line, so that the same command goes on where it was stopped; --again runs anew what is
in them as refused, wrong or crash.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing as mp
import sys
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from tests.frontend.torch import op_db

KINDS = ("right", "torch", "refused", "wrong", "crash")
"""What becomes of samples, the worst last; torch's own failures are next to right."""

Task = tuple[str, tuple[str, ...]]
"""The name of an operator, and element types of which the samples may be compiled together."""


@dataclass
class Result:
    """What became of the samples of an operator with one element type: counts and first reasons."""

    op: str
    dtype: str
    counts: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, reason: str) -> None:
        """Count one sample."""
        self.counts[kind] += 1
        if reason:
            self.reasons.setdefault(kind, reason)

    def to_line(self) -> str:
        """Return the result as a line of JSON."""
        return json.dumps(
            {"op": self.op, "dtype": self.dtype, "counts": self.counts, "reasons": self.reasons}
        )

    @staticmethod
    def of_line(line: str) -> Result:
        """Return the result that a line holds."""
        read = json.loads(line)
        return Result(read["op"], read["dtype"], Counter(read["counts"]), read["reasons"])


# ---- processes -----------------------------------------------------------------------------------


def work(pipe: Connection, samples: int | None, road: op_db.Road) -> None:
    """Run tasks as they come; send an outcome per sample, and None after the last."""
    known = op_db.operators()
    torch.set_num_threads(1)
    gc.freeze()  # torch's own objects are many, and stay
    while True:
        name, dtypes = pipe.recv()
        for dtype, outcome in op_db.outcomes_of(known[name], dtypes, samples, road):
            pipe.send((dtype, outcome.kind, outcome.reason) if outcome else (dtype, "", ""))
        pipe.send(None)


class Worker:
    """A process and the task that it is at."""

    def __init__(self, samples: int | None, road: op_db.Road) -> None:
        self._options = (samples, road)
        self._start()

    def _start(self) -> None:
        context = mp.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs, *self._options), daemon=True)
        self._process.start()
        theirs.close()
        self.task: Task | None = None

    def give(self, task: Task) -> None:
        """Start a task."""
        self.task = task
        self._results = {dtype: Result(task[0], dtype) for dtype in task[1]}
        self.since = monotonic()
        self.pipe.send(task)

    def receive(self) -> list[Result]:
        """Take what has arrived; return the results when the task is over.

        Raises: Lost when the process died.
        """
        self.since = monotonic()
        try:
            message = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            raise Lost("the process died") from None
        if message is None:
            self.task = None
            return list(self._results.values())
        dtype, kind, reason = message
        if kind:
            self._results[dtype].add(kind, reason)
        return []

    def lose(self, reason: str) -> tuple[list[Result], list[Task]]:
        """Count a crash, and go on with another process.

        Returns the results, or of several element types the tasks to find out which it was.
        """
        assert self.task is not None
        name, dtypes = self.task
        self.stop()
        self._start()
        if len(dtypes) > 1:
            return [], [(name, (dtype,)) for dtype in dtypes]
        self._results[dtypes[0]].add("crash", reason)
        return list(self._results.values()), []

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


class Lost(Exception):
    """A process is no more."""


def run(tasks: Sequence[Task], args: argparse.Namespace) -> Iterable[Result]:
    """Yield the results of tasks as they come."""
    left = list(reversed(tasks))
    workers = [Worker(args.samples, args.road) for _ in range(args.workers)]
    try:
        while left or any(w.task for w in workers):
            for worker in workers:
                if worker.task is None and left:
                    worker.give(left.pop())
            busy = [w for w in workers if w.task]
            ready = wait([w.pipe for w in busy], timeout=1.0)
            for worker in busy:
                try:
                    if worker.pipe in ready:
                        yield from worker.receive()
                    elif monotonic() - worker.since > args.limit:
                        raise Lost(f"no result after {args.limit} s")
                except Lost as e:
                    results, again = worker.lose(str(e))
                    left += again
                    yield from results
    finally:
        for worker in workers:
            worker.stop()


def tasks_of(
    names: Sequence[str], args: argparse.Namespace, done: Container[tuple[str, str]]
) -> list[Task]:
    """Return what is left: an operator with its element types each."""
    known = op_db.operators()
    tasks: list[Task] = []
    for name in names:
        dtypes = [d for d in op_db.dtypes_of(known[name]) if d in args.dtypes]
        wanted = tuple(d for d in dtypes if (name, d) not in done)
        tasks += [(name, wanted)] if wanted else []
    return tasks


# ---- summary -------------------------------------------------------------------------------------


def worst(results: Iterable[Result]) -> str:
    """Return what becomes of an operator as a whole: the worst that befalls a sample of it."""
    found = {kind for r in results for kind in r.counts if r.counts[kind]}
    return next((kind for kind in reversed(KINDS) if kind in found), "")


def summary(results: Iterable[Result]) -> str:
    """Return the table of shares: of operators and of samples, in Core ATen and in all."""
    by_op: dict[str, list[Result]] = defaultdict(list)
    for r in results:
        by_op[r.op].append(r)
    known = op_db.operators()
    core = {name for name in by_op if op_db.is_core(known[name])}
    lines = []
    for title, names in (("Core ATen", core), ("whole database", set(by_op))):
        ops = Counter(worst(by_op[n]) for n in names)
        samples: Counter[str] = sum((r.counts for n in names for r in by_op[n]), Counter())
        ops.pop("", None)
        lines += [_row(f"{title}, operators", ops), _row(f"{title}, samples", samples)]
    return "\n".join(lines)


def _row(title: str, counts: Counter[str]) -> str:
    """Return a line of shares; those of what torch itself cannot do are of no whole."""
    total = max(sum(counts.values()) - counts["torch"], 1)
    ours = [kind for kind in KINDS if kind != "torch"]
    shares = (f"{kind} {counts[kind]} ({100 * counts[kind] / total:.1f} %)" for kind in ours)
    torchs = f"; {counts['torch']} more fail in torch itself" if counts["torch"] else ""
    return f"{title}: {total}; {', '.join(shares)}{torchs}"


def refused_list(results: Iterable[Result]) -> str:
    """Return what is refused, below the reason: operators, with element types if not all."""
    by_reason: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for r in results:
        for kind in ("refused", "torch"):
            if kind in r.counts:
                by_reason[r.reasons[kind]][r.op].append(r.dtype)
    blocks = []
    for reason, ops in sorted(by_reason.items()):
        names = [f"{op}: {' '.join(sorted(dtypes))}" for op, dtypes in sorted(ops.items())]
        blocks.append("\n".join([f"[{reason}]", *names]))
    return "\n\n".join(blocks)


_HEADS = {
    "trace": """\
# What of torch's operator database is refused, below the reason why: operators with the element
# types of which one sample or more is refused. Written by scripts/torch_op_db.py --refused.

""",
    "compile": """\
# What of torch's operator database torch.compile(backend="treadle", fullgraph=True) does not run
# whole in Treadle, below the reason why: operators with the element types of which one sample or
# more is left to torch, in part or as a whole. "torch.compile itself" is what aot_eager cannot do
# either. Written by scripts/torch_op_db.py --road compile --refused.

""",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked for; return 1 where a result is wrong or a process crashed."""
    args = _arguments(argv)
    known: dict[str, Any] = op_db.operators()
    chosen = [n for n in known if not args.names or any(fnmatch(n, p) for p in args.names)]
    names = [n for n in chosen if not args.core or op_db.is_core(known[n])]
    done = _kept(args.results, args.again)
    args.results.parent.mkdir(parents=True, exist_ok=True)
    with args.results.open("a", encoding="utf-8") as file:
        for result in run(tasks_of(names, args, done), args):
            done[result.op, result.dtype] = result
            file.write(result.to_line() + "\n")
            file.flush()
            if worst([result]) in ("wrong", "crash"):
                print(f"{result.op} {result.dtype}: {dict(result.counts)} {result.reasons}")
    found = [r for (n, d), r in done.items() if n in names and d in args.dtypes]
    print(summary(found))
    if args.refused:
        args.refused.write_text(_HEADS[args.road] + refused_list(found) + "\n", encoding="utf-8")
    return int(worst(found) in ("wrong", "crash"))


def _kept(path: Path, again: Sequence[str]) -> dict[tuple[str, str], Result]:
    """Return the results of a file: the last of each task, but those to be run again."""
    if not path.exists():
        return {}
    read = [Result.of_line(line) for line in path.read_text(encoding="utf-8").splitlines()]
    last = {(r.op, r.dtype): r for r in read}
    return {task: r for task, r in last.items() if worst([r]) not in again}


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="operators, as patterns: all by default")
    parser.add_argument("--core", action="store_true", help="those of Core ATen alone")
    kinds = (*op_db.DTYPES, *op_db.COMPLEX)
    parser.add_argument("--dtypes", nargs="+", default=op_db.DTYPES, choices=kinds)
    parser.add_argument("--samples", type=int, help="at most so many per operator and type")
    parser.add_argument("--road", choices=("trace", "compile"), default="trace")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--limit", type=float, default=600, help="seconds per program of samples")
    parser.add_argument("--results", type=Path, default=Path("build/torch_op_db.jsonl"))
    parser.add_argument("--again", nargs="*", default=(), choices=KINDS[1:])
    parser.add_argument("--refused", type=Path, help="file to list in what is refused, and why")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
