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
    address,
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

_READS_SIZES = ("size", "if", "loop")
"""Instructions after which sizes are known that were not before."""


Shapes = tuple[tuple[int, ...], ...]
"""The shapes of all inputs of a run."""

Places = Sequence[int | None]
"""The addresses of all outputs of a run, None for memory of the executor."""


class _CCall(ctypes.Structure):
    """td_call."""

    _fields_ = [
        ("executor", c_void_p),
        ("inputs", c_void_p),
        ("outputs", c_void_p),
        ("error", c_void_p),
    ]


def _call_of(
    executor: int, inputs: Any, outputs: Any, error: Error
) -> _CCall:  # Any: ctypes arrays
    """Return the arguments of a run; the arrays must outlive them."""
    return _CCall(executor, *map(address, (inputs, outputs, error)))


class _Call:
    """What `td_run` takes: one pointer per input and output, filled anew for each run."""

    def __init__(self, executor: int, error: Error, inputs: int, outputs: int) -> None:
        self.given: Any = (c_void_p * inputs)()  # Any: an array of ctypes, as below
        self.taken: Any = (c_void_p * outputs)()
        self._call = _call_of(executor, self.given, self.taken, error)
        self.place = address(self._call)


class _ShapedCall:
    """What `td_run_shaped` takes for inputs of given ranks, filled anew for each run.

    What is as in the last run stays as it is: filling costs more than the call.
    """

    def __init__(self, executor: int, error: Error, ranks: Sequence[int], outputs: int) -> None:
        given, self._taken = (CTensor * len(ranks))(), (CBuffer * outputs)()
        self.shapes: Shapes | None = None
        self._nbytes: Sequence[int] | None = None
        self._sizes: list[Any] = [(c_int64 * rank)() for rank in ranks]
        for tensor, sizes, rank in zip(given, self._sizes, ranks, strict=True):
            tensor.shape, tensor.ndim = address(sizes), rank
        self._inputs = memoryview(given).cast("B").cast("P")  # the address comes first in each
        self._outputs = memoryview(self._taken).cast("B").cast("P")
        self._call = _call_of(executor, given, self._taken, error)
        self.place = address(self._call)

    def fill(
        self, inputs: Sequence[int], shapes: Shapes, outputs: Places, nbytes: Sequence[int]
    ) -> None:
        """Put in the addresses and shapes of inputs, the addresses and bytes of outputs."""
        words, step = self._inputs, _WORDS_OF_TENSOR
        for index, place in enumerate(inputs):
            words[index * step] = place
        words, step = self._outputs, _WORDS_OF_BUFFER
        for index, memory in enumerate(outputs):
            words[index * step] = memory or 0
        if shapes != self.shapes:
            self._fill_shapes(shapes)
        if nbytes != self._nbytes:
            self._nbytes = None
            for buffer, size in zip(self._taken, nbytes, strict=True):
                buffer.bytes = size
            self._nbytes = [*nbytes]

    def _fill_shapes(self, shapes: Shapes) -> None:
        self.shapes = None
        for sizes, shape in zip(self._sizes, shapes, strict=True):
            sizes[:] = shape
        self.shapes = shapes


_WORDS_OF_TENSOR = ctypes.sizeof(CTensor) // ctypes.sizeof(c_void_p)
_WORDS_OF_BUFFER = ctypes.sizeof(CBuffer) // ctypes.sizeof(c_void_p)


class ExecutorHandle:
    """A td_executor; closed by `close` or with the object.

    `owner` is the thread that has it, see `Streams`; 0 where none has.
    """

    def __init__(self, handle: int) -> None:
        self._native = library()
        self._handle: int | None = handle
        self._error = Error()
        self._info = CTensorInfo()
        self._run_call = self._native.td_run_call
        self._call: _Call | None = None
        self._shaped: dict[tuple[int, ...], _ShapedCall] = {}  # by the ranks of inputs
        self._last: _ShapedCall | None = None
        self.owner = 0

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
            self._handle = self._call = self._last = None
            self._shaped.clear()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    def run(self, inputs: Sequence[int], outputs: Places) -> None:
        """Run the plan on buffers given by address.

        One thread at a time runs it: what is passed to C is kept for the next run.
        """
        call = self._call
        if call is None:
            call = self._call = _Call(self.handle, self._error, len(inputs), len(outputs))
        call.given[:], call.taken[:] = inputs, outputs
        if self._run_call(call.place):
            fail(self._error)

    @property
    def is_dynamic(self) -> bool:
        """True for a plan with sizes that each run decides: it runs by `run_shaped`."""
        return bool(self._native.td_executor_is_dynamic(self.handle))

    def is_sized_by_shapes(self) -> bool:
        """True where all sizes follow from the shapes of inputs, none from what is computed."""
        return not any(info.op in _READS_SIZES for info in self.instructions())

    def run_shaped(
        self, inputs: Sequence[int], shapes: Shapes, outputs: Places, nbytes: Sequence[int]
    ) -> None:
        """Run the plan on inputs given by address and shape; outputs are of so many bytes.

        One thread at a time runs it, as with `run`.
        """
        call = self._last
        if call is None or call.shapes != shapes:
            call = self._last = self._call_for(shapes, len(outputs))
        call.fill(inputs, shapes, outputs, nbytes)
        if self._run_call(call.place):
            fail(self._error)

    def _call_for(self, shapes: Shapes, outputs: int) -> _ShapedCall:
        ranks = tuple([len(shape) for shape in shapes])
        if ranks not in self._shaped:
            self._shaped[ranks] = _ShapedCall(self.handle, self._error, ranks, outputs)
        return self._shaped[ranks]

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
