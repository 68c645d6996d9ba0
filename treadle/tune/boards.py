# SPDX-License-Identifier: Apache-2.0
"""Several devices that measure at the same time, each through a process of its own.

A process waits for its device, as calls over the network do; it is forked, as builders are, so that
nothing runs in threads while processes fork.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field

from treadle.build.kernel import ObjectCode
from treadle.target.host import usable_cores
from treadle.te.choice import Choice
from treadle.tune.builder import Builders, Built, build_all
from treadle.tune.executor import CandidateRunner, KnownCode, Outcome, WorkOptions
from treadle.tune.pool import Answer, Pool
from treadle.tune.process import Serve, packed, unpacked
from treadle.tune.runner import Measured, MeasureOptions
from treadle.tune.task import Task

_SLICE_SECONDS = 0.05
"""Builders and devices are looked at alternately, so long each."""
_WAIT_SECONDS = 720.0
"""How long a candidate may wait for a device, and for the reference of its task."""
_CALLS = 4
"""Of a candidate that each may take the time limit, in addition to one per figure."""

MakeRunner = Callable[[Sequence[Task], MeasureOptions], CandidateRunner]


@dataclass(slots=True)
class BoardWorkers:
    """Builders of this machine and `boards` devices; a context that ends what asks them.

    `make_runner` makes what asks one device. They are other machines: building goes on while they
    measure.
    """

    tasks: Sequence[Task]
    options: WorkOptions
    make_runner: MakeRunner
    boards: int
    _tasks_of: dict[int, int] = field(default_factory=dict)
    _built: dict[int, tuple[ObjectCode, float]] = field(default_factory=dict)
    _known: KnownCode = field(default_factory=KnownCode)
    _stack: ExitStack = field(default_factory=ExitStack)
    _builders: Builders = field(init=False)
    _pool: Pool = field(init=False)

    def __enter__(self) -> BoardWorkers:
        count = self.options.builders or usable_cores()
        builders = Builders(self.tasks, count, self.options.build_timeout)
        self._builders = self._stack.enter_context(builders)
        start = _serve(self.make_runner, self.tasks, self.options.measure)
        self._pool = self._stack.enter_context(Pool(start, self.boards))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def count(self) -> int:
        """How many candidates are built or measured at a time."""
        return max(self._builders.count, self.boards)

    @property
    def pending(self) -> int:
        """How many candidates wait, or are built or measured."""
        return self._builders.pending + self._pool.pending

    def add(self, ticket: int, task: int, choice: Choice) -> None:
        """Queue a candidate for the builders."""
        self._tasks_of[ticket] = task
        self._builders.add(ticket, task, choice)

    def results(self, wait: float, best: Callable[[int], float]) -> Iterator[Outcome]:
        """Hand over what has been built, and yield what has been measured."""
        end = time.monotonic() + wait
        while self.pending:
            found = 0
            for built in self._builders.results(_SLICE_SECONDS):
                outcome = self._handed_over(built, best)
                if outcome is not None:
                    found += 1
                    yield outcome
            for answer in self._pool.results(_SLICE_SECONDS):
                found += 1
                yield self._outcome(answer)
            if found or time.monotonic() >= end:
                return

    def _handed_over(self, built: Built, best: Callable[[int], float]) -> Outcome | None:
        """Let a device measure what was built; return the outcome where there is one already."""
        task, made = self._tasks_of[built.ticket], built.object
        measured = Measured(error=built.error) if made is None else self._known.get(task, made)
        if measured is not None:
            del self._tasks_of[built.ticket]
            return Outcome(built.ticket, measured, built.seconds)
        assert made is not None
        self._built[built.ticket] = made, built.seconds
        request = _request(task, [made], best=best(task))
        self._pool.add(built.ticket, request, self._seconds(self.options.measure.repeat))
        return None

    def _seconds(self, figures: int) -> float:
        """Return how long a device may take for so many figures, waiting for it included."""
        return _WAIT_SECONDS + self.options.measure.timeout * (_CALLS + figures)

    def _outcome(self, answer: Answer) -> Outcome:
        made, seconds = self._built.pop(answer.ticket)
        task = self._tasks_of.pop(answer.ticket)
        (measured,) = _rows(answer, 1)
        self._known.put(task, made, measured)
        return Outcome(answer.ticket, measured, seconds)

    def race(self, task: int, choices: Sequence[Choice], rounds: int) -> list[Measured]:
        """Build choices and time them alternately, all on one device."""
        built = build_all(self._builders, task, choices)
        made = [b.object for b in built if b.object is not None]
        times: Iterator[Measured] = iter(())
        if made:
            seconds = self._seconds(rounds * len(made))
            self._pool.add(0, _request(task, made, rounds=rounds), seconds)
            answers: list[Answer] = []
            while not answers:
                answers += self._pool.results(1.0)
            times = iter(_rows(answers[0], len(made)))
        return [Measured(error=b.error) if b.object is None else next(times) for b in built]


def _request(task: int, made: Sequence[ObjectCode], **how: float) -> bytes:
    sizes, workspaces = [len(m.code) for m in made], [m.workspace for m in made]
    head = {"task": task, "sizes": sizes, "workspaces": workspaces, **how}
    return packed(head, b"".join(m.code for m in made))


def _rows(answer: Answer, count: int) -> list[Measured]:
    if answer.ended:
        return [Measured(error=f"the device: {answer.ended}")] * count
    rows = unpacked(answer.message)[0]["rows"]
    return [Measured(tuple(row["seconds"]), row["error"]) for row in rows]


# ---- in the child --------------------------------------------------------------------------------


def _serve(
    make_runner: MakeRunner, tasks: Sequence[Task], options: MeasureOptions
) -> Callable[[], Serve]:
    def start() -> Serve:
        runner = make_runner(tasks, options)

        def serve(request: bytes) -> bytes:
            head, code = unpacked(request)
            made: list[ObjectCode] = []
            for size, workspace in zip(head["sizes"], head["workspaces"], strict=True):
                made.append(ObjectCode(code[:size], workspace))
                code = code[size:]
            if "rounds" in head:
                found = runner.race(head["task"], made, head["rounds"])
            else:
                found = [runner.measure(head["task"], made[0], head["best"])]
            return packed({"rows": [asdict(row) for row in found]})

        return serve

    return start
