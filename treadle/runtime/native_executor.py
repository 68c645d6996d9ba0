# SPDX-License-Identifier: Apache-2.0
"""Executors through ctypes: td_executor and what it tells."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import c_int64, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from treadle.errors import UsageError
from treadle.runtime.native import (
    HANDLE,
    OBSERVER,
    Block,
    CBuffer,
    CConstant,
    CInstructionInfo,
    CSymbol,
    CTensor,
    CTensorInfo,
    Error,
    Leftovers,
    fail,
    library,
)


@dataclass(frozen=True)
class TensorInfo:
    """Name, element type and shape of one input or output; -1 where each run decides."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True)
class InstructionInfo:
    """One instruction of a plan; `kernel` is "" for a copy."""

    op: str
    kernel: str
    origin: str


def _tensor_info(info: CTensorInfo) -> TensorInfo:
    shape = tuple(info.shape[axis] for axis in range(info.ndim))
    return TensorInfo(info.name.decode(), info.dtype.decode(), shape, info.bytes)


_VERIFY = 1  # TD_VERIFY


class _ShapedArguments:
    """What `td_run_shaped` takes for inputs of given ranks, filled anew for each run."""

    def __init__(self, ranks: tuple[int, ...], outputs: int) -> None:
        self._given = (CTensor * len(ranks))()
        self._taken = (CBuffer * outputs)()
        self._shapes = [(c_int64 * rank)() for rank in ranks]
        self._tensors = list(self._given)  # the same memory: indexing makes an object each time
        self._buffers = list(self._taken)
        for tensor, shape, rank in zip(self._tensors, self._shapes, ranks, strict=True):
            tensor.shape, tensor.ndim = ctypes.addressof(shape), rank
        self._held: tuple[object, object] = (None, None)

    def filled(
        self,
        inputs: Sequence[tuple[int, tuple[int, ...]]],
        outputs: Sequence[tuple[int, int] | None],
    ) -> tuple[Any, Any]:  # Any: ctypes arrays
        """Return the arguments for inputs (address, shape) and outputs (address, bytes) or None.

        What is as in the last run stays as it is: filling costs more than the call.
        """
        if (inputs, outputs) == self._held:
            return self._given, self._taken
        self._held = (None, None)
        for tensor, sizes, (address, shape) in zip(
            self._tensors, self._shapes, inputs, strict=True
        ):
            tensor.data = address
            sizes[:] = list(shape)
        for buffer, place in zip(self._buffers, outputs, strict=True):
            buffer.data, buffer.bytes = place or (None, 0)
        self._held = ([*inputs], [*outputs])
        return self._given, self._taken


