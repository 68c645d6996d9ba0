# SPDX-License-Identifier: Apache-2.0
"""What lives on a device, as a client holds it: arrays, models, kernels.

They have the face of the local ones, so that a program that uses those runs on a device.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from treadle import dtype as dtypes
from treadle.errors import InputError, UsageError, name_hint
from treadle.rpc.values import Arguments, Value
from treadle.runtime.array import ArrayLike, NDArray, as_numpy, describe, empty
from treadle.runtime.executor import ProfileRow
from treadle.runtime.native_executor import TensorInfo
from treadle.runtime.ports import input_name, inputs_by_name, output_of
from treadle.runtime.timing import BenchmarkResult

if TYPE_CHECKING:
    from treadle.rpc.client import Session

_WATCHED = 16
"""Instructions whose values a device keeps at once."""

Observer = Callable[[int, np.ndarray], None]
Inputs = Mapping[str, ArrayLike] | Sequence[ArrayLike] | None
Sizes = Mapping[str, int]
_NO_SIZES: Sizes = {}


class RemoteArray:
    """An array on a device; it is freed there some time after the last use here."""

    def __init__(self, session: Session, handle: int, dtype: str, shape: tuple[int, ...]) -> None:
        """Use `Session.empty` or `Session.array` instead."""
        self._session = session
        self.handle = handle
        self.dtype = dtype
        self.shape = shape

    @classmethod
    def like(cls, session: Session, view: np.ndarray) -> RemoteArray:
        """Return one of the shape and type of a local array, its elements undefined."""
        return session.empty(view.shape, dtypes.from_numpy(view.dtype))

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * dtypes.to_numpy(self.dtype).itemsize

    def copyfrom(self, source: ArrayLike) -> RemoteArray:
        """Copy elements of the same shape and type from a local array; return self."""
        view = as_numpy(source, "the source")
        if view.shape != self.shape or dtypes.from_numpy(view.dtype) != self.dtype:
            raise InputError(
                f"{describe(view)} cannot be copied to {self}",
                hint="both must have the same shape and element type",
            )
        self._session.write_array(self.handle, view)
        return self

    def copyto(self, target: RemoteArray) -> RemoteArray:
        """Copy the elements to another array of the same session, on the device; return it."""
        self._session.call("array.copy", self.handle, target.handle)
        return target

    def get(self) -> NDArray:
        """Return a local copy."""
        made = empty(self.shape, self.dtype)
        self._session.read_array(self.handle, made.numpy())
        return made

    def numpy(self) -> np.ndarray:
        """Return a local copy as a NumPy array."""
        return self.get().numpy()

    def free(self) -> None:
        """Free it on the device now."""
        if self.handle:
            handle, self.handle = self.handle, 0
            self._session.free([handle])

    def __repr__(self) -> str:
        return f"RemoteArray({self.dtype}{list(self.shape)} at {self._session.address})"

    def __del__(self) -> None:
        if getattr(self, "handle", 0):
            self._session.forget(self.handle, self.nbytes)


# ---- models --------------------------------------------------------------------------------------


def _infos(arguments: Arguments) -> tuple[TensorInfo, ...]:
    return tuple(
        TensorInfo(row.text(1 << 16), row.text(40), tuple(row.integers(-1)), row.integer(-1))
        for row in arguments.rows()
    )


def _text(info: TensorInfo) -> str:
    sizes = ("?" if size < 0 else str(size) for size in info.shape)
    return f"{info.dtype}[{', '.join(sizes)}]"


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(shape) == len(wanted) and all(
        w in (s, -1) for s, w in zip(shape, wanted, strict=True)
    )


class RemoteExecutor:
    """A compiled model on a device, with the face of `runtime.Executor`.

    `inputs` and `outputs` describe its tensors; a size that each run decides is -1. Arrays for
    inputs and outputs of fixed sizes are made once on the device and used by all runs.
    """

    def __init__(self, session: Session, loaded: Arguments) -> None:
        """Use `Session.load` instead."""
        self._session = session
        self._handle = loaded.integer()
        self.inputs = _infos(loaded)
        self.outputs = _infos(loaded)
        self._input_index = {info.name: i for i, info in enumerate(self.inputs)}
        self._output_index = {info.name: i for i, info in enumerate(self.outputs)}
        self.target = loaded.text(1 << 16)
        self.arena_bytes = loaded.integer()
        self.constant_bytes = loaded.integer()
        self.is_dynamic = any(-1 in info.shape for info in (*self.inputs, *self.outputs))
        self._given: dict[str, RemoteArray] = {}
        self._ready: list[RemoteArray] = []
        self._results: list[NDArray] | None = None

    # ---- inputs ----------------------------------------------------------------------------------

    def set_input(self, key: str | int, value: ArrayLike) -> None:
        """Copy an input to the device, for all runs that do not give it."""
        info = self.inputs[self._input_index[input_name(key, self._input_index)]]
        view = as_numpy(value, f"input {info.name!r}")
        if view.dtype != dtypes.to_numpy(info.dtype) or not _fits(view.shape, info.shape):
            raise InputError(
                f"input {info.name!r} is {describe(view)} but {_text(info)} is expected",
                hint=f"convert it with .astype({info.dtype!r}) or reshape it",
            )
        held = self._given.get(info.name)
        if held is None or held.shape != view.shape:
            held = self._given[info.name] = self._session.empty(view.shape, info.dtype)
        held.copyfrom(view)

    def _handles(self, inputs: Inputs) -> list[Value]:
        """Copy the inputs of a run to the device; return the handles of all inputs."""
        if isinstance(inputs, Mapping):
            for name, value in inputs.items():
                self.set_input(name, value)
        else:
            for index, value in enumerate(inputs or ()):
                self.set_input(index, value)
        missing = [info for info in self.inputs if info.name not in self._given]
        if missing:
            listed = ", ".join(f"{info.name}: {_text(info)}" for info in missing)
            raise InputError(
                f"{len(missing)} of {len(self.inputs)} inputs are not given", hint=f"give {listed}"
            )
        return [self._given[info.name].handle for info in self.inputs]

    # ---- runs ------------------------------------------------------------------------------------

    def run(self, inputs: Inputs = None, outputs: Sequence[NDArray] | None = None) -> list[NDArray]:
        """Run the model on the device; return copies of its outputs in order.

        `inputs` by name or in order; what is missing comes from `set_input` or the last run.
        `outputs` are local arrays to write to. Raises: InputError.
        """
        found = self._on_device(self._handles(inputs))
        if outputs is not None and len(outputs) != len(found):
            raise InputError(
                f"the model has {len(found)} outputs but is given {len(outputs)} arrays"
            )
        results = list(outputs) if outputs is not None else [empty(a.shape, a.dtype) for a in found]
        for remote, local in zip(found, results, strict=True):
            if (local.shape, local.dtype) != (remote.shape, remote.dtype):
                raise InputError(f"{describe(local.numpy())} cannot take the output {remote}")
            self._session.read_array(remote.handle, local.numpy())
        self._results = results
        return results

    def _on_device(self, inputs: list[Value]) -> list[RemoteArray]:
        if self.is_dynamic:
            made = self._session.call("model.run", self._handle, inputs, [])
            return [
                RemoteArray(self._session, row.integer(), row.text(), tuple(row.integers()))
                for row in made.rows()
            ]
        if not self._ready:
            self._ready = [self._session.empty(info.shape, info.dtype) for info in self.outputs]
        targets: list[Value] = [array.handle for array in self._ready]
        self._session.call("model.run", self._handle, inputs, targets)
        return self._ready

    def __call__(self, *args: ArrayLike, **named: ArrayLike) -> list[NDArray]:
        """Run with inputs in order, by name, or both."""
        return self.run(inputs_by_name(args, named, self._input_index))

    def get_output(self, key: str | int = 0) -> NDArray:
        """Return an output of the last run."""
        return output_of(self._results, key, self._output_index)

    # ---- times and facts -------------------------------------------------------------------------

    def benchmark(
        self, inputs: Inputs = None, *, number: int = 1, repeat: int = 10, min_repeat_ms: float = 0
    ) -> BenchmarkResult:
        """Return the seconds of `repeat` measurements on the device, each of `number` runs."""
        handles = self._handles(inputs)
        least = float(min_repeat_ms)
        found = self._session.call("model.time", self._handle, handles, number, repeat, least)
        return _times(found)

    def profile(self, inputs: Inputs = None, runs: int = 10) -> list[ProfileRow]:
        """Run the model some times; return the time of every instruction on the device."""
        handles = self._handles(inputs)
        found = self._session.call("model.profile", self._handle, handles, runs)
        return [
            ProfileRow(row.text(1 << 16), row.text(1 << 16), row.number(), row.integer())
            for row in found.rows()
        ]

    def watch(
        self, inputs: Inputs, observer: Observer, wanted: Iterable[int] | None = None
    ) -> list[NDArray]:
        """Run the model; `observer` gets the index of every instruction and what it writes.

        As `runtime.Executor.watch` does, but the device runs once for every few instructions, so
        that it need not have memory for all their values at once.
        """
        if wanted is None:
            wanted = range(len(json.loads(self.plan_text)["instructions"]))
        indices = sorted(set(wanted))
        for first in range(0, len(indices), _WATCHED):
            self._watch_some(inputs, indices[first : first + _WATCHED], observer)
        return self.run(inputs)

    def _watch_some(self, inputs: Inputs, wanted: Iterable[int], observer: Observer) -> None:
        handles = self._handles(inputs)
        made = self._session.call("model.watch", self._handle, handles, list(wanted))
        for row in made.rows():
            index, handle, dtype = row.integer(), row.integer(), row.text()
            array = RemoteArray(self._session, handle, dtype, tuple(row.integers()))
            observer(index, array.numpy())

    @property
    def num_threads(self) -> int:
        """Threads a run may use on the device."""
        return self._session.call("model.threads", self._handle, 0).integer()

    @num_threads.setter
    def num_threads(self, count: int) -> None:
        self._session.call("model.threads", self._handle, count)

    def seed(self, number: int) -> None:
        """Begin the random numbers of a seed, see `runtime.Executor.seed`."""
        self._session.call("model.seed", self._handle, number)

    @property
    def plan_text(self) -> str:
        """The execution plan as it was loaded, JSON: see docs/design/plan.md."""
        text = bytearray()
        while True:
            found, blob = self._session.call_for_bytes("model.plan", self._handle, len(text))
            text += blob
            if len(text) >= found.integer() or not len(blob):
                return text.decode()

    def kernels(self) -> RemoteModule:
        """Return the model's kernels, each to be called and timed alone."""
        return RemoteModule(self._session, self._session.call("model.module", self._handle))

    def close(self) -> None:
        """Free it on the device."""
        if self._handle:
            handle, self._handle = self._handle, 0
            self._session.call("model.free", handle)

    def __enter__(self) -> RemoteExecutor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


