# SPDX-License-Identifier: Apache-2.0
"""The tuner beside TVM's MetaSchedule: the same tasks, the same number of trials, one machine.

    python -m benchmarks.tuning_peer --peer /path/to/venv/bin/python [--trials 64] [--threads 2]
                                     [--tasks conv3x3,conv1x1,dense] [--minutes 12]
                                     [--keep FOLDER] [--stage all|search|compare]

The peer is a Python with `apache-tvm==0.27.0`, `apache-tvm-ffi==0.1.14.post1` (0.1.15.post2 ends in
the midst of tuning), `xgboost-cpu`, `cloudpickle`, `psutil`, `scipy` and `tornado` (PyPI); it runs
in a process of its own, from `tuning_peer_tvm.py`. Both tune for this CPU by name, for as many
threads. The tasks are a 3x3 and a 1x1 convolution of ResNet-50 and a product of BERT-base in
float32; Treadle knows the weights when it compiles, as in a model. Each engine tunes a task, then
both best kernels are timed in turns, data and weights in the caches, and the result of each is held
against NumPy's. Printed are the least times, the median of their ratio, and the wall time and the
processor time of tuning, which other work on the machine does not lengthen.

The peer takes minutes for what Treadle does in seconds. So a search may be made in pieces: with
--keep, what is done stays in a folder, and the same command goes on after it, the peer after its
last whole round of candidates. A run begins no round after --minutes: what is left of them is dealt
out evenly to the tasks, and where the peer has not finished a task, that is said. --stage compare
times what was found, and searches no more.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import treadle
from treadle.files import replacing
from treadle.graph.nodes import Constant, Function, Module, Node, Var
from treadle.graph.types import TensorType
from treadle.ops.conv import conv
from treadle.ops.matmul import matmul
from treadle.settings import use
from treadle.target.host import host
from treadle.tune.model import tune_model
from treadle.tune.options import TuneOptions
from treadle.tune.runner import MeasureOptions

_ROUNDS = 15
_START_SECONDS = 120.0
"""How long the peer may take to import itself, or to time a kernel once."""
_ROUND = 16
"""Candidates of the peer between two looks at the clock."""
_ROUND_SECONDS = 600.0
"""How long they may take."""
_HEADINGS = (
    "task     treadle us     tvm us  ratio  treadle s (CPU)      tvm s (CPU)  trials of tvm "
    "off NumPy  of tvm"
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A task: a convolution of stride 1, or a product, by the shapes of data and weights."""

    data: tuple[int, ...]
    weights: tuple[int, ...]
    pad: int = 0

    @property
    def is_product(self) -> bool:
        """True for a product of matrices."""
        return len(self.data) == 2

    @property
    def result(self) -> tuple[int, ...]:
        """The shape of the result."""
        if self.is_product:
            return (self.data[0], self.weights[1])
        sizes = zip(self.data[2:], self.weights[2:], strict=True)
        return (self.data[0], self.weights[0], *(d + 2 * self.pad - k + 1 for d, k in sizes))

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return data and weights, the same in every process."""
        random = np.random.default_rng(0)
        sizes = (self.data, self.weights)
        return tuple(random.standard_normal(s).astype(np.float32) for s in sizes)  # type: ignore[return-value]  # two

    def expected(self) -> np.ndarray:
        """Return the right result, in float64."""
        x, w = (a.astype(np.float64) for a in self.arrays())
        if self.is_product:
            return np.asarray(x @ w)
        p = self.pad
        x = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
        size = tuple(d - k + 1 for d, k in zip(x.shape[2:], w.shape[2:], strict=True))
        windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
        assert windows.shape[2:4] == size
        return np.einsum("nchwij,ocij->nohw", windows, w, optimize=True)

    def module(self) -> Module:
        """Return it as a graph, its weights constant."""
        _, w = self.arrays()
        x = Var("x", TensorType(self.data, "float32"))
        weights = Constant.of(w)
        pads = (self.pad, self.pad)
        body: Node = (
            matmul(x, weights)
            if self.is_product
            else conv(x, weights, pads_before=pads, pads_after=pads)
        )
        return Module(Function((x,), body, "main"))


PROBLEMS: Mapping[str, Problem] = {
    "conv3x3": Problem((1, 128, 28, 28), (128, 128, 3, 3), 1),
    "conv1x1": Problem((1, 256, 14, 14), (1024, 256, 1, 1)),
    "dense": Problem((128, 768), (768, 3072)),
}
"""Of ResNet-50 twice, of BERT-base with 128 tokens."""


class PeerFailed(Exception):  # the message says why
    """The peer has no answer."""


class Peer:
    """A process of the peer's Python: a request is a line of JSON, so is an answer.

    It is started by the first request, and by the next one after it has failed.
    """

    def __init__(self, python: str, folder: Path, threads: int) -> None:
        self._python, self._folder, self._threads = python, folder, threads
        self._process: subprocess.Popen[bytes] | None = None

    def _start(self) -> subprocess.Popen[bytes]:
        script = str(Path(__file__).with_name("tuning_peer_tvm.py"))
        words = [self._python, script, host().cpu, str(self._threads), str(self._folder)]
        count = str(self._threads)
        environment = os.environ | {"TVM_NUM_THREADS": count, "OMP_NUM_THREADS": count}
        with (self._folder / "peer.log").open("ab") as log:
            return subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def ask(self, seconds: float, **request: object) -> dict[str, Any]:
        """Return the answer to a request. Raises: PeerFailed where there is none in time."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # seen below
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, seconds))
        line = process.stdout.readline() if ready else b""
        if not line:
            self.close()
            tail = (self._folder / "peer.log").read_text(errors="replace").strip()[-600:]
            ended = f"it ended:\n{tail}" if ready else f"it did not finish in {seconds:.0f} s"
            raise PeerFailed(ended)
        answer: dict[str, Any] = json.loads(line)
        if answer.get("error"):
            raise PeerFailed(str(answer["error"]))
        return answer

    def close(self) -> None:
        """End it and the processes that it has started."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None


@dataclass(slots=True)
class Effort:
    """What an engine has spent on a task: seconds on the wall and of processors, trials.

    `asked` is the budget of trials, which a space with fewer candidates does not use up.
    """

    seconds: float = 0.0
    processor: float = 0.0
    trials: int = 0
    asked: int = 0

    def __str__(self) -> str:
        return f"{self.seconds:.0f} ({self.processor:.0f})"


@dataclass(slots=True)
class Kept:
    """What is done of a task, in a file of its own."""

    path: Path
    mine: Effort
    peer: Effort

    @staticmethod
    def of(folder: Path, name: str) -> Kept:
        """Return what a folder says of a task: nothing is done of one that is not there."""
        path = folder / f"{name}.json"
        found = json.loads(path.read_text()) if path.exists() else {}
        return Kept(path, *(Effort(**found.get(side, {})) for side in ("mine", "peer")))

    def save(self) -> None:
        """Write it down."""
        with replacing(self.path) as file:
            text = json.dumps({"mine": asdict(self.mine), "peer": asdict(self.peer)})
            file.write(text.encode())


def _processor_seconds() -> float:
    """Return the processor time of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def tune_mine(problem: Problem, trials: int, threads: int, folder: Path, spent: Effort) -> None:
    """Tune a problem with Treadle: methods and schedules together in as many trials."""
    options = TuneOptions(trials=trials, measure=MeasureOptions(threads=threads))
    start, used = time.monotonic(), _processor_seconds()
    result = tune_model(problem.module(), folder / "records.jsonl", options=options)
    spent.seconds += time.monotonic() - start
    spent.processor += _processor_seconds() - used
    spent.trials, spent.asked = result.trials, trials


