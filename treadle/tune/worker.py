# SPDX-License-Identifier: Apache-2.0
"""A process on a machine of a fleet that builds and measures candidates of one model's tasks.

It reads requests from its standard input and writes answers to its standard output, messages of
`process.py`. The first request brings the model and how it is compiled; from these the tasks are
made here, as the tuner has made its own: what travels is a model, plain data and machine code. The
other requests are answered by builders and a runner as on the tuner's machine.

All such processes of a machine share two locks: nothing is built while something is timed.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

from treadle.build.compile import fused_model
from treadle.build.compiler_digest import compiler_digest
from treadle.build.kernel import ObjectCode
from treadle.build.method_records import MethodRecord
from treadle.build.records import Records
from treadle.errors import TreadleError
from treadle.settings import use
from treadle.target.base import Target
from treadle.target.host import host, usable_cores, why_not_measured
from treadle.te.choice import choice_from_json
from treadle.tune.executor import LocalExecutor, LocalWorkers, WorkOptions
from treadle.tune.process import packed, read_message, unpacked, write_message
from treadle.tune.runner import MeasureOptions
from treadle.tune.task import extract_tasks


def why_unlike(target: Target) -> str:
    """Return why times of this machine do not hold for a target; "" where they do.

    They hold where it is the CPU that the target names, with as much cache and enough cores.
    """
    here, cores = host(), usable_cores()
    if (unfit := why_not_measured(target)) is not None:
        return unfit.problem
    if target.cpu != here.cpu:
        return f"its CPU is {here.cpu} and not {target.cpu}"
    if target.machine.sizes != here.machine.sizes:
        return f"its caches are {here.machine.sizes} and not {target.machine.sizes}"
    if target.cores > cores:
        return f"it has {cores} of {target.cores} cores"
    return ""


class Session:
    """The tasks of one model, and what is asked of them by their names."""

    def __init__(self, setup: bytes) -> None:
        """Make the tasks, as `setup_message` describes them.

        Raises: as `treadle.compile`.
        """
        head, model = unpacked(setup)
        self._options = WorkOptions(MeasureOptions(**head["measure"]), 1, head["build_timeout"])
        with use(num_threads=self._options.measure.threads):
            fused = fused_model(
                model, target=head["target"], records=_methods(head["methods"]), **head["compiling"]
            )
        self._target = fused.target
        self._tasks = extract_tasks(fused).tasks
        self._places = {task.name: k for k, task in enumerate(self._tasks)}

    def serve(self) -> Iterator[bytes]:
        """Answer the requests of standard input; a generator of answers."""
        with LocalExecutor().workers(self._tasks, self._options) as workers:
            while (request := read_message(0)) is not None:
                head, code = unpacked(request)
                yield self._answer(head, code, workers)

    def _answer(self, head: dict[str, Any], code: bytes, workers: LocalWorkers) -> bytes:
        if head["do"] == "hello":
            return packed({"compiler": compiler_digest(), "unlike": why_unlike(self._target)})
        place = self._places.get(head["task"])
        if place is None:
            return packed({"error": f"the worker's model has no kernel {head['task']}"})
        if head["do"] == "build":
            with _building():
                return _built(workers, place, head)
        with _measuring():
            if head["do"] == "race":
                choices = [choice_from_json(c) for c in head["choices"]]
                rows = workers.race(place, choices, head["rounds"])
                return packed({"rows": [asdict(row) for row in rows]})
            best = inf if head["best"] is None else head["best"]
            measured = workers.measure(place, ObjectCode(code, head["workspace"]), best)
            return packed(asdict(measured))


def _built(workers: LocalWorkers, place: int, head: dict[str, Any]) -> bytes:
    built = workers.build(place, choice_from_json(head["choice"]))
    made = built.object
    answer = {
        "error": built.error,
        "seconds": built.seconds,
        "workspace": None if made is None else made.workspace,
    }
    return packed(answer, b"" if made is None else made.code)


def _methods(lines: Sequence[str]) -> Records:
    records = Records()
    for line in lines:
        row = json.loads(line)
        records.add(MethodRecord(row["call"], row["target"], row["method"]))
    return records


def setup_message(
    model: bytes, target: Target, compiling: dict[str, Any], methods: Sequence[MethodRecord],
    options: WorkOptions,
) -> bytes:  # fmt: skip
    """Return what a session is made of: an ONNX model and how its kernels are made and measured."""
    head = {
        "target": str(target),
        "compiling": compiling,
        "methods": [record.line().decode() for record in methods],
        "measure": asdict(options.measure),
        "build_timeout": options.build_timeout,
    }
    return packed(head, model)


# ---- one at a time on a machine ------------------------------------------------------------------


@contextmanager
def _locked(name: str, how: int) -> Iterator[None]:
    path = Path(tempfile.gettempdir()) / f"treadle-tune-{os.getuid()}-{name}.lock"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, how)
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)  # a runner forked in between holds it, too
        os.close(file)


@contextmanager
def _building() -> Iterator[None]:
    """A block during which others build; it waits while something on this machine is timed."""
    with _locked("next", fcntl.LOCK_EX):  # whoever waits to measure comes before later builds
        pass
    with _locked("now", fcntl.LOCK_SH):
        yield


@contextmanager
def _measuring() -> Iterator[None]:
    """A block during which nothing on this machine is built or measured."""
    with _locked("next", fcntl.LOCK_EX), _locked("now", fcntl.LOCK_EX):
        yield


def main() -> int:
    """Serve until the input ends."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what anything prints is no answer
    setup = read_message(0)
    if setup is None:
        return 0
    try:
        session = Session(setup)
    except TreadleError as error:
        write_message(answers, packed({"error": error.problem}))
        return 1
    write_message(answers, packed({"error": ""}))
    with suppress(BrokenPipeError):
        for answer in session.serve():
            write_message(answers, answer)
    return 0