# ---- kernels -------------------------------------------------------------------------------------


def _times(found: Arguments) -> BenchmarkResult:
    """Return times that a device has measured. Raises: RpcError for what no clock shows."""
    times = Arguments("times", found.values())
    results = []
    while not times.is_empty:
        results.append(times.number(0.0, 1e7))
    return BenchmarkResult(tuple(results))


def _size_rows(sizes: Sizes) -> list[Value]:
    return [[name, size] for name, size in sizes.items()]


class RemoteKernel:
    """A kernel on a device; call it with arrays of its session, in the order of its parameters."""

    def __init__(self, session: Session, module: RemoteModule, name: str) -> None:
        self._session = session
        self._module = module
        self.name = name

    def __call__(self, *args: RemoteArray, sizes: Sizes = _NO_SIZES) -> None:
        """Run the kernel; results are in the output arguments."""
        handles: list[Value] = [array.handle for array in args]
        module = self._module.handle
        self._session.call("kernel.call", module, self.name, handles, _size_rows(sizes))

    def time_evaluator(
        self, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0, *, flush: bool = False
    ) -> Callable[..., BenchmarkResult]:
        """Return a function that takes the kernel's arguments and times it on the device."""

        def evaluate(*args: RemoteArray, sizes: Sizes = _NO_SIZES) -> BenchmarkResult:
            handles: list[Value] = [array.handle for array in args]
            how: list[Value] = [number, repeat, float(min_repeat_ms), int(flush)]
            rows = _size_rows(sizes)
            module = self._module.handle
            return _times(self._session.call("kernel.time", module, self.name, handles, rows, *how))

        return evaluate

    def rotation_timer(self, *arguments: Sequence[RemoteArray]) -> Callable[[int], float]:
        """Return a function that calls the kernel some times, with each of `arguments` in turn.

        It returns the seconds of a call, see `LoadedKernel.rotation_timer`.
        """
        lists: list[Value] = [[array.handle for array in arrays] for arrays in arguments]

        def time(number: int) -> float:
            module = self._module.handle
            return _times(
                self._session.call("kernel.rotate", module, self.name, lists, number, 1)
            ).min

        return time


