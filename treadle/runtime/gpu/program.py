# SPDX-License-Identifier: Apache-2.0
"""A plan ready to run on a device and the host: launches in pieces, and the copies between them.

Values have the same place in device memory and in a mirror of it on the host. Which of the two is
up to date at each step is known beforehand, so that only what the other side reads is copied.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from treadle import dtype as dtypes
from treadle.errors import InputError
from treadle.runtime import native
from treadle.runtime.array import address_of, empty_numpy
from treadle.runtime.gpu.devices import Block, GpuDevice
from treadle.runtime.gpu.driver import ALIGNMENT
from treadle.runtime.gpu.kernel import CodeOnDevice
from treadle.runtime.gpu.plan import Placed, PlacedPlan, PlacedStep, Span

Action = Callable[[], None]


@dataclass(frozen=True, slots=True)
class HostKernel:
    """A kernel of the CPU: its address, valid as long as its code is loaded."""

    address: int
    outputs: tuple[bool, ...]
    """Which of its buffers it writes."""


@dataclass(frozen=True, slots=True)
class PlacedKernel:
    """A kernel of the device."""

    code: CodeOnDevice
    outputs: tuple[bool, ...]


class Constants:
    """The weights of a model: on the host, and on the device those that kernels there read."""

    def __init__(self, arrays: Mapping[str, np.ndarray], device: GpuDevice) -> None:
        self.arrays = arrays
        self._device = device
        self._blocks: dict[str, Block] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of all weights."""
        return sum(array.nbytes for array in self.arrays.values())

    def on_device(self, name: str) -> int:
        """Return the address of one in device memory; it is copied there at the first use."""
        if name not in self._blocks:
            value = np.ascontiguousarray(self.arrays[name])
            block = self._device.pool.take(value.nbytes)
            self._device.driver.copy_in(block.pointer, address_of(value), value.nbytes)
            self._blocks[name] = block
        return self._blocks[name].pointer

    def on_host(self, name: str) -> int:
        """Return the address of one in the host's memory."""
        return address_of(self.arrays[name])

    def release(self) -> None:
        """Give the device's memory back."""
        blocks, self._blocks = self._blocks, {}
        for block in blocks.values():
            block.release()


class RandomKeys(Protocol):
    """What draws keys of random numbers."""

    def next_key(self) -> int:
        """Return the next key: a number of 64 bits."""


@dataclass(slots=True)
class Part:
    """What one step does, for profiles and observers; `on` is where."""

    step: PlacedStep
    on: str
    actions: list[Action] = field(default_factory=list)
    starts: list[Action] = field(default_factory=list)
    """Of a step on the device: what `actions` end in."""


class _Memory:
    """The spaces of a plan: addresses on the device and in the mirror."""

    def __init__(self, plan: PlacedPlan, constants: Constants, device: GpuDevice) -> None:
        self._constants = constants
        ports = (*plan.inputs.values(), *plan.outputs.values())
        sizes = {("arena", ""): plan.arena_bytes}
        sizes |= {p.span.space: p.span.end for p in ports}
        self._offsets: dict[tuple[str, str], int] = {}
        total = 0
        for space, nbytes in sizes.items():
            self._offsets[space] = total
            total += -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        self.nbytes = total
        self._block = device.pool.take(total)
        self._mirror: np.ndarray | None = None

    def device(self, span: Span) -> int:
        """Return where bytes are in device memory."""
        kind, name = span.space
        if kind == "constant":
            return self._constants.on_device(name) + span.begin
        return self._block.pointer + self._offsets[span.space] + span.begin

    def host(self, span: Span) -> int:
        """Return where bytes are in the host's memory; the mirror is made at its first use."""
        kind, name = span.space
        if kind == "constant":
            return self._constants.on_host(name) + span.begin
        if self._mirror is None:
            self._mirror = empty_numpy((self.nbytes,), "uint8")
        return address_of(self._mirror) + self._offsets[span.space] + span.begin

    def release(self) -> None:
        """Give the device's memory back."""
        self._block.release()


