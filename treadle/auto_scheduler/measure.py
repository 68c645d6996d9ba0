# SPDX-License-Identifier: Apache-2.0
"""How candidates are built and measured, in Ansor's words: builders, runners, tuning options."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from treadle.auto_scheduler.outcome import MeasureResult
from treadle.auto_scheduler.state import MeasureInput
from treadle.errors import UsageError
from treadle.target.host import usable_cores
from treadle.tune.rpc_executor import lent_devices
from treadle.tune.runner import MeasureOptions, measure_options

BuildFunc = str | Callable[..., Any]
"""v0.8 takes "default", "ndk" or what makes a library for another machine."""


@dataclass(frozen=True, slots=True)
class LocalBuilder:
    """Builds candidates in `n_parallel` processes (default: one per core), each in `timeout` s.

    Raises: UsageError where `build_func` is not "default": what is measured on a device is linked
        here for its target.
    """

    timeout: float = 15
    n_parallel: int | None = None
    build_func: BuildFunc = "default"

    def __post_init__(self) -> None:
        _positive("timeout", self.timeout)
        if self.n_parallel is not None:
            _positive("n_parallel", self.n_parallel)
        if self.build_func != "default":
            raise UsageError(
                f"build_func is {self.build_func!r:.60}: candidates are linked as their target "
                "says, for a device, too",
                hint="leave build_func out, and name the device's CPU in the target",
            )

    @property
    def count(self) -> int:
        """The number of processes."""
        return self.n_parallel or usable_cores()


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """Measures candidates on this machine, in a process of its own.

    A figure is the mean of at least `number` calls and `min_repeat_ms`; `repeat` figures are taken,
    fewer where they agree within 1 %. A candidate may take `timeout` seconds altogether. The device
    rests `cooldown_interval` seconds after each. With `enable_cpu_cache_flush` no cache holds the
    arguments when a call begins.
    """

    timeout: float = 10
    number: int = 3
    repeat: int = 1
    min_repeat_ms: float = 100
    cooldown_interval: float = 0.0
    enable_cpu_cache_flush: bool = False

    def __post_init__(self) -> None:
        for name in ("timeout", "number", "repeat"):
            _positive(name, getattr(self, name))
        for name in ("min_repeat_ms", "cooldown_interval"):
            _positive(name, getattr(self, name), or_none=True)

    @property
    def executor(self) -> None:
        """Nobody else measures."""

    def options(self, *, cold_weights: bool = False) -> MeasureOptions:
        """Return what that is to the tuner; kernels run on as many threads as models do."""
        return measure_options(self, cold_weights=cold_weights)


class RPCRunner:
    """Measures candidates on devices that a tracker lends (docs/how-to/rpc.md).

    At most `n_parallel` measure at the same time. The first arguments are v0.8's; `key_file` names
    the file with the tracker's key, where it has one. Kernels run on all cores of the device.

    Raises: RpcError where no such device is free for `timeout` seconds; UsageError where a number
        is out of range.
    """

    def __init__(
        self,
        key: str,
        host: str,
        port: int,
        priority: int = 1,
        n_parallel: int = 1,
        timeout: float = 10,
        number: int = 3,
        repeat: int = 1,
        min_repeat_ms: float = 100,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        *,
        key_file: str | os.PathLike[str] | None = None,
    ) -> None:
        _positive("n_parallel", n_parallel)
        self._measuring = LocalRunner(
            timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush
        )
        self.executor, self._threads = lent_devices(
            host, port, key, count=n_parallel, priority=priority, timeout=timeout, key_file=key_file
        )
        print("Get devices for measurement successfully!")

    def options(self, *, cold_weights: bool = False) -> MeasureOptions:
        """Return what that is to the tuner."""
        return replace(self._measuring.options(cold_weights=cold_weights), threads=self._threads)


class LocalRPCMeasureContext:
    """A runner in a process of its own, as `runner`; every `LocalRunner` is one here.

    >>> measure_ctx = auto_scheduler.LocalRPCMeasureContext(min_repeat_ms=300)
    >>> options = auto_scheduler.TuningOptions(64, runner=measure_ctx.runner)
    >>> del measure_ctx
    """

    def __init__(
        self,
        priority: int = 1,
        n_parallel: int = 1,
        timeout: float = 10,
        number: int = 3,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
    ) -> None:
        """`priority` and `n_parallel` are of a tracker's queue, which there is none of here."""
        _positive("priority", priority, or_none=True)
        _positive("n_parallel", n_parallel)
        self.runner = LocalRunner(
            timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush
        )


def _positive(name: str, value: object, *, or_none: bool = False) -> None:
    """Raise UsageError where an option is no number, or too small."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not (value >= 0 if or_none else value > 0):  # type: ignore[operator]
        least = "0 or more" if or_none else "more than 0"
        raise UsageError(f"{name} is {value!r:.40}", hint=f"it is a number, {least}")


class MeasureCallback(Protocol):
    """Is told of what has been measured; `RecordToFile` is one."""

    def callback(
        self, policy: object, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        """Take what was measured of the candidates of a round."""


class PythonBasedMeasureCallback:
    """The base of callbacks of users, which override `callback`."""

    def callback(
        self, policy: object, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        """Take what was measured of the candidates of a round."""
        raise NotImplementedError


class TuningOptions:
    """How much is measured, and how.

    `num_measure_trials` candidates are measured by one call of `tune`, those of earlier runs not
    counted, `num_measures_per_round` of a task before the next is chosen. `early_stopping` ends
    tuning after so many trials without anything better (None or -1: never). `verbose` 0 prints
    nothing, 1 how it goes, 2 every candidate as well. `measure_callbacks` are told of all that is
    measured.
    """

    def __init__(
        self,
        num_measure_trials: int = 0,
        early_stopping: int | None = None,
        num_measures_per_round: int = 64,
        verbose: int = 1,
        builder: LocalBuilder | Literal["local"] = "local",
        runner: LocalRunner | RPCRunner | Literal["local"] = "local",
        measure_callbacks: Sequence[MeasureCallback] | None = None,
    ) -> None:
        """Raises: UsageError where a builder or a runner is none, or a number is out of range."""
        _positive("num_measures_per_round", num_measures_per_round)
        _positive("num_measure_trials", num_measure_trials, or_none=True)
        self.num_measure_trials = num_measure_trials
        self.early_stopping = -1 if early_stopping is None else early_stopping
        self.num_measures_per_round = num_measures_per_round
        self.verbose = verbose
        self.builder = _made("builder", builder, LocalBuilder)
        self.runner: LocalRunner | RPCRunner = (
            runner if isinstance(runner, RPCRunner) else _made("runner", runner, LocalRunner)
        )
        self.measure_callbacks = list(measure_callbacks or ())

    def is_stale(self, trials: int) -> bool:
        """Return whether so many trials without anything better end tuning."""
        return 0 <= self.early_stopping <= trials


def _made(name: str, given: Any, kind: type[Any]) -> Any:
    if given == "local":
        return kind()
    if not isinstance(given, kind):
        raise UsageError(f"the {name} is {given!r:.60}", hint=f"it is 'local' or a {kind.__name__}")
    return given
