# SPDX-License-Identifier: Apache-2.0
"""Passes and pipelines: run in order, verify, dump, override, time, and name the culprit.

A pass is a function from a program to a program of the same kind; it never changes its argument.
What verifies, prints and parses a program is given by the pipeline, so that one engine serves the
graph and the loop level.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Generic, TypeVar

from treadle.errors import InternalError, TreadleError
from treadle.settings import Settings, get

T = TypeVar("T")

_REPORT = (
    "this is a defect of the compiler, not of the model; please report it with the command line and"
    " the text dumped by TREADLE_DUMP=<folder>"
)


_LONGEST_MESSAGE = 1000


@dataclass(frozen=True, slots=True)
class Candidate:
    """What could have been chosen: its estimate in cycles of one core, None where it cannot be.

    `reason` says why it was not; it is empty for what was chosen.
    """

    name: str
    cycles: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What a pass chose for a node of the user's model, and why, for `treadle explain`.

    `candidates` are all that could be chosen, where the pass compared them by estimates; `call` is
    then the text by which a record names what it is chosen for.
    """

    origin: str
    topic: str
    choice: str
    reason: str
    candidates: tuple[Candidate, ...] = ()
    call: str = ""


_no_decisions: list[Decision] | None = None
_decisions: ContextVar[list[Decision] | None] = ContextVar("decisions", default=_no_decisions)


@contextmanager
def recorded_decisions() -> Iterator[list[Decision]]:
    """Collect what passes decide inside the block."""
    made: list[Decision] = []
    token = _decisions.set(made)
    try:
        yield made
    finally:
        _decisions.reset(token)


_no_files: set[Path] | None = None
_overrides: ContextVar[set[Path] | None] = ContextVar("overrides", default=_no_files)


@contextmanager
def unused_overrides() -> Iterator[list[Path]]:
    """Find the files in the folder of the setting `override` that the block does not use.

    The list is filled when the block ends.
    """
    used: set[Path] = set()
    unused: list[Path] = []
    token = _overrides.set(used)
    try:
        yield unused
        folder = get().override
        if folder is not None:
            unused += sorted(p for p in folder.rglob("*") if p.is_file() and p not in used)
    finally:
        _overrides.reset(token)


def _read_override(path: Path) -> str | None:
    """Return the text that replaces a stage, None where the user has none."""
    if not path.is_file():
        return None
    used = _overrides.get()
    if used is not None:
        used.add(path)
    return path.read_text(encoding="utf-8")


def decided(
    origin: str,
    topic: str,
    choice: str,
    reason: str | Callable[[], str],
    candidates: tuple[Candidate, ...] = (),
    call: str = "",
) -> None:
    """Record a decision where somebody collects them; a reason that costs time is a function."""
    made = _decisions.get()
    if made is not None:
        text = reason if isinstance(reason, str) else reason()
        made.append(Decision(origin, topic, choice, text, candidates, call))


@dataclass(frozen=True, slots=True, eq=False)
class Pass(Generic[T]):
    """A named step: `run` returns the program rewritten, or the very same object if unchanged."""

    name: str
    run: Callable[[T], T]


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline(Generic[T]):
    """Passes in order, and what a program of this kind needs to be watched.

    `verify` raises InternalError on a malformed program. `text` prints a program; `parse(text,
    program)` reads it back, `program` being the one it replaces (for what the text leaves out,
    such as large constants); without it this pipeline cannot be overridden.
    """

    name: str
    passes: tuple[Pass[T], ...]
    verify: Callable[[T], None] | None = None
    text: Callable[[T], str] = str
    parse: Callable[[str, T], T] | None = None

    def run(self, program: T, *, label: str = "", is_verified: bool = False) -> T:
        """Return `program` after all passes, watched as the settings say.

        `label` names the program in dumps (a kernel's name). `is_verified` says that `program` is
        the result of another pipeline that verifies alike, so that it is not looked at again. The
        setting `verify` is 0 for never;
        1 for the program handed in and the result (where the result is malformed the passes run
        again, verified one by one, to find the culprit); 2 for after every pass.

        Raises:
            TreadleError: a pass found a mistake of the user's.
            InternalError: a pass failed or returned a malformed program; the error names it.
        """
        return _Run(self, label or self.name, get()).run(program, is_verified=is_verified)


def pipeline(
    name: str,
    passes: Iterable[tuple[str, Callable[[T], T]]],
    *,
    verify: Callable[[T], None] | None = None,
    text: Callable[[T], str] = str,
    parse: Callable[[str, T], T] | None = None,
) -> Pipeline[T]:
    """Return the pipeline of (name, function) pairs, the form a list of passes is written in."""
    steps = tuple(Pass(n, f) for n, f in passes)
    return Pipeline(name, steps, verify, text, parse)


