# SPDX-License-Identifier: Apache-2.0
"""The runner: a process that checks what candidates compute, and measures how fast.

A candidate that crashes, never ends or computes something else costs one trial. What is right is
what the NumPy references of the operators say; a time counts only after the result did.
"""

from __future__ import annotations

import selectors
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from treadle.build.agreement import agreement
from treadle.build.kernel import ObjectCode
from treadle.errors import TreadleError
from treadle.runtime import native
from treadle.runtime.array import NDArray, array
from treadle.runtime.module import LoadedKernel
from treadle.settings import use
from treadle.tune.failures import NO_REFERENCE, RUN_TIMEOUT, WRONG
from treadle.tune.process import Child, ChildDied, Serve, packed, unpacked
from treadle.tune.task import Task

_REFERENCE_SECONDS = 120.0
"""How long the NumPy references of one task may take."""
_MOST_BYTES = 512 << 20
"""Of arguments and results that a runner holds, in addition to those of the task at hand."""
_MOST_COPIES = 64
"""Of the weights of a task."""
_SLICE_SECONDS = 0.5e-3
"""How long the slices of a figure are: on a busy machine others run every few milliseconds, which a
slice mostly escapes and a figure does not."""
_INTERRUPTED_SECONDS = 0.05
"""What a call of a few microseconds may take where others run in between."""
_Z, _NORMAL, _OF_MEDIAN = 1.96, 1.4826, 1.2533
"""Of a normal distribution: within how many standard deviations 95 % lies, how many median
deviations one is, and by how much the median deviates more than the mean."""
_MANY = 5
"""So many figures say by their median deviation how far they are apart."""
_LOOK_SECONDS, _IDLE, _SPIN_SECONDS = 0.005, 0.1, 1.0
"""Threads are idle that use at most this share of a core between two looks; how long to wait."""


Timer = Callable[[int], float]
"""Calls a kernel some times; returns the seconds of a call."""


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """How candidates are timed.

    A figure is of at least `number` calls and `min_repeat_ms`: the median of slices of them, so
    that what runs in between does not count, where kernels run here. There are at least two
    figures; more until the 95 % confidence interval of their median is within `precision` of it (a
    share), but at most `repeat`. One that is `hopeless` times slower than the best known gets one
    figure. With `flush` no cache holds the arguments when a call begins; with `cold_weights` none
    holds the weights, as in a model with more of them than the caches hold. `timeout` seconds are
    the most that a candidate may take altogether; `cooldown` seconds the device rests after each.
    `threads` run a kernel.
    """

    number: int = 1
    repeat: int = 12
    min_repeat_ms: float = 4.0
    precision: float = 0.01
    hopeless: float = 1.6
    flush: bool = False
    cold_weights: bool = False
    timeout: float = 10.0
    cooldown: float = 0.0
    threads: int = 1

    def text(self) -> str:
        """Return what a time depends on, for records: times of equal texts compare."""
        words = [f"threads={self.threads}"]
        words += ["flush"] if self.flush else []
        words += ["cold-weights"] if self.cold_weights else []
        return " ".join(words)


class V08Runner(Protocol):
    """How the runners of v0.8's two tuners say how candidates are timed."""

    @property
    def timeout(self) -> float: ...
    @property
    def number(self) -> int: ...
    @property
    def repeat(self) -> int: ...
    @property
    def min_repeat_ms(self) -> float: ...
    @property
    def cooldown_interval(self) -> float: ...
    @property
    def enable_cpu_cache_flush(self) -> bool: ...


def measure_options(runner: V08Runner, *, cold_weights: bool) -> MeasureOptions:
    """Return what such a runner is to the tuner; kernels run on as many threads as models do."""
    return MeasureOptions(
        number=runner.number,
        repeat=runner.repeat,
        min_repeat_ms=runner.min_repeat_ms,
        flush=runner.enable_cpu_cache_flush,
        cold_weights=cold_weights,
        timeout=runner.timeout,
        cooldown=runner.cooldown_interval,
        threads=native.num_threads(),
    )


