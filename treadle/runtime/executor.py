# SPDX-License-Identifier: Apache-2.0
"""Executors: whole compiled models, run with one native call per inference."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from types import TracebackType
from typing import NoReturn

import numpy as np

from treadle import dtype as dtypes
from treadle.errors import UsageError
from treadle.runtime import native
from treadle.runtime.array import ArrayLike, NDArray, address_of, as_numpy, ready
from treadle.runtime.artifact_file import ArtifactFile
from treadle.runtime.model_outputs import KnownOutputs
from treadle.runtime.model_runs import ModelRuns
from treadle.runtime.native_executor import ExecutorHandle, Shapes, TensorInfo
from treadle.runtime.pages import release_pages
from treadle.runtime.ports import inputs_by_name, output_of
from treadle.runtime.streams import Streams
from treadle.runtime.timing import BenchmarkResult, measure
from treadle.settings import get as current_settings

_SEED_STEP = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio: far from any other seed


@dataclass(frozen=True)
class ProfileRow:
    """Time of one instruction: seconds in all, and over how many runs."""

    kernel: str
    origin: str
    seconds: float
    runs: int

    @property
    def mean(self) -> float:
        """Seconds per run."""
        return self.seconds / self.runs if self.runs else 0.0


def aligned_constants(constants: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return constants that an executor uses in place: those that are not aligned as copies.

    Pages of a mapped file that have been copied are given back.
    """
    held = {}
    for name, value in constants.items():
        held[name] = ready(value)
        if held[name] is not value:
            release_pages(value)
    return held


def cannot_be_pickled() -> UsageError:
    """Return the error for an attempt to pickle (or deep-copy) a compiled model."""
    return UsageError(
        "a compiled model cannot be pickled or copied: it is machine code and memory",
        hint="save it with .save(path) and treadle.load(path) it in the other process; a second "
        "one in this process is .fork()",
    )


