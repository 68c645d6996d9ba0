# SPDX-License-Identifier: Apache-2.0
"""The process that measures kernels on a GPU: `GpuRunner` asks it, in the words of `Runner`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from treadle import dtype as dtypes
from treadle.build.agreement import agreement
from treadle.errors import DeviceError, TreadleError
from treadle.runtime.array import Device, array
from treadle.runtime.gpu.array import DeviceArray
from treadle.runtime.gpu.code import GpuCode
from treadle.runtime.gpu.kernel import DeviceKernel
from treadle.runtime.signature import Signature
from treadle.tune.failures import WRONG
from treadle.tune.process import Serve, packed, unpacked
from treadle.tune.runner import MeasureOptions, Timer, control_of, drop_oldest, figures_of, raced

_MOST_BYTES = 2 << 30
"""Of arguments and results that stay on the device, in addition to those of the task at hand."""
_POISON = 0xA5


@dataclass(slots=True)
class _Ready:
    """A task on the device: arguments, the places of the outputs, and what these are to be.

    `poison` is what an output holds before a candidate runs.
    """

    name: str
    options: MeasureOptions
    sizes: Mapping[str, int]
    arguments: list[DeviceArray]
    outputs: Sequence[int]
    expected: Sequence[np.ndarray]
    poison: Sequence[np.ndarray]

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arguments)


def start() -> Serve:
    """Return what answers requests."""
    ready: dict[int, _Ready] = {}

    def serve(request: bytes) -> bytes:
        data, payload = unpacked(request)
        return packed(_answer(ready, data, payload))

    return serve


def _answer(ready: dict[int, _Ready], data: dict[str, Any], payload: bytes) -> dict[str, object]:
    """Return the answer; with `ends` the device can do nothing more in this process."""
    try:
        if data["do"] == "prepare":
            ready[data["task"]] = _prepared(data, payload)
            return {"error": "", "dropped": drop_oldest(ready, _MOST_BYTES)}
        task = ready[data["task"]]
        kernels = list(_loaded(task, data["kernels"], payload))
        is_race = data["do"] == "race"
        errors = [_check(k, task) for k in (kernels if is_race else kernels[:1])]
        timers = [_timer(k, task) for k in kernels]
        if is_race:
            rows = raced(timers, errors, int(data["rounds"]), task.options, sliced=False)
            return {"rows": [asdict(row) for row in rows]}
        if errors[0]:
            return {"seconds": [], "error": errors[0]}
        best, other = float(data["best"]), control_of(timers, data)
        seconds = figures_of(timers[0], task.options, best, sliced=False, control=other)
        return {"seconds": seconds, "error": ""}
    except DeviceError as e:
        return {**_failed(data, e.problem), "ends": True}
    except TreadleError as e:
        return _failed(data, e.problem)
    except Exception as e:  # a candidate must not end the runner by an exception
        return _failed(data, f"{type(e).__name__}: {e}"[:500])


def _failed(data: Mapping[str, Any], error: str) -> dict[str, object]:
    if data["do"] == "race":
        return {"rows": [{"seconds": [], "error": error} for _ in data["kernels"]]}
    return {"seconds": [], "error": error, "dropped": []}


def _prepared(data: Mapping[str, Any], payload: bytes) -> _Ready:
    """Copy a task's arguments to the device."""
    device, outputs = Device(data["device"]), data["outputs"]
    shapes = [(dtype, tuple(shape)) for dtype, shape in data["arguments"]]
    given = [shape for place, shape in enumerate(shapes) if place not in outputs]
    known = [(dtype, tuple(shape)) for dtype, shape in data["expected"]]
    views = list(_views([*given, *known], payload))
    values = iter(views[: len(given)])
    arguments = []
    for place, (dtype, shape) in enumerate(shapes):
        made = DeviceArray(shape, dtype, device)
        if place not in outputs:
            made.copyfrom(array(next(values)))
        arguments.append(made)
    poison = [_poison(*shapes[place]) for place in outputs]
    options = MeasureOptions(**data["options"])
    expected = views[len(given) :]
    return _Ready(data["name"], options, data["sizes"], arguments, outputs, expected, poison)


def _views(shapes: Sequence[tuple[str, tuple[int, ...]]], payload: bytes) -> Iterator[np.ndarray]:
    """Yield the arrays that stand one after the other in a payload."""
    start = 0
    for dtype, shape in shapes:
        count = int(np.prod(shape, dtype=np.int64))
        kind = dtypes.to_numpy(dtype)
        yield np.frombuffer(payload, kind, count, start).reshape(shape).copy()
        start += count * kind.itemsize


def _poison(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    made = np.empty(shape, dtypes.to_numpy(dtype))
    made.reshape(-1).view(np.uint8)[:] = _POISON
    return made


def _loaded(
    task: _Ready, rows: Sequence[Mapping[str, Any]], payload: bytes
) -> Iterator[DeviceKernel]:
    start = 0
    for row in rows:
        code = GpuCode.from_bytes(payload[start : start + row["size"]])
        signature = Signature.from_json(task.name, row["signature"])
        yield DeviceKernel(signature, code, sizes=task.sizes)
        start += row["size"]


def _check(kernel: DeviceKernel, task: _Ready) -> str:
    """Run a candidate once; return what is wrong with its results, "" if nothing is."""
    for place, poison in zip(task.outputs, task.poison, strict=True):
        task.arguments[place].copyfrom(array(poison))
    kernel(*task.arguments)
    for place, expected in zip(task.outputs, task.expected, strict=True):
        found = agreement(task.arguments[place].numpy(), expected)
        if not found.holds:
            return f"{WRONG}: {found}"
    return ""


def _timer(kernel: DeviceKernel, task: _Ready) -> Timer:
    """Return a function that calls a kernel some times, and returns the seconds of a call."""
    return lambda calls: kernel.time_evaluator(calls)(*task.arguments).min
