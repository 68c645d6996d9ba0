# SPDX-License-Identifier: Apache-2.0
"""Candidates built here and measured on devices that a tracker lends.

Arguments and right results are made here, from the NumPy references, and copied to the device once
per task. A candidate that crashes there, or never ends, costs its session: the next one
asks for a device again.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import NamedTuple

import numpy as np

from treadle.build.agreement import agreement
from treadle.build.kernel import ObjectCode
from treadle.errors import TreadleError, UsageError
from treadle.rpc.client import Session
from treadle.rpc.gate import is_loopback
from treadle.rpc.remote import RemoteArray, RemoteKernel, RemoteModule
from treadle.rpc.tracking import TrackerSession, connect_tracker
from treadle.runtime.array import NDArray
from treadle.runtime.kernel_files import described
from treadle.runtime.toolchain import link_shared
from treadle.tune.boards import BoardWorkers
from treadle.tune.executor import LocalWorkers, Workers, WorkOptions
from treadle.tune.failures import WRONG
from treadle.tune.runner import (
    Baseline,
    Control,
    Measured,
    MeasureOptions,
    Timer,
    arguments_of,
    figures_of,
    raced,
    rotation_count,
)
from treadle.tune.task import Task

_WAIT_SECONDS = 600.0
"""How long a candidate waits for a device."""
_LIBRARY = "candidate.so"
_POISON = 0xA5


class RpcExecutor:
    """Builders of this machine, and devices of a tracker that measure, `count` at a time.

    With `is_here` a device is this machine: then one measures, and nothing is built meanwhile.
    `priority` is that of its requests at the tracker.
    """

    def __init__(
        self,
        tracker: TrackerSession,
        key: str,
        *,
        is_here: bool = False,
        count: int = 1,
        priority: int = 1,
    ) -> None:
        self._runner = partial(DeviceRunner, tracker, key, priority)
        self._is_here = is_here
        self._count = 1 if is_here else count

    def workers(
        self, tasks: Sequence[Task], options: WorkOptions
    ) -> AbstractContextManager[Workers]:
        """Return workers, not yet started."""
        if self._count == 1:
            return LocalWorkers(tasks, options, self._runner, self._is_here)
        return BoardWorkers(tasks, options, self._runner, self._count)

    def close(self) -> None:
        """Do nothing: workers end with their context."""


def rpc_executor(
    tracker: TrackerSession, key: str, *, count: int | None = None, priority: int = 1
) -> RpcExecutor:
    """Return an executor for the devices that a tracker has under a key.

    At most `count` measure at the same time (None: as many as there are). Where one of them is this
    machine, one measures.

    Raises: RpcError where the tracker does not answer; UsageError where it has no such device.
    """
    devices = [d for d in tracker.summary().devices if d.key == key]
    if not devices:
        raise UsageError(
            f"the tracker has no device {key!r}", hint="treadle rpc query prints what it has"
        )
    wanted = len(devices) if count is None else min(count, len(devices))
    is_here = any(is_loopback(d.host) for d in devices)
    return RpcExecutor(tracker, key, is_here=is_here, count=wanted, priority=priority)


def lent_devices(
    host: str,
    port: int,
    key: str,
    *,
    count: int | None,
    priority: int,
    timeout: float,
    key_file: str | os.PathLike[str] | None,
) -> tuple[RpcExecutor, int]:
    """Return an executor for the devices of the tracker at an address, and the cores of one.

    `timeout`: seconds to wait for one that is free; `key_file` is what the tracker was started
    with; the rest is as for `rpc_executor`, and so is what is raised.
    """
    tracker = connect_tracker(host, port, key_file=key_file)
    with tracker.request(key, priority, wait_timeout=timeout) as session:
        cores = session.cores()
    return rpc_executor(tracker, key, count=count, priority=priority), cores


@dataclass(slots=True)
class _Reference:
    """What candidates of a task are called with, and the right results, in this process."""

    arguments: list[NDArray]
    outputs: list[int]
    expected: list[np.ndarray]


@dataclass(slots=True)
class _OnDevice:
    """A task's arguments on the device.

    `poison` is what outputs hold before a candidate runs; `rotation` are the same arguments with
    copies of the weights, empty where these may stay in the caches.
    """

    arguments: list[RemoteArray]
    poison: dict[int, RemoteArray]
    rotation: list[list[RemoteArray]] = field(default_factory=list)


class _Held(NamedTuple):
    """A baseline that is loaded on the device."""

    code: ObjectCode
    kernel: RemoteKernel
    module: RemoteModule


class DeviceRunner:
    """Measures candidates on a device that is asked for when it is first needed."""

    def __init__(
        self,
        tracker: TrackerSession,
        key: str,
        priority: int,
        tasks: Sequence[Task],
        options: MeasureOptions,
    ) -> None:
        self._tracker = tracker
        self._key = key
        self._priority = priority
        self._tasks = tasks
        self._options = options
        self._session: Session | None = None
        self._task: int | None = None
        self._reference: _Reference | None = None
        self._ready: _OnDevice | None = None
        self._held: _Held | None = None

    def close(self) -> None:
        """Give the device back."""
        if self._session is not None:
            self._session.close()
        self._session = self._ready = self._held = None

    def measure(
        self, task: int, made: ObjectCode, best: float, baseline: Baseline | None = None
    ) -> Measured:
        """Check and time a candidate of a task, as `CandidateRunner.measure` says."""
        try:
            ready = self._prepared(task)
            kernel, module = self._loaded(task, made)
            if error := self._check(kernel, ready):
                return Measured(error=error)
            timer, control = _timer(kernel, ready, self._options), None
            if baseline is not None:
                other = self._held_kernel(task, baseline.code)
                control = Control(_timer(other, ready, self._options), baseline.seconds)
            found = figures_of(timer, self._options, best, sliced=False, control=control)
            module.free()
            return _believed(found)
        except TreadleError as error:
            self._give_up()
            return Measured(error=error.problem)

    def race(self, task: int, made: Sequence[ObjectCode], rounds: int) -> list[Measured]:
        """Time candidates of one task alternately: a figure of each in every round."""
        try:
            ready = self._prepared(task)
            kernels = [self._loaded(task, m)[0] for m in made]
            errors = [self._check(kernel, ready) for kernel in kernels]
            timers = [_timer(kernel, ready, self._options) for kernel in kernels]
            return raced(timers, errors, rounds, self._options, sliced=False)
        except TreadleError as error:
            self._give_up()
            return [Measured(error=error.problem) for _ in made]

    def _held_kernel(self, task: int, code: ObjectCode) -> RemoteKernel:
        """Return the kernel of a baseline, which stays on the device for the next candidate."""
        if self._held is None or self._held.code is not code:
            if self._held is not None:
                self._held.module.free()
            self._held = _Held(code, *self._loaded(task, code))
        return self._held.kernel

    def _give_up(self) -> None:
        """End the session after an error: what a candidate did to it is not known."""
        self.close()

    def _prepared(self, task: int) -> _OnDevice:
        """Return a task's arguments on the device; those of the last task make room."""
        if self._session is None:
            seconds = self._options.timeout
            self._session = self._tracker.request(
                self._key, self._priority, wait_timeout=_WAIT_SECONDS, call_timeout=seconds
            )
            self._session.set_num_threads(self._options.threads)
        if self._ready is None or self._task != task:
            self._ready = None
            self._ready = self._copied(self._session, task)
        return self._ready

    def _copied(self, session: Session, task: int) -> _OnDevice:
        work = self._tasks[task]
        if self._reference is None or self._task != task:
            self._task, self._reference = task, _reference_of(work)
        reference = self._reference
        arguments = [session.array(a) for a in reference.arguments]
        poison = {k: session.array(_poison(reference.arguments[k])) for k in reference.outputs}
        rotation: list[list[RemoteArray]] = []
        if self._options.cold_weights and not self._options.flush:
            for _ in range(rotation_count(work)):
                rotation.append([_copy(session, a) if k in work.constants else a
                                 for k, a in enumerate(arguments)])  # fmt: skip
        return _OnDevice(arguments, poison, rotation)

    def _loaded(self, task: int, made: ObjectCode) -> tuple[RemoteKernel, RemoteModule]:
        assert self._session is not None
        work = self._tasks[task]
        signature = work.signature(made.workspace)
        code = made.code if work.link is not None else _linked(made.code, work.target.triple)
        self._session.upload(bytes(code), _LIBRARY, resume=False)
        text = described({work.name: signature}, work.target.required_features)
        module = self._session.load_module(_LIBRARY, text)
        return module[work.name], module

    def _check(self, kernel: RemoteKernel, ready: _OnDevice) -> str:
        """Run a candidate once; return what is wrong with its results, "" if nothing is."""
        assert self._reference is not None
        for place, poison in ready.poison.items():
            poison.copyto(ready.arguments[place])
        kernel(*ready.arguments)
        for place, expected in zip(self._reference.outputs, self._reference.expected, strict=True):
            found = agreement(ready.arguments[place].numpy(), expected)
            if not found.holds:
                return f"{WRONG}: {found}"
        return ""


def _reference_of(task: Task) -> _Reference:
    arguments, outputs = arguments_of(task)
    return _Reference(arguments, outputs, task.reference(arguments))


def _poison(output: NDArray) -> np.ndarray:
    made = np.empty_like(output.numpy())
    made.reshape(-1).view(np.uint8)[:] = _POISON
    return made


def _copy(session: Session, source: RemoteArray) -> RemoteArray:
    return source.copyto(session.empty(source.shape, source.dtype))


def _linked(code: bytes | bytearray | memoryview, triple: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
        return link_shared([bytes(code)], Path(folder) / _LIBRARY, triple).read_bytes()


def _timer(kernel: RemoteKernel, ready: _OnDevice, options: MeasureOptions) -> Timer:
    """Return a function that calls a kernel some times, and returns the seconds of a call."""
    if ready.rotation:
        return kernel.rotation_timer(*ready.rotation)
    return lambda calls: kernel.time_evaluator(calls, flush=options.flush)(*ready.arguments).min


def _believed(figures: Sequence[float]) -> Measured:
    """Return times that a kernel can have taken: a device may say anything."""
    if all(0 < figure < inf for figure in figures):
        return Measured(tuple(figures))
    return Measured(error=f"the device says that a call took {min(figures):g} s")