@dataclass(frozen=True, slots=True)
class Measured:
    """The seconds of a call, one figure per repeat; or why there are none."""

    seconds: tuple[float, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A candidate that others of its task are timed next to, and the seconds its records say."""

    code: ObjectCode
    seconds: float


class Runner:
    """A process that measures candidates of the tasks; a context that ends it."""

    def __init__(self, tasks: Sequence[Task], options: MeasureOptions) -> None:
        self.tasks = tasks
        self.options = options
        self._child: Child | None = None
        self._prepared: set[int] = set()
        self._refused: dict[int, str] = {}

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; the next measurement starts another."""
        if self._child is not None:
            self._child.close()
        self._child = None
        self._prepared.clear()

    def prepare(self, task: int) -> str:
        """Let the runner make arguments and the right result of a task; return why it cannot."""
        if task in self._prepared or task in self._refused:
            return self._refused.get(task, "")
        try:
            request, data = self._preparation(task)
        except TreadleError as e:
            self._refused[task] = e.problem
            return e.problem
        head, error = self._ask(request, data, _REFERENCE_SECONDS)
        error = error or str(head["error"])
        if error:
            self._refused[task] = error
        else:
            self._prepared.difference_update(head["dropped"])
            self._prepared.add(task)
        return error

    def measure(
        self, task: int, made: ObjectCode, best: float, baseline: Baseline | None = None
    ) -> Measured:
        """Check and time a candidate of a task, as `CandidateRunner.measure` says."""
        if error := self.prepare(task):
            return Measured(error=f"{NO_REFERENCE}: {error}")
        codes = [made] if baseline is None else [made, baseline.code]
        request = {
            "do": "measure",
            "task": task,
            "best": best,
            "baseline": None if baseline is None else baseline.seconds,
            "kernels": self._said(task, codes),
        }
        code = b"".join(c.code for c in codes)
        head, error = self._ask(request, code, self.options.timeout)
        time.sleep(self.options.cooldown)
        if error:
            return Measured(error=error)
        return Measured(tuple(head["seconds"]), head["error"])

    def race(self, task: int, made: Sequence[ObjectCode], rounds: int) -> list[Measured]:
        """Time candidates of one task alternately: a figure of each in every round."""
        if error := self.prepare(task):
            return [Measured(error=f"{NO_REFERENCE}: {error}") for _ in made]
        request = {
            "do": "race",
            "task": task,
            "rounds": rounds,
            "kernels": self._said(task, made),
        }
        code = b"".join(m.code for m in made)
        head, error = self._ask(request, code, self.options.timeout * (1 + len(made)))
        if error:
            return [Measured(error=error) for _ in made]
        return [Measured(tuple(row["seconds"]), row["error"]) for row in head["rows"]]

    def _started(self) -> Child:
        """Return a process that measures."""
        return Child(_serve(self.tasks, self.options))

    def _preparation(self, task: int) -> tuple[dict[str, object], bytes]:
        """Return the request that makes it ready for a task. Raises: what the reference raises."""
        return {"do": "prepare", "task": task}, b""

    def _said(self, task: int, made: Sequence[ObjectCode]) -> list[dict[str, object]]:
        """Return what it must know of candidates in addition to their code."""
        return [{"size": len(m.code), "workspace": m.workspace} for m in made]

    def _ask(
        self, request: dict[str, object], code: bytes, seconds: float
    ) -> tuple[dict[str, Any], str]:
        """Return the answer to a request and "", or why there is none."""
        if self._child is None:
            self._child = self._started()
            self._prepared.clear()
        child = self._child
        child.send(packed(request, code), seconds)
        with selectors.DefaultSelector() as selector:
            selector.register(child, selectors.EVENT_READ)
            while True:
                left = child.deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    self.close()
                    return {}, f"{RUN_TIMEOUT} than {seconds:g} s"
                try:
                    answer = child.receive()
                except ChildDied as died:
                    self.close()
                    return {}, str(died)
                if answer is not None:
                    head = unpacked(answer)[0]
                    if head.get("ends"):
                        self.close()
                    return head, ""


# ---- in the child --------------------------------------------------------------------------------


class _HoldsBytes(Protocol):
    @property
    def nbytes(self) -> int: ...


_Held = TypeVar("_Held", bound=_HoldsBytes)


@dataclass(slots=True)
class _Prepared:
    """Arguments of a task, inputs first, and the right outputs.

    `rotation` are the same arguments again and again, each with a copy of the weights; empty where
    the weights may stay in the caches.
    """

    arguments: list[NDArray]
    outputs: list[int]
    expected: list[np.ndarray]
    rotation: list[list[NDArray]]

    @property
    def nbytes(self) -> int:
        """The bytes it holds."""
        own = (np.asarray(a) for args in (self.arguments, *self.rotation) for a in args)
        arrays = {a.__array_interface__["data"][0]: a for a in (*own, *self.expected)}
        return sum(a.nbytes for a in arrays.values())


def _serve(tasks: Sequence[Task], options: MeasureOptions) -> Callable[[], Serve]:
    def start() -> Serve:
        prepared: dict[int, _Prepared] = {}

        def serve(request: bytes) -> bytes:
            data, code = unpacked(request)
            with use(num_threads=options.threads):
                return packed(_answer(tasks, options, prepared, data, code))

        return serve

    return start


def _answer(
    tasks: Sequence[Task],
    options: MeasureOptions,
    prepared: dict[int, _Prepared],
    data: dict[str, Any],
    code: bytes,
) -> dict[str, object]:
    number = int(data["task"])
    task = tasks[number]
    try:
        if data["do"] == "prepare":
            prepared[number] = _prepare(task, options)
            wait_for_idle_threads()
            return {"error": "", "dropped": drop_oldest(prepared, _MOST_BYTES)}
        ready = prepared[number]
        kernels = _loaded(task, data, code)
        if data["do"] == "race":
            return {"rows": _race(kernels, ready, int(data["rounds"]), options)}
        if error := _check(kernels[0], ready):
            return {"seconds": [], "error": error}
        timers = [_timer(kernel, ready, options) for kernel in kernels]
        seconds = figures_of(timers[0], options, data["best"], control=control_of(timers, data))
        return {"seconds": seconds, "error": ""}
    except TreadleError as e:
        return {"seconds": [], "error": e.problem}
    except Exception as e:  # a candidate must not end the runner by an exception
        return {"seconds": [], "error": f"{type(e).__name__}: {e}"[:500]}


def arguments_of(task: Task) -> tuple[list[NDArray], list[int]]:
    """Return what candidates of a task are called with, and the places of the outputs in it."""
    signature = task.signature(0)
    arguments = LoadedKernel(signature, 0, None).random_arguments(seed=1, sizes=task.sizes)
    for place, value in task.constants.items():
        np.copyto(np.asarray(arguments[place]), value)
    return arguments, [k for k, p in enumerate(signature.params) if p.is_output]


def _prepare(task: Task, options: MeasureOptions) -> _Prepared:
    arguments, outputs = arguments_of(task)
    expected = task.reference(arguments)
    rotation = _rotation(task, arguments) if options.cold_weights and not options.flush else []
    return _Prepared(arguments, outputs, expected, rotation)


def wait_for_idle_threads() -> None:
    """Wait until no other thread of this process uses a core, at most a second.

    The threads of NumPy's BLAS spin for a tenth of a second after a product of the reference:
    kernels timed meanwhile would share the cores with them.
    """
    end = time.monotonic() + _SPIN_SECONDS
    while time.monotonic() < end:
        used = time.process_time()
        time.sleep(_LOOK_SECONDS)
        if time.process_time() - used <= _IDLE * _LOOK_SECONDS:
            return


def _rotation(task: Task, arguments: Sequence[NDArray]) -> list[list[NDArray]]:
    """Return lists of arguments with weights of their own, together more than the caches hold."""
    return [
        [array(a) if place in task.constants else a for place, a in enumerate(arguments)]
        for _ in range(rotation_count(task))
    ]


def rotation_count(task: Task) -> int:
    """Return how many copies of a task's weights are together more than the caches hold."""
    size = sum(value.nbytes for value in task.constants.values())
    caches = task.target.machine.caches[-1].bytes
    return min(_MOST_COPIES, 2 + 2 * caches // size) if size else 0


def drop_oldest(prepared: dict[int, _Held], most: int) -> list[int]:
    """Forget the oldest tasks until the others hold at most so many bytes; return which."""
    found: list[int] = []
    while len(prepared) > 1 and sum(p.nbytes for p in prepared.values()) > most:
        oldest = next(iter(prepared))
        del prepared[oldest]
        found.append(oldest)
    return found


def _check(kernel: LoadedKernel, ready: _Prepared) -> str:
    """Run a candidate once; return what is wrong with its results, "" if nothing is."""
    for place in ready.outputs:
        np.asarray(ready.arguments[place]).reshape(-1).view(np.uint8)[:] = 0xA5
    kernel(*ready.arguments)
    for place, expected in zip(ready.outputs, ready.expected, strict=True):
        found = agreement(np.asarray(ready.arguments[place]), expected)
        if not found.holds:
            return f"{WRONG}: {found}"
    return ""


class Control(NamedTuple):
    """A kernel that another is timed next to, and what a call of it takes by the records."""

    timer: Timer
    seconds: float


def control_of(timers: Sequence[Timer], request: Mapping[str, Any]) -> Control | None:
    """Return what the first of some kernels is timed next to, as a request of a runner says."""
    return None if request["baseline"] is None else Control(timers[1], float(request["baseline"]))


def figures_of(
    timer: Timer,
    options: MeasureOptions,
    best: float,
    *,
    sliced: bool = True,
    control: Control | None = None,
) -> list[float]:
    """Return the seconds of a call, one figure per repeat; `timer` calls the kernel some times.

    Not `sliced`, each figure is one use of the timer. With a `control` each figure is taken
    next to one of that, and scaled by what that takes more or less than it is known to: how fast
    the machine is at the time drops out.
    """
    once = _once(timer)
    if once > 4 * options.hopeless * best:
        return [once]
    take = _taking(timer, once, options, sliced)
    if control is not None:
        other = _taking(control.timer, _once(control.timer), options, sliced)
        take = partial(_scaled, take, other, control.seconds, cycle((False, True)))
    figures: list[float] = []
    while len(figures) < max(options.repeat, 1):
        figures.append(take())
        if min(figures) > options.hopeless * best or _is_precise(figures, options.precision):
            break
    return figures


def _taking(
    timer: Timer, once: float, options: MeasureOptions, sliced: bool
) -> Callable[[], float]:
    """Return what takes a figure of a kernel, of which a call takes about `once` seconds."""
    calls = max(options.number, _calls(once, options.min_repeat_ms))
    each = max(options.number, _slice(calls, once)) if sliced else calls
    return partial(_figure, timer, calls, each)


def _scaled(
    take: Callable[[], float],
    other: Callable[[], float],
    seconds: float,
    other_first: Iterator[bool],
) -> float:
    """Return a figure next to one of another kernel, which takes `seconds` on an even machine.

    `other_first` says whether the other one is timed first.
    """
    if next(other_first):
        taken = other()
        return take() * seconds / taken
    return take() * seconds / other()


def _once(timer: Timer) -> float:
    """Return about what a call takes; where it may have been interrupted, the lesser of two."""
    seconds = timer(1)
    return seconds if seconds > _INTERRUPTED_SECONDS else min(seconds, timer(1))


def _slice(calls: int, once: float) -> int:
    """Return how many of so many calls are a slice, where one takes `once` seconds."""
    return max(1, min(calls, round(_SLICE_SECONDS / max(once, 1e-9))))


def _figure(timer: Timer, calls: int, each: int) -> float:
    """Return the seconds of a call, the median of slices of `each` calls, `calls` in all."""
    return statistics.median(timer(each) for _ in range(max(1, round(calls / each))))


def _calls(seconds: float, least_ms: float) -> int:
    return max(1, min(10_000, round(least_ms * 1e-3 / max(seconds, 1e-9))))


def _is_precise(figures: Sequence[float], precision: float) -> bool:
    """Return whether the 95 % interval of the median is within `precision` of it, a share.

    The median of normal figures deviates 1.25 times as far as their mean. Of five and more, how far
    they are apart is told by the median of their deviations, which figures that something else ran
    in do not move; see Rousseeuw and Croux, Alternatives to the median absolute deviation (1993).
    """
    if len(figures) < 3:
        return False
    middle = statistics.median(figures)
    spread = statistics.stdev(figures)
    if len(figures) >= _MANY:
        deviation = statistics.median(abs(f - middle) for f in figures)
        spread = min(spread, _NORMAL * deviation)
    return bool(_Z * _OF_MEDIAN * spread <= precision * middle * len(figures) ** 0.5)


def _timer(kernel: LoadedKernel, ready: _Prepared, options: MeasureOptions) -> Timer:
    """Return a function that calls a kernel some times, and returns the seconds of a call."""
    if ready.rotation:
        return kernel.rotation_timer(*ready.rotation)
    return lambda calls: kernel.time_evaluator(calls, flush=options.flush)(*ready.arguments).min


def _loaded(task: Task, request: Mapping[str, Any], code: bytes) -> list[LoadedKernel]:
    """Return the kernels of a request, whose code stands one after the other."""
    kernels: list[LoadedKernel] = []
    start = 0
    for row in request["kernels"]:
        kernels.append(task.loaded(code[start : start + row["size"]], row["workspace"]))
        start += row["size"]
    return kernels


def _race(
    kernels: Sequence[LoadedKernel], ready: _Prepared, rounds: int, options: MeasureOptions
) -> list[dict[str, object]]:
    errors = [_check(k, ready) for k in kernels]
    timers = [_timer(k, ready, options) for k in kernels]
    return [asdict(row) for row in raced(timers, errors, rounds, options)]


def raced(
    timers: Sequence[Timer],
    errors: Sequence[str],
    rounds: int,
    options: MeasureOptions,
    *,
    sliced: bool = True,
) -> list[Measured]:
    """Time kernels alternately, a figure of each in every round, but those that have an error.

    Each round begins with another one: what the system does every few milliseconds hits all alike.
    """
    figures: list[list[float]] = [[] for _ in timers]
    ready = [place for place, error in enumerate(errors) if not error]
    once = {place: _once(timers[place]) for place in ready}
    calls = {place: _calls(once[place], options.min_repeat_ms) for place in ready}
    for number in range(rounds if ready else 0):
        first = number % len(ready)
        for place in (*ready[first:], *ready[:first]):
            each = _slice(calls[place], once[place]) if sliced else calls[place]
            figures[place].append(_figure(timers[place], calls[place], each))
    return [Measured(tuple(f), error) for f, error in zip(figures, errors, strict=True)]
