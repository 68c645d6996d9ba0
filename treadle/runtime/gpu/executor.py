# SPDX-License-Identifier: Apache-2.0
"""A compiled model on a device: its kernels run there, what has none runs on the CPU between them.

Weights are copied to the device once; inputs go there and outputs come back in each run, unless
they are arrays of the device.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from types import TracebackType
from typing import Any, NoReturn

import numpy as np

from treadle import dtype as dtypes
from treadle.errors import UsageError
from treadle.runtime import native
from treadle.runtime.array import (
    ArrayLike,
    Device,
    NDArray,
    address_of,
    array_over,
    empty_numpy,
)
from treadle.runtime.executor import ProfileRow, cannot_be_pickled
from treadle.runtime.gpu.array import DeviceArray
from treadle.runtime.gpu.code import GpuCode
from treadle.runtime.gpu.devices import GpuDevice
from treadle.runtime.gpu.foreign import ForeignArray, foreign_array
from treadle.runtime.gpu.kernel import CodeOnDevice
from treadle.runtime.gpu.plan import Placed, placed
from treadle.runtime.gpu.program import Constants, HostKernel, Part, PlacedKernel, Program
from treadle.runtime.model_inputs import ModelInputs
from treadle.runtime.model_outputs import ModelOutputs
from treadle.runtime.native_executor import TensorInfo
from treadle.runtime.ports import inputs_by_name, output_of
from treadle.runtime.timing import BenchmarkResult, measure

PROGRAMS = 8
"""Sets of input shapes whose memory and launches are kept, at most."""

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio

Inputs = Mapping[str, ArrayLike] | Sequence[ArrayLike] | None


def _mixed(x: int) -> int:
    """The output function of SplitMix64 (Steele, Lea and Flood, 2014)."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _MASK
    return x ^ x >> 31


class _Keys:
    """Keys of random numbers, those of native/src/random.c for the same seed."""

    def __init__(self) -> None:
        self._next = int.from_bytes(os.urandom(8), "little")

    def seed(self, number: int) -> None:
        """Begin those of a seed."""
        self._next = _mixed(number & _MASK)

    def next_key(self) -> int:
        """Return the next key."""
        self._next = (self._next + _STEP) & _MASK
        return _mixed(self._next)


def _info(plan: Mapping[str, Any], port: Mapping[str, Any]) -> TensorInfo:
    row = plan["values"][port["value"]]
    shape = tuple(d if isinstance(d, int) else -1 for d in row["shape"])
    return TensorInfo(port["name"], row["dtype"], shape, row.get("bytes", 0))