class ExecutorHandle:
    """A td_executor; closed by `close` or with the object."""

    def __init__(self, handle: int) -> None:
        self._native = library()
        self._handle: int | None = handle
        self._error = Error()
        self._info = CTensorInfo()
        self._pointers: dict[tuple[int, int], tuple[Any, Any]] = {}  # Any: ctypes arrays
        self._shaped: dict[tuple[tuple[int, ...], int], _ShapedArguments] = {}

    @classmethod
    def open_file(cls, descriptor: int, at: str, verify: bool = False) -> ExecutorHandle:
        """Load an artifact from an open file, which `at` names in errors; see td_open_file."""
        error, handle = Error(), HANDLE()
        if library().td_open_file(descriptor, _VERIFY if verify else 0, handle, error):
            fail(error, at=at)
        return cls(handle.value or 0)

    @classmethod
    def create(
        cls,
        plan: bytes,
        kernels: Mapping[str, int],
        constants: Mapping[str, tuple[int, int]],
    ) -> ExecutorHandle:
        """Make an executor from a plan, kernel addresses and constants (address, bytes)."""
        symbols = (CSymbol * len(kernels))(
            *(CSymbol(name.encode(), address) for name, address in kernels.items())
        )
        data = (CConstant * len(constants))(
            *(CConstant(name.encode(), *place) for name, place in constants.items())
        )
        error, handle = Error(), HANDLE()
        if library().td_executor_create(
            plan, len(plan), symbols, len(symbols), data, len(data), handle, error
        ):
            fail(error)
        return cls(handle.value or 0)

    def fork(self) -> ExecutorHandle:
        """Make a second executor that shares code and weights; both can run at the same time."""
        error, handle = Error(), HANDLE()
        if self._native.td_executor_fork(self.handle, handle, error):
            fail(error)
        return ExecutorHandle(handle.value or 0)

    def plan(self) -> str:
        """Return the execution plan as it was loaded: JSON text."""
        size = c_size_t()
        text = self._native.td_executor_plan(self.handle, size)
        return ctypes.string_at(text, size.value).decode()

    @property
    def handle(self) -> int:
        """The C handle. Raises: UsageError after `close`."""
        if self._handle is None:
            raise UsageError("the executor is closed")
        return self._handle

    def close(self) -> None:
        """Release its memory and machine code."""
        if self._handle is not None:
            self._native.td_close(self._handle)
            self._handle = None

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    def run(self, inputs: Sequence[int], outputs: Sequence[int | None]) -> None:
        """Run the plan on buffers given by address (None: memory of the executor).

        One thread at a time runs it: what is passed to C is kept for the next run.
        """
        counts = len(inputs), len(outputs)
        if counts not in self._pointers:
            self._pointers[counts] = (c_void_p * counts[0])(), (c_void_p * counts[1])()
        given, taken = self._pointers[counts]
        given[:], taken[:] = inputs, outputs
        if self._native.td_run(self._handle or self.handle, given, taken, self._error):
            fail(self._error)

    @property
    def is_dynamic(self) -> bool:
        """True for a plan with sizes that each run decides: it runs by `run_shaped`."""
        return bool(self._native.td_executor_is_dynamic(self.handle))

    def run_shaped(
        self,
        inputs: Sequence[tuple[int, tuple[int, ...]]],
        outputs: Sequence[tuple[int, int] | None],
    ) -> None:
        """Run the plan on inputs (address, shape); outputs are (address, bytes) or None.

        One thread at a time runs it, as with `run`.
        """
        key = tuple([len(shape) for _, shape in inputs]), len(outputs)
        if key not in self._shaped:
            self._shaped[key] = _ShapedArguments(*key)
        given, taken = self._shaped[key].filled(inputs, outputs)
        if self._native.td_run_shaped(self._handle or self.handle, given, taken, self._error):
            fail(self._error)

    def result(self, index: int) -> tuple[tuple[int, ...], int]:
        """Return shape and bytes of an output as the last run made it."""
        info = self._info
        if self._native.td_executor_result(self.handle, index, info, self._error):
            fail(self._error)
        return tuple(info.shape[: info.ndim]), info.bytes

    def give_output(self, index: int, pointer: int, nbytes: int) -> None:
        """Let results of an output be made in memory that one of them had."""
        self._native.td_executor_give_output(self.handle, index, pointer, nbytes)

    def take_output(self, index: int, nbytes: int, leftovers: Leftovers) -> Block:
        """Return the memory, so many bytes, of an output that the last run left to the executor.

        Given up, it goes to `leftovers`.
        """
        pointer = self._native.td_executor_take_output(self.handle, index)
        if not pointer:
            raise UsageError(f"output {index} is not with the executor")
        return leftovers.block(pointer, nbytes)

    def _tensors(self, count: str, describe: str) -> tuple[TensorInfo, ...]:
        found, info, error = [], CTensorInfo(), Error()
        for index in range(getattr(self._native, count)(self.handle)):
            if getattr(self._native, describe)(self.handle, index, info, error):
                fail(error)
            found.append(_tensor_info(info))
        return tuple(found)

    def inputs(self) -> tuple[TensorInfo, ...]:
        """Describe the inputs in order."""
        return self._tensors("td_executor_num_inputs", "td_executor_input")

    def outputs(self) -> tuple[TensorInfo, ...]:
        """Describe the outputs in order."""
        return self._tensors("td_executor_num_outputs", "td_executor_output")

    def instructions(self) -> list[InstructionInfo]:
        """Describe the plan's instructions in order."""
        found, info, error = [], CInstructionInfo(), Error()
        for index in range(self._native.td_executor_num_instructions(self.handle)):
            if self._native.td_executor_instruction(self.handle, index, info, error):
                fail(error)
            texts = (info.op, info.kernel, info.origin)
            found.append(InstructionInfo(*(text.decode() for text in texts)))
        return found

    @property
    def target(self) -> str:
        """The target the plan was compiled for."""
        return str(self._native.td_executor_target(self.handle).decode())

    @property
    def arena_bytes(self) -> int:
        """Bytes of working memory."""
        return int(self._native.td_executor_arena_bytes(self.handle))

    @property
    def constant_bytes(self) -> int:
        """Bytes of weights."""
        return int(self._native.td_executor_constant_bytes(self.handle))

    @property
    def num_threads(self) -> int:
        """Threads its kernels may use."""
        return int(self._native.td_executor_num_threads(self.handle))

    def seed(self, number: int) -> None:
        """Begin the random numbers of a seed, modulo 2**64."""
        self._native.td_executor_seed(self.handle, number % (1 << 64))

    def set_num_threads(self, count: int) -> None:
        """Set the threads its kernels may use; 0 returns to the process's number."""
        error = Error()
        if self._native.td_executor_set_num_threads(self.handle, count, error):
            fail(error)

    @contextmanager
    def observed(self, observer: Callable[[int], None]) -> Iterator[None]:
        """Call `observer` with the index of every instruction that a run finishes.

        What it raises is raised again when the block ends; it is not called any more then.
        """
        raised: list[BaseException] = []

        def observe(_context: object, index: int) -> None:
            try:
                if not raised:
                    observer(index)
            except BaseException as error:  # C cannot pass it on
                raised.append(error)

        callback = OBSERVER(observe)
        self._native.td_observe(self.handle, callback, None)
        try:
            yield
        finally:
            self._native.td_observe(self.handle, OBSERVER(), None)
        if raised:
            raise raised[0]

    def written(self, index: int) -> tuple[TensorInfo, int]:
        """Return what an instruction writes and its address; see td_executor_written."""
        info, data, error = CTensorInfo(), c_void_p(), Error()
        if self._native.td_executor_written(self.handle, index, info, data, error):
            fail(error)
        shape = tuple(info.shape[axis] for axis in range(info.ndim))
        return TensorInfo("", info.dtype.decode(), shape, info.bytes), data.value or 0

    def profile_start(self) -> None:
        """Start to add up time per instruction, from zero."""
        self._native.td_profile_start(self.handle)

    def profile_stop(self) -> None:
        """Stop adding up."""
        self._native.td_profile_stop(self.handle)

    def profile_read(self) -> list[tuple[float, int]]:
        """Return (seconds, runs) of every instruction since `profile_start`."""
        count = int(self._native.td_executor_num_instructions(self.handle))
        nanoseconds, runs, error = (c_uint64 * count)(), (c_uint64 * count)(), Error()
        if self._native.td_profile_read(self.handle, nanoseconds, runs, error):
            fail(error)
        return [(ns * 1e-9, n) for ns, n in zip(nanoseconds, runs, strict=True)]
