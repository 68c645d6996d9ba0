# SPDX-License-Identifier: Apache-2.0
"""How candidates are built and measured, and what is told of each, in AutoTVM's words."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from treadle.autotvm.entity import ConfigEntity
from treadle.autotvm.task import Task
from treadle.errors import UsageError
from treadle.target.base import Target
from treadle.tune.rpc_executor import lent_devices
from treadle.tune.runner import MeasureOptions, measure_options
from treadle.tune.task import Link


class MeasureInput(NamedTuple):
    """What was measured."""

    target: Target
    task: Task
    config: ConfigEntity


class MeasureResult(NamedTuple):
    """What a candidate took.

    `costs` are seconds of a call, one per repeat; of one that failed, the text that says why.
    `all_cost` are the seconds that the trial took, building included; `timestamp` is when it ended,
    in seconds since 1970.
    """

    costs: tuple[Any, ...]  # seconds, or a text
    error_no: int
    all_cost: float
    timestamp: float


@dataclass(frozen=True, slots=True)
class LocalBuilder:
    """Builds candidates on this machine, `n_parallel` at a time (default: as many as it has cores).

    One takes at most `timeout` seconds. `build_func` is "default", or a function
    `f(library, objects)` that links object files into a shared library: what is measured is that
    library. It is called in the processes that build.

    Raises: UsageError where an option has no meaning here.
    """

    timeout: float = 10
    n_parallel: int | None = None
    build_kwargs: Mapping[str, object] | None = None
    build_func: str | Callable[..., object] = "default"
    do_fork: bool = True

    def __post_init__(self) -> None:
        if self.timeout <= 0 or (self.n_parallel is not None and self.n_parallel < 1):
            raise UsageError("timeout and n_parallel of LocalBuilder are more than 0")
        if self.build_kwargs:
            raise UsageError(
                f"LocalBuilder knows no build_kwargs {', '.join(self.build_kwargs)}",
                hint="say what the target is like in its text",
            )
        if callable(self.build_func):
            _check_format(self.build_func)
        elif self.build_func == "ndk":
            raise UsageError(
                'build_func="ndk" builds for Android, and LocalRunner measures on this machine',
                hint='leave it "default"; `treadle tune --rpc-tracker` measures on other devices',
            )
        elif self.build_func != "default":
            raise UsageError(
                f"there is no build_func {self.build_func!r}",
                hint='it is "default" or a function f(library, objects)',
            )

    @property
    def link(self) -> Link | None:
        """The function that links candidates, None where they are loaded as they are built."""
        return self.build_func if callable(self.build_func) else None


def _check_format(build_func: Callable[..., object]) -> None:
    form = getattr(build_func, "output_format", "so")
    if form not in ("so", "dylib"):
        raise UsageError(
            f"build_func makes files of format {form!r}, and a shared library is measured",
            hint='give the function the attribute output_format = "so"',
        )


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """Measures candidates on this machine.

    A cost is the mean of `number` calls, or of as many as take `min_repeat_ms`; there are `repeat`
    of them, fewer of a candidate much slower than the best. `timeout` seconds are the most that a
    candidate may run altogether; between two, the machine rests for `cooldown_interval` seconds.
    `enable_cpu_cache_flush` empties the caches before every call.

    Raises: UsageError where an option has no meaning here.
    """

    timeout: float = 10
    number: int = 4
    repeat: int = 3
    min_repeat_ms: float = 0
    cooldown_interval: float = 0.1
    enable_cpu_cache_flush: bool = False
    module_loader: object = None

    def __post_init__(self) -> None:
        if self.module_loader is not None:
            raise UsageError(
                "a runner loads candidates itself: module_loader has no meaning here",
                hint="leave it out",
            )
        if min(self.number, self.repeat) < 1:
            raise UsageError("number and repeat of LocalRunner are at least 1")
        if self.timeout <= 0:
            raise UsageError("the timeout of LocalRunner is more than 0")

    @property
    def executor(self) -> None:
        """None: this machine measures."""

    def options(self, *, cold_weights: bool = False) -> MeasureOptions:
        """Return what the engine calls these."""
        return replace(measure_options(self, cold_weights=cold_weights), precision=0.0)


class RPCRunner:
    """Measures candidates on devices that a tracker lends (docs/how-to/rpc.md).

    `n_parallel` devices measure at the same time (default: all that the tracker has under `key`);
    the other arguments are those of `LocalRunner`. `key_file` names the file with the tracker's
    key, where it has one. Kernels run on all cores of a device.

    Raises: RpcError where the tracker does not answer, or no such device is free for `timeout`
        seconds; UsageError where an option has no meaning here.
    """

    def __init__(
        self,
        key: str,
        host: str,
        port: int,
        priority: int = 1,
        timeout: float = 10,
        n_parallel: int | None = None,
        number: int = 4,
        repeat: int = 3,
        min_repeat_ms: float = 0,
        cooldown_interval: float = 0.1,
        enable_cpu_cache_flush: bool = False,
        module_loader: object = None,
        *,
        key_file: str | os.PathLike[str] | None = None,
    ) -> None:
        if n_parallel is not None and n_parallel < 1:
            raise UsageError(f"n_parallel is {n_parallel}", hint="it is at least 1")
        self._measuring = LocalRunner(
            timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush,
            module_loader,
        )  # fmt: skip
        self.executor, self._threads = lent_devices(
            host, port, key, count=n_parallel, priority=priority, timeout=timeout, key_file=key_file
        )

    def options(self, *, cold_weights: bool = False) -> MeasureOptions:
        """Return what the engine calls these."""
        return replace(self._measuring.options(cold_weights=cold_weights), threads=self._threads)


Runner = LocalRunner | RPCRunner


@dataclass(frozen=True, slots=True)
class MeasureOption:
    """A builder and a runner."""

    builder: LocalBuilder = field(default_factory=LocalBuilder)
    runner: Runner = field(default_factory=LocalRunner)


def measure_option(builder: LocalBuilder | str, runner: Runner | str) -> MeasureOption:
    """Return a builder and a runner for `tune`; "local" stands for either with its defaults.

    Raises: UsageError where one is neither.
    """
    by = LocalBuilder() if builder == "local" else builder
    on = LocalRunner() if runner == "local" else runner
    if not isinstance(by, LocalBuilder) or not isinstance(on, Runner):
        raise UsageError(
            "measure_option takes a LocalBuilder, and a LocalRunner or an RPCRunner",
            hint="candidates are built here, and measured here or on devices of a tracker",
        )
    return MeasureOption(by, on)