@dataclass(slots=True)
class _Run(Generic[T]):
    pipeline: Pipeline[T]
    label: str
    watch: Settings
    done: list[str] = field(default_factory=list)
    seconds: list[tuple[str, float]] = field(default_factory=list)
    last_text: str | None = None

    def run(self, program: T, *, is_verified: bool) -> T:
        if not is_verified:
            self._check_input(program)
        self._record(program, 0, "input")
        result = program
        for number, step in enumerate(self.pipeline.passes, start=1):
            before = result
            result = self._override(self._step(step, result), number, step)
            try:
                if self.watch.verify >= 2 and result is not before:
                    self._verify(result, step.name)
            finally:  # a malformed program is worth a look
                self._record(result, number, step.name)
            self.done.append(step.name)
        if self.watch.verify == 1 and result is not program:
            self._check_result(program, result)
        if self.watch.time:
            _say(self._timing_text())
        return result

    def _step(self, step: Pass[T], program: T) -> T:
        start = time.perf_counter()
        try:
            return step.run(program)
        except InternalError as e:
            raise self._culprit(step.name, e.problem, e.at) from e
        except TreadleError:
            raise
        except Exception as e:  # whatever a pass lets escape is a defect of that pass
            raise self._culprit(step.name, _shortened(f"{type(e).__name__}: {e}")) from e
        finally:
            self.seconds.append((step.name, time.perf_counter() - start))

    def _culprit(self, name: str, problem: str, at: str = "") -> InternalError:
        before = ", ".join(self.done) or "none"
        place = f"pass {name} of {self.pipeline.name} on {self.label} (passes before: {before})"
        return InternalError(problem, at=f"{place}, {at}" if at else place, hint=_REPORT)

    def _verify(self, program: T, name: str) -> None:
        if self.pipeline.verify is None:
            return
        try:
            self.pipeline.verify(program)
        except InternalError as e:
            raise self._culprit(name, f"the result is malformed: {e.problem}", e.at) from e

    def _check_input(self, program: T) -> None:
        if self.watch.verify < 1 or self.pipeline.verify is None:
            return
        try:
            self.pipeline.verify(program)
        except InternalError as e:
            place = f"the input of {self.pipeline.name}, {self.label}"
            raise InternalError(
                e.problem, at=f"{place}, {e.at}" if e.at else place, hint=_REPORT
            ) from e

    def _check_result(self, program: T, result: T) -> None:
        """Verify the result; where it is malformed, find the pass by running all again."""
        if self.pipeline.verify is None:
            return
        try:
            self.pipeline.verify(result)
        except InternalError as e:
            quiet = replace(self.watch, verify=2, dump=None, time=False, debug=0)
            _Run(self.pipeline, self.label, quiet).run(program, is_verified=True)
            raise self._culprit(self.done[-1], e.problem, e.at) from e

    def _record(self, program: T, number: int, name: str) -> None:
        """Write NN_<pass>.txt and print the program, where asked for and changed."""
        folder = self.watch.dump
        wanted = folder is not None and self._is_selected(name)
        if not wanted and self.watch.debug < 6:
            return
        text = self.pipeline.text(program)
        if text == self.last_text:
            return
        self.last_text = text
        if folder is not None and wanted:
            path = self._stage_path(folder, number, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")
        if self.watch.debug >= 6:
            _say(f"--- {self.label}: {number:02d}_{name}\n{text}")

    def _is_selected(self, name: str) -> bool:
        pattern = self.watch.dump_only
        return fnmatchcase(name, pattern) or fnmatchcase(self.label, pattern)

    def _stage_path(self, folder: Path, number: int, name: str) -> Path:
        # A kernel goes through several pipelines: each has a folder of its own.
        inside = folder / _file_name(self.label) / _file_name(self.pipeline.name)
        return inside / f"{number:02d}_{_file_name(name)}.txt"

    def _override(self, program: T, number: int, step: Pass[T]) -> T:
        if self.watch.override is None or self.pipeline.parse is None:
            return program
        path = self._stage_path(self.watch.override, number, step.name)
        text = _read_override(path)
        if text is None:
            return program
        try:
            return self.pipeline.parse(text, program)
        except TreadleError as e:
            raise e.located(str(path)) from e

    def _timing_text(self) -> str:
        total = sum(s for _, s in self.seconds)
        rows = [f"  {s * 1e3:9.2f} ms  {name}" for name, s in self.seconds]
        return "\n".join([f"{self.pipeline.name} on {self.label}: {total * 1e3:.2f} ms", *rows])


def _shortened(text: str) -> str:
    """Return a message without most of its middle: a program in it may have millions of words."""
    if len(text) <= _LONGEST_MESSAGE:
        return text
    half = _LONGEST_MESSAGE // 2
    return f"{text[:half]} … {text[-half:]}"


def final_text(label: str, pipeline: str, name: str, text: str) -> str:
    """Return the text of a program's last stage, watched as the settings say.

    It is dumped as `<label>/<pipeline>/<name>`, and where the folder of the setting `override`
    has a file there, that is what counts.
    """
    watch = get()
    place = Path(_file_name(label), _file_name(pipeline), _file_name(name))
    chosen = fnmatchcase(name, watch.dump_only) or fnmatchcase(label, watch.dump_only)
    if watch.dump is not None and chosen:
        (watch.dump / place).parent.mkdir(parents=True, exist_ok=True)
        (watch.dump / place).write_text(text, encoding="utf-8")
    edited = None if watch.override is None else _read_override(watch.override / place)
    return text if edited is None else edited


def _file_name(label: str) -> str:
    """Return `label` with everything but letters, digits and ._- replaced, never a dot file."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", label).lstrip(".")[:120] or "_"


def _say(text: str) -> None:
    print(text, file=sys.stderr)