class GpuExecutor:
    """Runs a model on one device; see `Executor`, which runs one on the CPU.

    Threads may run it: one run goes on at a time. A run's memory and its launches are prepared at
    the first run of each set of input shapes.
    """

    def __init__(
        self,
        plan: Mapping[str, Any],
        constants: Mapping[str, np.ndarray],
        codes: Mapping[str, GpuCode],
        hosts: Mapping[str, HostKernel],
        outputs: Mapping[str, tuple[bool, ...]],
        device: GpuDevice,
        keep_alive: object = None,
    ) -> None:
        """`codes` are the kernels of the device and `hosts` those of the CPU, by name.

        `outputs` says which buffers of a device's kernel it writes. Raises: DeviceError where the
        code does not fit the device.
        """
        self.device = device
        self.plan = plan
        self._constants = Constants(constants, device)
        self._kernels: dict[str, PlacedKernel | HostKernel] = dict(hosts)
        for name, code in codes.items():
            self._kernels[name] = PlacedKernel(CodeOnDevice(code, device, name), outputs[name])
        self._keep_alive = keep_alive
        self.inputs = tuple(_info(plan, port) for port in plan["inputs"])
        self.outputs = tuple(_info(plan, port) for port in plan["outputs"])
        self.is_dynamic = plan["version"] != 1
        self._given = ModelInputs(self.inputs)
        self._returned = ModelOutputs(self.outputs)
        self._programs: OrderedDict[tuple[tuple[int, ...], ...], Program] = OrderedDict()
        self._keys = _Keys()
        self._results: list[NDArray] | None = None
        self._is_closed = False
        self.num_threads = native.num_threads()

    def __reduce__(self) -> NoReturn:
        raise cannot_be_pickled()

    # ---- runs ------------------------------------------------------------------------------------

    def run(
        self,
        inputs: Inputs = None,
        outputs: Sequence[NDArray] | None = None,
        *,
        on_device: bool = False,
    ) -> list[NDArray]:
        """Run the model; return its outputs in order.

        `inputs` by name or in order, arrays of the host or of the device (on NVIDIA's also those of
        torch and CuPy); what is missing comes from `set_input`. `outputs` are arrays to write to
        (default: fresh ones, on the device with `on_device`). Raises: InputError.
        """
        given = self._gathered(inputs)
        with self.device.driver.lock:
            program = self._program(given)
            self._copy_in(program, given)
            program.run()
            results = self._copied_out(program, outputs, on_device)
        self._results = results
        return results

    def __call__(self, *args: ArrayLike, **named: ArrayLike) -> list[NDArray]:
        """Run with inputs in order, by name, or both."""
        if not named:
            return self.run(args)
        return self.run(inputs_by_name(args, named, self._given.index))

    def run_fitting(self, inputs: Mapping[str, ArrayLike]) -> None:
        """Return None: see `Executor.run_fitting`, there is no shorter way here."""

    def set_input(self, key: str | int, value: ArrayLike) -> None:
        """Keep an input for the runs that do not give it (no copy is made)."""
        self._given.keep(key, value)

    def get_output(self, key: str | int = 0) -> NDArray:
        """Return an output of the last run."""
        return output_of(self._results, key, self._returned.index)

    def _gathered(self, inputs: Inputs) -> list[Any]:
        """Return the arrays of a run in order, those of this device as they are."""
        names = [info.name for info in self.inputs]
        given = (
            inputs if isinstance(inputs, Mapping) else dict(zip(names, inputs or (), strict=False))
        )
        if isinstance(inputs, Sequence) and len(inputs) > len(names):
            return list(self._given.gather(inputs))  # refuses
        there = {
            name: found
            for name, value in given.items()
            if name in self._given.index and (found := self._on_device(name, value)) is not None
        }
        stand_ins: dict[str, Any] = {
            name: np.empty(value.shape, dtypes.to_numpy(value.dtype))  # of which nothing is read
            for name, value in there.items()
        }
        checked = self._given.gather(
            {name: stand_ins.get(name, value) for name, value in given.items()} if there else inputs
        )
        return [there.get(name, view) for name, view in zip(names, checked, strict=True)]

    def _on_device(self, name: str, value: ArrayLike) -> DeviceArray | ForeignArray | None:
        """Return an input that is in the memory of this device; None for any other."""
        facts = self.device.facts
        if isinstance(value, DeviceArray):
            return value if value.device == Device(facts.kind, facts.index) else None
        if facts.kind != "cuda" or isinstance(value, (np.ndarray, NDArray)):
            return None
        found = foreign_array(value, f"input {name!r}")
        return found if found is not None and found.index == facts.index else None

    def _program(self, given: Sequence[Any]) -> Program:
        """Return what runs the model for inputs of these shapes; the driver's lock is held."""
        if self._is_closed:
            raise UsageError("the executor is closed")
        shapes = tuple(tuple(value.shape) for value in given)
        if shapes in self._programs:
            self._programs.move_to_end(shapes)
            return self._programs[shapes]
        while len(self._programs) >= PROGRAMS:
            self._programs.popitem(last=False)[1].release()
        plan = placed(self.plan, shapes)
        made = Program(plan, self._kernels, self._constants, self.device, self._keys)
        self._programs[shapes] = made
        return made

    def _copy_in(self, program: Program, given: Sequence[Any]) -> None:
        driver = self.device.driver
        for value, place in zip(given, program.plan.inputs.values(), strict=True):
            target = program.memory.device(place.span)
            if isinstance(value, (DeviceArray, ForeignArray)):
                driver.prepared_copy(target, value.pointer, place.nbytes)()
            else:
                driver.copy_in(target, address_of(value), place.nbytes, wait=False)

    def _copied_out(
        self, program: Program, outputs: Sequence[NDArray] | None, on_device: bool
    ) -> list[NDArray]:
        driver = self.device.driver
        places = list(program.plan.outputs.values())
        made = self._targets(places, outputs, on_device)
        for array, place in zip(made, places, strict=True):
            source = program.memory.device(place.span)
            if isinstance(array, DeviceArray):
                driver.prepared_copy(array.pointer, source, place.nbytes)()
            else:
                driver.copy_out(address_of(array.numpy()), source, place.nbytes, wait=False)
        driver.synchronize()
        return made

    def _targets(
        self, places: Sequence[Placed], outputs: Sequence[NDArray] | None, on_device: bool
    ) -> list[NDArray]:
        if outputs is not None:
            return self._checked_targets(places, outputs)
        facts = self.device.facts
        if on_device:
            device = Device(facts.kind, facts.index)
            return [DeviceArray(p.shape, p.dtype, device) for p in places]
        return [array_over(empty_numpy(p.shape, p.dtype), p.dtype) for p in places]

    def _checked_targets(
        self, places: Sequence[Placed], outputs: Sequence[NDArray]
    ) -> list[NDArray]:
        hosts = [
            NDArray(np.empty(o.shape, dtypes.to_numpy(o.dtype)))
            if isinstance(o, DeviceArray)
            else o
            for o in outputs
        ]
        self._returned.writable(hosts)
        for array, place, info in zip(outputs, places, self.outputs, strict=True):
            if array.shape != place.shape:
                raise UsageError(
                    f"the array for output {info.name!r} has the shape {array.shape} but the "
                    f"result has {place.shape}"
                )
        return list(outputs)

    # ---- time ------------------------------------------------------------------------------------

    def benchmark(
        self,
        inputs: Inputs = None,
        *,
        number: int = 1,
        repeat: int = 10,
        min_repeat_ms: float = 0,
    ) -> BenchmarkResult:
        """Return the seconds of `repeat` measurements, each the mean of `number` runs.

        A run is what a caller waits for: inputs go to the device and outputs come back.
        """
        given = self._gathered(inputs)
        with self.device.driver.lock:
            program = self._program(given)
            places = list(program.plan.outputs.values())
            results = self._targets(places, None, on_device=False)

            def time(runs: int) -> float:
                start = perf_counter()
                for _ in range(runs):
                    self._copy_in(program, given)
                    program.run()
                    self._copied_out(program, results, on_device=False)
                return perf_counter() - start

            result = measure(time, number, repeat, min_repeat_ms)
        self._results = results
        return result

    def benchmark_on_device(
        self,
        inputs: Inputs = None,
        *,
        number: int = 1,
        repeat: int = 10,
        min_repeat_ms: float = 0,
    ) -> BenchmarkResult:
        """Return the seconds of runs whose inputs are on the device already, and outputs stay.

        They are those of the device's clock.
        """
        return measure(self.device_timer(inputs), number, repeat, min_repeat_ms)

    def device_timer(self, inputs: Inputs = None) -> Callable[[int], float]:
        """Return what runs the model so many times on these inputs, and returns the seconds.

        Inputs are on the device already, and outputs stay; see `benchmark_on_device`.
        """
        given = self._gathered(inputs)
        driver = self.device.driver

        def timed(number: int) -> float:
            with driver.lock:
                program = self._program(given)
                self._copy_in(program, given)
                driver.synchronize()
                return driver.seconds(program.run, number)

        return timed

    def profile(self, inputs: Inputs = None, runs: int = 10) -> list[ProfileRow]:
        """Run the model once to warm up and `runs` times; return the time of every instruction.

        Kernels of the device are timed by its clock; those of the CPU with the copies they need.
        """
        given = self._gathered(inputs)
        with self.device.driver.lock:
            program = self._program(given)
            self._copy_in(program, given)
            program.run()
            totals = [0.0] * len(program.parts)
            for _ in range(runs):
                for k, seconds in enumerate(program.time_steps()):
                    totals[k] += seconds
        return [
            ProfileRow(part.step.kernel or part.step.op, part.step.origin, seconds, runs)
            for part, seconds in zip(program.parts, totals, strict=True)
        ]

    def watch(
        self,
        inputs: Inputs,
        observer: Callable[[int, np.ndarray], None],
        wanted: Iterable[int] | None = None,
    ) -> list[NDArray]:
        """Run the model; `observer` gets what each instruction, or each `wanted` one, writes."""
        given = self._gathered(inputs)
        chosen = None if wanted is None else frozenset(wanted)
        with self.device.driver.lock:
            program = self._program(given)
            self._copy_in(program, given)

            def observe(index: int, part: Part) -> None:
                value = program.written_by(part)
                if value is not None and (chosen is None or index in chosen):
                    observer(index, program.read(value, part))

            program.run_by_steps(observe)
            self._results = self._copied_out(program, None, on_device=False)
        return self._results

    # ---- facts -----------------------------------------------------------------------------------

    def places(self) -> dict[str, str]:
        """Return where each kernel runs, by name: "cuda(0)" or "cpu"."""
        return {
            name: self.device.name if isinstance(kernel, PlacedKernel) else "cpu"
            for name, kernel in self._kernels.items()
        }

    @property
    def target(self) -> str:
        """The target the model was compiled for."""
        return str(self.plan["target"])

    @property
    def arena_bytes(self) -> int:
        """Bytes of working memory on the device of the run that was prepared last; 0 before."""
        programs = list(self._programs.values())
        return programs[-1].plan.arena_bytes if programs else 0

    @property
    def constant_bytes(self) -> int:
        """Bytes of weights."""
        return self._constants.nbytes

    def seed(self, number: int) -> None:
        """Begin the random numbers of a seed; see `Executor.seed`."""
        self._keys.seed(number)

    def fork(self) -> GpuExecutor:
        """Return a second executor of this model: code and weights are shared, memory is not."""
        made = object.__new__(GpuExecutor)
        made.__dict__ |= self.__dict__
        made._given = ModelInputs(self.inputs)
        made._given.kept = dict(self._given.kept)
        made._programs = OrderedDict()
        made._keys = _Keys()
        made._results = None
        return made

    def close(self) -> None:
        """Give back the device's memory and unload the code now; forks must be closed before."""
        with self.device.driver.lock:
            self._is_closed = True
            for program in self._programs.values():
                program.release()
            self._programs.clear()
            self._constants.release()
            for kernel in self._kernels.values():
                if isinstance(kernel, PlacedKernel):
                    kernel.code.close()
            self.device.pool.trim()

    def __enter__(self) -> GpuExecutor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
