# SPDX-License-Identifier: Apache-2.0
"""Executors: whole compiled models, run with one native call per inference."""

from __future__ import annotations

import difflib
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from types import TracebackType

import numpy as np

from treadle import dtype as dtypes
from treadle.errors import InputError, UsageError
from treadle.runtime import native
from treadle.runtime.array import (
    ArrayLike,
    NDArray,
    address_of,
    as_numpy,
    describe,
    empty_numpy,
    ready,
)
from treadle.runtime.module import BenchmarkResult, measure
from treadle.runtime.native import TensorInfo
from treadle.runtime.pages import release_pages
from treadle.settings import get as current_settings


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


def _text(info: TensorInfo) -> str:
    sizes = ("?" if size < 0 else str(size) for size in info.shape)
    return f"{info.dtype}[{', '.join(sizes)}]"


def _open_hint(info: TensorInfo) -> str:
    """Return what the question marks of an expected shape mean, nothing where there are none."""
    return "? is a size that the model leaves open: any number" if -1 in info.shape else ""


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """True when every size is the wanted one; -1 stands for any."""
    return len(shape) == len(wanted) and all(
        w in (s, -1) for s, w in zip(shape, wanted, strict=True)
    )


class Executor:
    """A compiled model with its memory. Runs of one executor happen one after another.

    `inputs` and `outputs` describe its tensors; a size that each run decides is -1.
    """

    def __init__(self, handle: native.ExecutorHandle, keep_alive: object = None) -> None:
        """Use `open` or `from_plan` instead."""
        self._handle = handle
        self._keep_alive = keep_alive
        self.inputs: tuple[TensorInfo, ...] = handle.inputs()
        self.outputs: tuple[TensorInfo, ...] = handle.outputs()
        self._plain = [(i.name, dtypes.to_numpy(i.dtype), i.shape) for i in self.inputs]
        self._input_index = {info.name: i for i, info in enumerate(self.inputs)}
        self._output_index = {info.name: i for i, info in enumerate(self.outputs)}
        self._set: dict[str, np.ndarray] = {}
        self._results: list[NDArray] | None = None
        self._spares = [native.Spares(max(0, info.nbytes)) for info in self.outputs]
        self.is_dynamic = handle.is_dynamic
        self._lock = threading.Lock()
        threads = current_settings().num_threads
        if threads is not None:
            handle.set_num_threads(threads)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Executor:
        """Load an artifact (a tar of mod.so, mod.json, mod.params).

        Raises: ArtifactError when it is damaged, unsafe, or made for another machine.
        """
        return cls(native.ExecutorHandle.open(path))

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
        held = {
            name: ready(as_numpy(value, f"constant {name!r}")) for name, value in constants.items()
        }
        places = {name: (address_of(view), view.nbytes) for name, view in held.items()}
        handle = native.ExecutorHandle.create(text, kernels, places)
        for view in held.values():
            if address_of(view) % native.ALIGNMENT:  # the executor has a copy
                release_pages(view)
        return cls(handle, (keep_alive, held))

    # ---- inputs ----------------------------------------------------------------------------------

    def _name_of(self, key: str | int) -> str:
        if isinstance(key, int):
            if not 0 <= key < len(self.inputs):
                raise InputError(f"input {key} does not exist; the model has {len(self.inputs)}")
            return self.inputs[key].name
        if key in self._input_index:
            return key
        close = difflib.get_close_matches(key, self._input_index, 1)
        names = ", ".join(self._input_index) or "none"
        hint = f"did you mean {close[0]!r}?" if close else f"the model's inputs are {names}"
        raise InputError(f"the model has no input {key!r}", hint=hint)

    def _check(self, name: str, value: ArrayLike) -> np.ndarray:
        info = self.inputs[self._input_index[name]]
        view = as_numpy(value, f"input {name!r}")
        if view.dtype != dtypes.to_numpy(info.dtype):
            raise InputError(
                f"input {name!r} is {describe(view)} but {_text(info)} is expected",
                hint=f"convert it with .astype({info.dtype!r})",
            )
        if view.ndim != len(info.shape):
            raise InputError(
                f"input {name!r} has {view.ndim} dimensions ({describe(view)}) but {_text(info)} "
                "is expected",
                hint=_open_hint(info),
            )
        if not _fits(view.shape, info.shape):
            raise InputError(
                f"input {name!r} is {describe(view)} but {_text(info)} is expected",
                hint=_open_hint(info),
            )
        return np.ascontiguousarray(view).reshape(view.shape)

    def set_input(self, key: str | int, value: ArrayLike) -> None:
        """Keep an input for the runs that do not give it (no copy is made)."""
        name = self._name_of(key)
        self._set[name] = self._check(name, value)

    def _gather(
        self, inputs: Mapping[str, ArrayLike] | Sequence[ArrayLike] | None
    ) -> list[np.ndarray]:
        ready_inputs = self._as_they_are(inputs)
        if ready_inputs is not None:
            return ready_inputs
        given = dict(self._set)
        if isinstance(inputs, Mapping):
            given |= {n: self._check(self._name_of(n), value) for n, value in inputs.items()}
        elif inputs is not None:
            if len(inputs) > len(self.inputs):
                raise InputError(
                    f"the model has {len(self.inputs)} inputs but is given {len(inputs)}"
                )
            for index, value in enumerate(inputs):
                given[self.inputs[index].name] = self._check(self.inputs[index].name, value)
        missing = [info for info in self.inputs if info.name not in given]
        if missing:
            listed = ", ".join(f"{info.name}: {_text(info)}" for info in missing)
            raise InputError(
                f"{len(missing)} of {len(self.inputs)} inputs are not given",
                hint=f"give {listed}",
            )
        return [given[info.name] for info in self.inputs]

    def _as_they_are(
        self, inputs: Mapping[str, ArrayLike] | Sequence[ArrayLike] | None
    ) -> list[np.ndarray] | None:
        """Return all inputs where they are NumPy arrays of the wanted types; None to look closer.

        The way most calls take, so it does as little as possible.
        """
        if inputs is None or len(inputs) != len(self._plain):
            return None
        found: list[np.ndarray] = []
        for index, (name, kind, shape) in enumerate(self._plain):
            value = inputs.get(name) if isinstance(inputs, Mapping) else inputs[index]
            if (
                type(value) is not np.ndarray
                or value.dtype != kind
                or value.shape != shape
                or not value.flags.c_contiguous
            ):
                return None
            found.append(value)
        return found

    # ---- runs ------------------------------------------------------------------------------------

    def _outputs(self, outputs: Sequence[NDArray] | None) -> list[NDArray]:
        if outputs is None:
            made = zip(self.outputs, self._spares, strict=True)
            return [NDArray(empty_numpy(i.shape, i.dtype, spares)) for i, spares in made]
        return self._writable(outputs)

    def _writable(self, outputs: Sequence[NDArray]) -> list[NDArray]:
        if len(outputs) != len(self.outputs):
            raise InputError(
                f"the model has {len(self.outputs)} outputs but is given {len(outputs)} arrays"
            )
        for info, array in zip(self.outputs, outputs, strict=True):
            view = array.numpy()
            if array.dtype != info.dtype or not _fits(array.shape, info.shape):
                raise InputError(
                    f"the array for output {info.name!r} is {describe(view)} but {_text(info)} is "
                    "expected"
                )
            if not view.flags.c_contiguous or not view.flags.writeable:
                raise InputError(f"the array for output {info.name!r} cannot be written in place")
        return list(outputs)

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
        given = self._gather(inputs)
        if self.is_dynamic:
            results = self._run_shaped(given, outputs)
        else:
            results = self._outputs(outputs)
            targets = [array.pointer for array in results]
            self._handle.run([address_of(view) for view in given], targets)
        self._results = results
        return results

    def _run_shaped(
        self, given: Sequence[np.ndarray], outputs: Sequence[NDArray] | None
    ) -> list[NDArray]:
        places = [(address_of(view), view.shape) for view in given]
        with self._lock:  # the results of a run are fetched before the next one starts
            if outputs is None:
                self._handle.run_shaped(places, [None] * len(self.outputs))
                return [self._taken(index) for index in range(len(self.outputs))]
            arrays = self._writable(outputs)
            self._handle.run_shaped(places, [(a.pointer, a.numpy().nbytes) for a in arrays])
            made = [self._handle.result(index) for index in range(len(self.outputs))]
        for info, array in zip(made, arrays, strict=True):
            if info.shape != array.shape:
                raise InputError(
                    f"the array for output {info.name!r} is {describe(array.numpy())} but the "
                    f"result is {_text(info)}"
                )
        return arrays

    def _taken(self, index: int) -> NDArray:
        info = self._handle.result(index)
        memory = np.asarray(self._handle.take_output(index, info.nbytes))
        return NDArray(memory.view(dtypes.to_numpy(info.dtype)).reshape(info.shape))

    def __call__(self, *args: ArrayLike, **named: ArrayLike) -> list[NDArray]:
        """Run with inputs in order, by name, or both."""
        if not named:
            return self.run(args)
        if len(args) > len(self.inputs):
            raise InputError(f"the model has {len(self.inputs)} inputs but is given {len(args)}")
        by_name = {self.inputs[i].name: value for i, value in enumerate(args)}
        twice = sorted(by_name.keys() & named.keys())
        if twice:
            raise InputError(f"input {twice[0]!r} is given twice, in order and by name")
        return self.run({**by_name, **named})

    def get_output(self, key: str | int = 0) -> NDArray:
        """Return an output of the last run."""
        if self._results is None:
            raise UsageError("the model has not run yet", hint="call run() first")
        index = self._output_index.get(key, -1) if isinstance(key, str) else key
        if not 0 <= index < len(self._results):
            names = ", ".join(self._output_index)
            raise UsageError(f"the model has no output {key!r}", hint=f"its outputs are {names}")
        return self._results[index]

    # ---- facts -----------------------------------------------------------------------------------

    @property
    def num_threads(self) -> int:
        """Threads the kernels may use."""
        return self._handle.num_threads

    @num_threads.setter
    def num_threads(self, count: int) -> None:
        self._handle.set_num_threads(count)

    def seed(self, number: int) -> None:
        """Begin the random numbers of a seed: the runs from now on draw the same for the same seed.

        Without it every executor draws others. Nodes with a seed of their own keep it.
        """
        self._handle.seed(number)

    @property
    def target(self) -> str:
        """The target the model was compiled for."""
        return self._handle.target

    @property
    def arena_bytes(self) -> int:
        """Bytes of working memory."""
        return self._handle.arena_bytes

    @property
    def constant_bytes(self) -> int:
        """Bytes of weights."""
        return self._handle.constant_bytes

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
        results = self.run(inputs) if self.is_dynamic else self._outputs(None)
        once = self._repeatable(self._gather(inputs), results)

        def time(runs: int) -> float:
            start = perf_counter()
            for _ in range(runs):
                once()
            return perf_counter() - start

        result = measure(time, number, repeat, min_repeat_ms)
        self._results = results
        return result

    def _repeatable(
        self, given: Sequence[np.ndarray], results: Sequence[NDArray]
    ) -> Callable[[], None]:
        """Return a call that runs the model on checked inputs into ready arrays."""
        if self.is_dynamic:
            shaped = [(address_of(view), view.shape) for view in given]
            places = [(array.pointer, array.numpy().nbytes) for array in results]
            return lambda: self._handle.run_shaped(shaped, places)
        sources = [address_of(view) for view in given]
        targets = [array.pointer for array in results]
        return lambda: self._handle.run(sources, targets)

    def watch(
        self,
        inputs: Mapping[str, ArrayLike] | Sequence[ArrayLike] | None,
        observer: Callable[[int, np.ndarray], None],
    ) -> list[NDArray]:
        """Run the model once; `observer` gets the index of every instruction and what it writes.

        Instructions that only decide sizes, and those inside branches and loops, are left out. The
        array is a view of the executor's memory, which later instructions use again.
        """

        def observe(index: int) -> None:
            info, pointer = self._handle.written(index)
            flat = np.frombuffer(native.memory_at(pointer, info.nbytes), np.uint8)
            observer(index, flat.view(dtypes.to_numpy(info.dtype)).reshape(info.shape))

        with self._handle.observed(observe):
            return self.run(inputs)

    def profile(
        self,
        inputs: Mapping[str, ArrayLike] | Sequence[ArrayLike] | None = None,
        runs: int = 10,
    ) -> list[ProfileRow]:
        """Run the model once to warm up and `runs` times; return the time of every instruction."""
        outputs = self.run(inputs)
        self._handle.profile_start()
        try:
            for _ in range(runs):
                self.run(inputs, outputs)
        finally:
            self._handle.profile_stop()
        times = self._handle.profile_read()
        return [
            ProfileRow(info.kernel or info.op, info.origin, seconds, count)
            for info, (seconds, count) in zip(self._handle.instructions(), times, strict=True)
        ]

    def close(self) -> None:
        """Release memory and machine code now."""
        self._handle.close()

    def __enter__(self) -> Executor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