class RunsByAddress:
    """Runs on memory given by address, of which nothing is checked.

    For callers that know types and shapes already, and keep the memory alive. Code and weights of
    the model live as long as this, whatever becomes of the executor.
    """

    def __init__(self, streams: Streams, runs: ModelRuns, keep_alive: object) -> None:
        self._streams = streams
        self._runs = runs
        self._keep_alive = keep_alive

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Run a model of known sizes."""
        streams = self._streams
        handle = streams.take()  # as `held` does, in a third of its time
        try:
            handle.run(inputs, outputs)
        finally:
            streams.give_back(handle)

    def run_shaped(self, inputs: Sequence[int], shapes: Shapes) -> list[np.ndarray]:
        """Run a model whose sizes each run decides; return its outputs."""
        with self._streams.held() as handle:
            return self._runs.run_shaped_at(handle, inputs, shapes)

    def known_outputs(self, shapes: Shapes) -> KnownOutputs | None:
        """Return what is known of the outputs for inputs of these shapes, as `run_shaped` left it.

        It is known where all sizes follow from those of the inputs, and results are small.
        """
        return self._runs.returned.known_for(shapes)

    def run_known(
        self, inputs: Sequence[int], shapes: Shapes, outputs: Sequence[int], known: KnownOutputs
    ) -> None:
        """Run a model whose sizes each run decides into memory for its `known_outputs`."""
        streams = self._streams
        handle = streams.take()
        try:
            handle.run_shaped(inputs, shapes, outputs, known.nbytes)
        finally:
            streams.give_back(handle)


class Executor:
    """A compiled model with its memory.

    Threads may run it at the same time: each run has working memory of its own (`arena_bytes`),
    made on demand, for at most `max_streams` runs at once; weights and code are there once.
    `inputs` and `outputs` describe its tensors; a size that each run decides is -1. `by_address`
    runs it without looking at what it is given.
    """

    def __init__(self, handle: ExecutorHandle, keep_alive: object = None) -> None:
        """Use `open` or `from_plan` instead."""
        self._streams = Streams(handle)
        self._keep_alive = keep_alive
        self._runs = ModelRuns(handle)
        self.by_address = RunsByAddress(self._streams, self._runs, keep_alive)
        self.inputs: tuple[TensorInfo, ...] = self._runs.given.infos
        self.outputs: tuple[TensorInfo, ...] = self._runs.returned.infos
        self.is_dynamic = self._runs.is_dynamic
        self._results: list[NDArray] | None = None

    @classmethod
    def _with_settings(cls, handle: ExecutorHandle, keep_alive: object = None) -> Executor:
        threads = current_settings().num_threads
        if threads is not None:
            handle.set_num_threads(threads)
        return cls(handle, keep_alive)

    @classmethod
    def open(
        cls, artifact: str | os.PathLike[str] | ArtifactFile, *, verify: bool = False
    ) -> Executor:
        """Load an artifact (a tar of mod.so, mod.json, mod.params).

        `verify` compares all weights with their hash; without it that is done up to 64 MiB.

        Raises: ArtifactError when it is damaged, unsafe, or made for another machine.
        """
        file = artifact if isinstance(artifact, ArtifactFile) else ArtifactFile(artifact)
        return cls._with_settings(ExecutorHandle.open_file(file.descriptor, file.name, verify))

    @classmethod
    def from_plan(
        cls,
        plan: Mapping[str, object] | str | bytes,
        constants: Mapping[str, ArrayLike],
        kernels: Mapping[str, int],
        keep_alive: object = None,
    ) -> Executor:
        """Make an executor in memory.

        Constants are used in place when contiguous and 64-byte aligned. `kernels` are addresses by
        name, valid as long as `keep_alive` lives.
        """
        if isinstance(plan, str):
            plan = plan.encode()
        text = plan if isinstance(plan, bytes) else json.dumps(plan).encode()
        views = {name: as_numpy(value, f"constant {name!r}") for name, value in constants.items()}
        held = aligned_constants(views)
        places = {name: (address_of(view), view.nbytes) for name, view in held.items()}
        handle = ExecutorHandle.create(text, kernels, places)
        return cls._with_settings(handle, (keep_alive, held))

    def fork(self) -> Executor:
        """Return a second executor of this model, with its number of threads and inputs set.

        Code and weights are shared, working memory and results are its own. Either lives on when
        the other is closed. Raises: UsageError after `close`.
        """
        made = Executor(self._streams.first.fork(), self._keep_alive)
        made._runs.given.kept = dict(self._runs.given.kept)
        return made

    def __reduce__(self) -> NoReturn:
        raise cannot_be_pickled()

    def set_input(self, key: str | int, value: ArrayLike) -> None:
        """Keep an input for the runs that do not give it (no copy is made)."""
        self._runs.given.keep(key, value)

    # ---- runs ------------------------------------------------------------------------------------

    def run(
        self,
        inputs: Mapping[str, ArrayLike] | Sequence[ArrayLike] | None = None,
        outputs: Sequence[NDArray] | None = None,
    ) -> list[NDArray]:
        """Run the model; return its outputs in order.

        `inputs` by name or in order; what is missing comes from `set_input`. Inputs that are
        contiguous and aligned, to 8 bytes on most CPUs, are used in place. `outputs` are arrays to
        write to (default: fresh ones). Raises: InputError.
        """
        given = self._runs.given.gather(inputs)
        self._results = None  # what nobody else holds is memory for what comes
        handle = self._streams.take()
        try:
            if outputs is None:
                results = self._runs.returned.arrays(self._runs.run(handle, given))
            else:
                results = self._runs.run_into(handle, given, outputs)
        finally:
            self._streams.give_back(handle)
        self._results = results
        return results

    def run_fitting(self, inputs: Mapping[str, ArrayLike]) -> list[np.ndarray] | None:
        """Run the model where all inputs are NumPy arrays that can be used as they are.

        Return the outputs as NumPy arrays, which `get_output` does not tell; None, without a run,
        where `run` would look closer.
        """
        given = self._runs.given.as_they_are(inputs)
        if given is None:
            return None
        handle = self._streams.take()
        try:
            return self._runs.run(handle, given)
        finally:
            self._streams.give_back(handle)

    def __call__(self, *args: ArrayLike, **named: ArrayLike) -> list[NDArray]:
        """Run with inputs in order, by name, or both."""
        if not named:
            return self.run(args)
        return self.run(inputs_by_name(args, named, self._runs.given.index))

    def get_output(self, key: str | int = 0) -> NDArray:
        """Return an output of the last run. Raises: UsageError before one, after a failed one."""
        return output_of(self._results, key, self._runs.returned.index)

    # ---- facts -----------------------------------------------------------------------------------

    @property
    def num_threads(self) -> int:
        """Threads a run may use; runs at the same time share the process's number of threads."""
        return self._streams.first.num_threads

    @num_threads.setter
    def num_threads(self, count: int) -> None:
        for handle in self._streams.made:
            handle.set_num_threads(count)

    @property
    def max_streams(self) -> int:
        """Runs that may go on at once (default: the CPUs the process may use); others wait."""
        return self._streams.limit or native.usable_cpus()

    @max_streams.setter
    def max_streams(self, count: int) -> None:
        if count < 1:
            raise UsageError(f"max_streams is {count}", hint="it is 1 or more")
        self._streams.limit = count

    @property
    def streams(self) -> int:
        """How many runs have gone on at once so far; each has its working memory."""
        return len(self._streams.made)

    def seed(self, number: int) -> None:
        """Begin the random numbers of a seed: the runs from now on draw the same for the same seed.

        Without it every executor draws others. Nodes with a seed of their own keep it. Runs that go
        on at the same time draw different numbers.
        """
        for position, handle in enumerate(self._streams.in_order):
            handle.seed(number + position * _SEED_STEP)

    @property
    def target(self) -> str:
        """The target the model was compiled for."""
        return self._streams.first.target

    @property
    def plan_text(self) -> str:
        """The execution plan as it was loaded, JSON: see docs/design/plan.md."""
        return self._streams.first.plan()

    @property
    def arena_bytes(self) -> int:
        """Bytes of working memory of one stream."""
        return self._streams.first.arena_bytes

    @property
    def constant_bytes(self) -> int:
        """Bytes of weights, shared by all streams."""
        return self._streams.first.constant_bytes

    def benchmark(
        self,
        inputs: Mapping[str, ArrayLike] | Sequence[ArrayLike] | None = None,
        *,
        number: int = 1,
        repeat: int = 10,
        min_repeat_ms: float = 0,
    ) -> BenchmarkResult:
        """Return the seconds of `repeat` measurements, each the mean of `number` runs.

        Inputs are checked and outputs made once, before the clock starts.
        """
        given = self._runs.given.gather(inputs)
        with self._streams.held() as handle:
            results = self._runs.returned.arrays(self._runs.run(handle, given))
            once = self._runs.repeatable(handle, given, results)

            def time(runs: int) -> float:
                start = perf_counter()
                for _ in range(runs):
                    once()
                return perf_counter() - start

            result = measure(time, number, repeat, min_repeat_ms)
        self._results = results
        return result

    def watch(
        self,
        inputs: Mapping[str, ArrayLike] | Sequence[ArrayLike] | None,
        observer: Callable[[int, np.ndarray], None],
        wanted: Iterable[int] | None = None,
    ) -> list[NDArray]:
        """Run the model once; `observer` gets the index of every instruction and what it writes.

        Of the instructions `wanted` only, where it is given. Those that only decide sizes, and
        those inside branches and loops, are left out. The array is a view of the executor's memory,
        which later instructions use again.
        """
        given = self._runs.given.gather(inputs)
        chosen = None if wanted is None else frozenset(wanted)
        with self._streams.held() as handle:

            def observe(index: int) -> None:
                if chosen is not None and index not in chosen:
                    return
                info, pointer = handle.written(index)
                flat = np.frombuffer(native.memory_at(pointer, info.nbytes), np.uint8)
                observer(index, flat.view(dtypes.to_numpy(info.dtype)).reshape(info.shape))

            with handle.observed(observe):
                self._results = self._runs.returned.arrays(self._runs.run(handle, given))
        return self._results

    def profile(
        self,
        inputs: Mapping[str, ArrayLike] | Sequence[ArrayLike] | None = None,
        runs: int = 10,
    ) -> list[ProfileRow]:
        """Run the model once to warm up and `runs` times; return the time of every instruction."""
        given = self._runs.given.gather(inputs)
        with self._streams.held() as handle:
            self._results = results = self._runs.returned.arrays(self._runs.run(handle, given))
            once = self._runs.repeatable(handle, given, results)
            handle.profile_start()
            try:
                for _ in range(runs):
                    once()
            finally:
                handle.profile_stop()
            times = handle.profile_read()
            instructions = handle.instructions()
        return [
            ProfileRow(info.kernel or info.op, info.origin, seconds, count)
            for info, (seconds, count) in zip(instructions, times, strict=True)
        ]

    def close(self) -> None:
        """Release memory and machine code now; runs of other threads finish first."""
        self._streams.close()

    def __enter__(self) -> Executor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