def tune_peer(peer: Peer, name: str, trials: int, kept: Kept, end: float) -> None:
    """Let the peer go on with a task, until it has made its trials or `end` has come.

    Raises: PeerFailed where a round fails.
    """
    spent = kept.peer
    while spent.asked < trials and time.monotonic() < end:
        count = min(_ROUND, trials - spent.asked)
        words = _words(name) | {"trials": count, "seed": spent.asked}
        answer = peer.ask(_ROUND_SECONDS, do="tune", **words)
        spent.seconds += answer["seconds"]
        spent.processor += answer["processor"]
        spent.asked += count
        kept.save()


def _words(name: str) -> dict[str, object]:
    """Return how the peer is told of a task."""
    problem = PROBLEMS[name]
    kind = "dense" if problem.is_product else "conv"
    return {"name": name, "kind": kind, "pad": problem.pad, "result": problem.result}


def _check(name: str, engine: str, found: np.ndarray, expected: np.ndarray) -> float:
    """Return how far a result is from NumPy's, as a share of its largest element."""
    apart = float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))
    if not apart <= 1e-4:
        raise SystemExit(f"{name}: the result of {engine} is wrong by {apart:.1e}")
    return apart


def search(name: str, arguments: argparse.Namespace, peer: Peer, folder: Path, end: float) -> None:
    """Tune a problem with both, as far as it was not before; begin nothing after `end`."""
    problem, kept = PROBLEMS[name], Kept.of(folder, name)
    x, w = problem.arrays()
    np.savez(folder / f"{name}.npz", x=x, w=w)
    place = folder / name
    place.mkdir(exist_ok=True)
    if kept.mine.asked < arguments.trials:
        tune_mine(problem, arguments.trials, arguments.threads, place, kept.mine)
        kept.save()
    try:
        tune_peer(peer, name, arguments.trials, kept, end)
    except PeerFailed as failed:
        print(f"{name}: the peer: {failed}", flush=True)


