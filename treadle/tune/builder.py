# SPDX-License-Identifier: Apache-2.0
"""Builders: processes that make machine code of candidates while others are measured."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from treadle.build.kernel import ObjectCode
from treadle.errors import TreadleError
from treadle.settings import use
from treadle.te.choice import Choice, choice_from_json, choice_to_json
from treadle.tune.failures import BUILD_FAILED, BUILD_TIMEOUT
from treadle.tune.pool import Answer, Pool
from treadle.tune.process import Serve, packed, unpacked
from treadle.tune.task import Task


@dataclass(frozen=True, slots=True)
class Built:
    """What became of a candidate: its code, or why there is none. `seconds` is what it took."""

    ticket: int
    object: ObjectCode | None
    error: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class Builders:
    """`count` processes that build candidates of the tasks; a context that ends them.

    A candidate that takes longer than `seconds`, or crashes the compiler, costs its own build.
    """

    tasks: Sequence[Task]
    count: int
    seconds: float = 30.0
    _pool: Pool = field(init=False)
    _folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Builders:
        self._folder = tempfile.TemporaryDirectory(prefix="treadle-tune-")
        start = _serve(self.tasks, Path(self._folder.name))
        self._pool = Pool(start, self.count).__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.__exit__()
        if self._folder is not None:
            with suppress(OSError):
                self._folder.cleanup()

    @property
    def pending(self) -> int:
        """How many candidates are waiting or being built."""
        return self._pool.pending

    def add(self, ticket: int, task: int, choice: Choice) -> None:
        """Queue a candidate of a task, by its number; `ticket` comes back with the result."""
        request = packed({"task": task, **choice_to_json(choice)})
        self._pool.add(ticket, request, self.seconds)

    def pause(self) -> None:
        """Let all stand still, so that what is measured has the machine to itself."""
        self._pool.pause()

    def resume(self) -> None:
        """Let them go on; the time they stood still does not count."""
        self._pool.resume()

    def extend(self, seconds: float) -> None:
        """Give what is being built that much more time."""
        self._pool.extend(seconds)

    def results(self, wait: float) -> Iterator[Built]:
        """Yield what is ready; wait for something so many seconds if nothing is."""
        return (self._built(answer) for answer in self._pool.results(wait))

    def _built(self, answer: Answer) -> Built:
        if answer.is_late:
            return Built(answer.ticket, None, f"{BUILD_TIMEOUT} than {self.seconds:g} s")
        if answer.ended:
            return Built(answer.ticket, None, f"{BUILD_FAILED}: {answer.ended}")
        head, data = unpacked(answer.message)
        code = ObjectCode(data, head["workspace"]) if not head["error"] else None
        return Built(answer.ticket, code, head["error"], head["seconds"])


def build_all(builders: Builders, task: int, choices: Sequence[Choice]) -> list[Built]:
    """Build choices of one task; no others are on their way."""
    for ticket, choice in enumerate(choices):
        builders.add(ticket, task, choice)
    found: dict[int, Built] = {}
    while len(found) < len(choices):
        found |= {built.ticket: built for built in builders.results(1.0)}
    return [found[k] for k in range(len(choices))]


# ---- in the child --------------------------------------------------------------------------------


def _serve(tasks: Sequence[Task], folder: Path) -> Callable[[], Serve]:
    def start() -> Serve:
        def serve(request: bytes) -> bytes:
            with use(cache=folder, compile_workers=1, time=False, debug=0):
                return _answer(tasks, request)

        return serve

    return start


def _answer(tasks: Sequence[Task], request: bytes) -> bytes:
    data, _ = unpacked(request)
    start = time.perf_counter()
    code, workspace, error = b"", None, ""
    try:
        task = tasks[data["task"]]
        made = task.built(choice_from_json(data))
        code, workspace = made.code, made.workspace
    except TreadleError as e:
        error = f"{e.problem}" + (f" (at {e.at})" if e.at else "")
    except Exception as e:  # a candidate must not end the builder, whatever it does
        error = f"{type(e).__name__}: {e}"[:500]
    head = {"workspace": workspace, "error": error, "seconds": time.perf_counter() - start}
    return packed(head, code)