class RemoteModule:
    """Kernels on a device by name."""

    def __init__(self, session: Session, loaded: Arguments) -> None:
        """Use `Session.load_module` or `RemoteExecutor.kernels` instead."""
        self._session = session
        self.handle = loaded.integer()
        self._names = loaded.texts(1 << 16)

    def __getitem__(self, name: str) -> RemoteKernel:
        if name not in self._names:
            names = ", ".join(self._names)
            hint = name_hint(name, self._names, f"its kernels are {names}")
            raise UsageError(f"the module has no kernel {name!r}", hint=hint)
        return RemoteKernel(self._session, self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def entry(self) -> RemoteKernel:
        """The first kernel."""
        return self[self._names[0]]

    def __call__(self, *args: RemoteArray, sizes: Sizes = _NO_SIZES) -> None:
        """Run the entry kernel."""
        self.entry(*args, sizes=sizes)

    def time_evaluator(
        self,
        func_name: str,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        *,
        flush: bool = False,
    ) -> Callable[..., BenchmarkResult]:
        """Return a function that takes a kernel's arguments and times it on the device."""
        return self[func_name].time_evaluator(number, repeat, min_repeat_ms, flush=flush)

    def free(self) -> None:
        """Unload it on the device."""
        self._session.call("module.free", self.handle)