def compare(name: str, arguments: argparse.Namespace, peer: Peer, folder: Path) -> None:
    """Time what both have found of a problem in turns; print a row."""
    problem, kept = PROBLEMS[name], Kept.of(folder, name)
    if kept.mine.asked < arguments.trials or kept.peer.asked < arguments.trials:
        done = f"{kept.mine.asked} of Treadle and {kept.peer.asked} of TVM"
        print(f"{name:<8} not done: of {arguments.trials} trials {done}", flush=True)
        return
    x, _ = problem.arrays()
    expected = problem.expected()
    executable = treadle.compile(problem.module(), records=folder / name / "records.jsonl")
    (got,) = executable.run([x])
    apart = _check(name, "Treadle", np.asarray(got), expected)
    try:
        theirs = peer.ask(_START_SECONDS, do="load", **_words(name))
        apart_peer = _check(name, "TVM", np.load(theirs["result"]), expected)
        times = _timed(executable, x, peer, name)
    except PeerFailed as failed:
        print(f"{name:<8} the peer: {failed}", flush=True)
        return
    own, other = times.min(axis=0) * 1e6
    ratio = float(np.median(times[:, 1] / times[:, 0]))
    print(
        f"{name:<8} {own:10.1f} {other:10.1f} {ratio:6.2f} {kept.mine!s:>16} {kept.peer!s:>16} "
        f"{kept.mine.trials:7} {theirs['trials']:6} {apart:9.0e} {apart_peer:7.0e}",
        flush=True,
    )


def _timed(executable: treadle.Executable, x: np.ndarray, peer: Peer, name: str) -> np.ndarray:
    """Return the seconds of a run of both, a row per round."""
    rows: list[tuple[float, float]] = []
    for _ in range(_ROUNDS):
        own = executable.benchmark([x], number=1, repeat=1, min_repeat_ms=50).min
        rows.append((own, float(peer.ask(_START_SECONDS, do="time", name=name)["seconds"])))
    return np.asarray(rows)


def main() -> None:
    """Compare the engines as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning_peer")
    parser.add_argument("--peer", required=True, help="the peer's Python")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tasks", default=",".join(PROBLEMS))
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument("--keep", type=Path, help="a folder of what is done (default: none)")
    parser.add_argument("--stage", choices=("all", "search", "compare"), default="all")
    arguments = parser.parse_args()
    names = arguments.tasks.split(",")
    if unknown := [n for n in names if n not in PROBLEMS]:
        parser.error(f"there is no task {unknown[0]}; there are {', '.join(PROBLEMS)}")
    print(f"CPU {host().cpu}, {arguments.threads} threads, {arguments.trials} trials per task")
    with ExitStack() as stack:
        stack.enter_context(use(num_threads=arguments.threads))
        folder = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        peer = stack.enter_context(closing(Peer(arguments.peer, folder, arguments.threads)))
        try:
            print(f"peer: TVM {peer.ask(_START_SECONDS, do='hello')['version']}", flush=True)
        except PeerFailed as failed:
            raise SystemExit(f"the peer does not start: {failed}") from None
        _run(names, arguments, peer, folder)


def _run(names: Sequence[str], arguments: argparse.Namespace, peer: Peer, folder: Path) -> None:
    """Search and compare, as far as the command line asks for it."""
    last = time.monotonic() + 60 * arguments.minutes
    for done, name in enumerate(names if arguments.stage != "compare" else ()):
        now = time.monotonic()
        search(name, arguments, peer, folder, now + (last - now) / (len(names) - done))
    if arguments.stage == "search":
        for name in names:
            kept = Kept.of(folder, name)
            print(
                f"{name:<8} Treadle {kept.mine} s, TVM {kept.peer} s for {kept.peer.asked} trials"
            )
        return
    print(_HEADINGS)
    for name in names:
        compare(name, arguments, peer, folder)
    print("ratio: TVM's time over Treadle's, in turns")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the peer ends, too
    main()