class Program:
    """A plan at known sizes on a device."""

    def __init__(
        self,
        plan: PlacedPlan,
        kernels: Mapping[str, PlacedKernel | HostKernel],
        constants: Constants,
        device: GpuDevice,
        keys: RandomKeys,
    ) -> None:
        self.plan = plan
        self.device = device
        self._kernels = kernels
        self._keys = keys
        self._driver = device.driver
        self._on_host: list[Span] = []  # the mirror has what the device has
        self._pending: list[Span] = []  # the mirror alone has
        self.memory = _Memory(plan, constants, device)
        try:
            self.parts = [self._part(step) for step in plan.steps]
            self._last: list[Action] = []
            for value in plan.outputs.values():
                self._upload(value.span, self._last)
            self._actions = self._joined()
        except BaseException:
            self.memory.release()
            raise

    def run(self) -> None:
        """Run all steps; inputs are in their places on the device."""
        for action in self._actions:
            action()

    def run_by_steps(self, observe: Callable[[int, Part], None]) -> None:
        """Run one step after the other; `observe` is called after each."""
        for index, part in enumerate(self.parts):
            for action in (*part.actions, *part.starts):
                action()
            observe(index, part)
        for action in self._last:
            action()

    def time_steps(self) -> list[float]:
        """Run one step after the other; return the seconds of each, with the copies it needs."""
        seconds = []
        for part in self.parts:
            self._driver.synchronize()
            begin = time.perf_counter()
            for action in part.actions:
                action()
            self._driver.synchronize()
            spent = time.perf_counter() - begin
            if part.starts:
                spent = spent if part.actions else 0.0
                spent += self._driver.seconds(_one_by_one(part.starts), 1)
            seconds.append(spent)
        return seconds

    def written_by(self, part: Part) -> Placed | None:
        """Return the first result of a step; None where it has none."""
        step = part.step
        if step.op in ("copy", "random"):
            return step.args[-1]
        if step.op != "call":
            return None
        return _written(step, self._kernels[step.kernel].outputs)[0]

    def read(self, value: Placed, part: Part) -> np.ndarray:
        """Return the elements of a value that a step has just written."""
        made = empty_numpy(value.shape, value.dtype)
        if part.on == "cpu":
            made[...] = self._mirrored(value)
        else:
            source = self.memory.device(value.span)
            self._driver.copy_out(address_of(made), source, value.nbytes)
        return made

    def release(self) -> None:
        """Give the memory back."""
        self.memory.release()

    # ---- preparing -------------------------------------------------------------------------------

    def _joined(self) -> list[Action]:
        """Return all actions, with launches that follow each other as one."""
        actions: list[Action] = []
        waiting: list[Action] = []

        def start() -> None:
            if waiting:
                actions.append(self._driver.sequence(list(waiting)))
                waiting.clear()

        for part in self.parts:
            if part.actions:
                start()
                actions += part.actions
            waiting += part.starts
        start()
        return [*actions, *self._last]

    def _part(self, step: PlacedStep) -> Part:
        if step.op == "copy":
            return self._copy(step)
        if step.op == "call":
            kernel = self._kernels[step.kernel]
            if isinstance(kernel, PlacedKernel):
                return self._device_call(step, kernel)
            return self._host_call(step, kernel)
        part = Part(step, "cpu")
        if step.op == "random":
            place = self.memory.host(step.args[0].span)
            part.actions.append(lambda: self._write_key(place))
            self._written_on_host(step.args[0].span)
            return part
        assert step.op == "check", step.op
        self._download(step.args[0].span, part.actions)
        view = self._mirrored(step.args[0])
        part.actions.append(lambda: _check_indices(view, step))
        return part

    def _device_call(self, step: PlacedStep, kernel: PlacedKernel) -> Part:
        part = Part(step, self.device.name)
        written = _written(step, kernel.outputs)
        for value in step.args:
            self._upload(value.span, part.actions)
        buffers = [self.memory.device(value.span) for value in step.args]
        part.starts = kernel.code.starts(buffers, step.dims)
        for value in written:
            self._forget(value.span)
        return part

    def _host_call(self, step: PlacedStep, kernel: HostKernel) -> Part:
        part = Part(step, "cpu")
        written = _written(step, kernel.outputs)
        for value in step.args:
            if value not in written and value.kind != "workspace":
                self._download(value.span, part.actions)
        buffers = [self.memory.host(value.span) for value in step.args]
        call = native.KernelCall(kernel.address, native.env(), buffers, step.dims)
        part.actions.append(call.run)
        for value in written:
            if value.kind == "workspace":
                self._forget(value.span)
            else:
                self._written_on_host(value.span)
        return part

    def _copy(self, step: PlacedStep) -> Part:
        part = Part(step, self.device.name)
        source, target = step.args
        self._upload(source.span, part.actions)
        self._upload(target.span, part.actions)
        to, from_ = self.memory.device(target.span), self.memory.device(source.span)
        if source.nbytes:
            part.starts.append(self._driver.prepared_copy(to, from_, source.nbytes))
        self._forget(target.span)
        return part

    def _mirrored(self, value: Placed) -> np.ndarray:
        memory = native.memory_at(self.memory.host(value.span), value.nbytes)
        flat = np.frombuffer(memory, np.uint8) if value.nbytes else np.empty(0, np.uint8)
        return flat.view(dtypes.to_numpy(value.dtype)).reshape(value.shape)

    def _write_key(self, place: int) -> None:
        key = np.array([self._keys.next_key()], np.uint64)
        np.frombuffer(native.memory_at(place, 8), np.uint64)[:] = key

    # ---- which side has what ---------------------------------------------------------------------

    def _upload(self, span: Span, actions: list[Action]) -> None:
        """Copy to the device what it lacks of these bytes."""
        for held in [p for p in self._pending if p.meets(span)]:
            self._pending.remove(held)
            actions.append(self._transfer(self._driver.copy_in, held, is_to_device=True))
            self._on_host.append(held)

    def _download(self, span: Span, actions: list[Action]) -> None:
        """Copy to the mirror what it lacks of these bytes."""
        if span.space[0] == "constant" or span.begin == span.end:
            return
        if any(held.holds(span) for held in (*self._on_host, *self._pending)):
            return
        self._upload(span, actions)  # parts that the mirror alone has
        actions.append(self._transfer(self._driver.copy_out, span, is_to_device=False))
        self._on_host.append(span)

    def _transfer(self, copy: Callable[..., None], span: Span, is_to_device: bool) -> Action:
        device, host = self.memory.device(span), self.memory.host(span)
        target, source = (device, host) if is_to_device else (host, device)
        nbytes = span.end - span.begin
        return lambda: copy(target, source, nbytes)

    def _forget(self, span: Span) -> None:
        """Remember that the device has written these bytes."""
        self._on_host = [held for held in self._on_host if not held.meets(span)]

    def _written_on_host(self, span: Span) -> None:
        if span.begin == span.end:
            return
        self._on_host = [held for held in self._on_host if not held.meets(span)]
        self._pending = [held for held in self._pending if not span.holds(held)]
        self._pending.append(span)


def _one_by_one(starts: Sequence[Action]) -> Action:
    def run() -> None:
        for start in starts:
            start()

    return run


def _written(step: PlacedStep, outputs: Sequence[bool]) -> list[Placed]:
    """Return the values a call writes: results, and scratch memory after them."""
    flags = [*outputs, *([True] * (len(step.args) - len(outputs)))]
    return [value for value, is_output in zip(step.args, flags, strict=True) if is_output]


def _check_indices(view: np.ndarray, step: PlacedStep) -> None:
    """Raise InputError for an index that is outside of its axis, as native/src/indices.c does."""
    flat = view.reshape(-1)
    if not flat.size:
        return
    extents = np.resize(np.array(step.dims, np.int64), flat.size)
    outside = np.flatnonzero((flat < -extents) | (flat >= extents))
    if outside.size:
        k = int(outside[0])
        extent = int(extents[k])
        raise InputError(
            f"{step.origin} takes element {flat[k]} of axis {step.axis + k % len(step.dims)}, "
            f"which has {extent} (element {k} of its indices)",
            hint=f"give indices from {-extent} to {extent - 1}",
        )
