# SPDX-License-Identifier: Apache-2.0
"""What a session does on the device: files, arrays, models, kernels. One function each.

docs/design/rpc.md lists the functions with their arguments and results.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from treadle import dtype as dtypes
from treadle.errors import ArtifactError, RpcError, UsageError
from treadle.rpc import wire
from treadle.rpc.files import WorkFolder
from treadle.rpc.values import Arguments, Value
from treadle.runtime import native
from treadle.runtime.array import NDArray, empty
from treadle.runtime.artifact_file import ArtifactFile
from treadle.runtime.executor import Executor
from treadle.runtime.kernel_files import load_kernels, load_module
from treadle.runtime.module import LoadedKernel, Module
from treadle.runtime.native_executor import TensorInfo
from treadle.settings import MOST_THREADS

Blob = bytes | memoryview
Answer = tuple[list[Value], Blob]
Function = Callable[[Arguments, Blob], Answer]

_MOST_DIMENSIONS = 32
_MOST_HANDLES = 1 << 20
_MOST_REPEATS = 1 << 20

T = TypeVar("T")


class _Table(dict[int, T]):
    """Objects by handle; no handle is given twice."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what
        self._last = 0

    def add(self, value: T) -> int:
        if len(self) >= _MOST_HANDLES:
            raise RpcError(f"the session holds too many {self._what}s", hint="free some")
        self._last += 1
        self[self._last] = value
        return self._last

    def at(self, handle: int) -> T:
        if handle not in self:
            raise RpcError(f"the session has no {self._what} {handle}: it was freed, or never made")
        return self[handle]


class _Model:
    def __init__(self, path: Path) -> None:
        self.file = ArtifactFile(path)
        self.executor = Executor.open(self.file)
        self._kernels: Module[LoadedKernel] | None = None

    @property
    def kernels(self) -> Module[LoadedKernel]:
        """Its kernels by name; read when they are first asked for."""
        if self._kernels is None:
            found = load_kernels(self.file)
            if not found:
                raise ArtifactError("the model has no kernels", at=self.file.name)
            self._kernels = Module({kernel.name: kernel for kernel in found})
        return self._kernels


class DeviceFunctions:
    """The functions of one session, by name in `table`; `memory` are the bytes arrays may take."""

    def __init__(self, files: WorkFolder, memory: int) -> None:
        self._files = files
        self._memory = memory
        self._arrays: _Table[NDArray] = _Table("array")
        self._models: _Table[_Model] = _Table("model")
        self._modules: _Table[Module[LoadedKernel]] = _Table("module")
        self._held = 0
        self.table: dict[str, Function] = {
            "device.info": _info,
            "file.begin": self._file_begin,
            "file.check": self._file_check,
            "file.write": self._file_write,
            "file.end": self._file_end,
            "file.read": self._file_read,
            "file.remove": self._file_remove,
            "file.list": self._file_list,
            "array.new": self._array_new,
            "array.free": self._array_free,
            "array.write": self._array_write,
            "array.read": self._array_read,
            "array.copy": self._array_copy,
            "model.load": self._model_load,
            "model.free": self._model_free,
            "model.run": self._model_run,
            "model.time": self._model_time,
            "model.profile": self._model_profile,
            "model.watch": self._model_watch,
            "model.threads": self._model_threads,
            "model.seed": self._model_seed,
            "model.plan": self._model_plan,
            "model.module": self._model_module,
            "module.load": self._module_load,
            "module.free": self._module_free,
            "kernel.call": self._kernel_call,
            "kernel.time": self._kernel_time,
            "kernel.rotate": self._kernel_rotate,
            "device.threads": _threads,
        }

    # ---- files -----------------------------------------------------------------------------------

    def _file_begin(self, arguments: Arguments, _: Blob) -> Answer:
        name, size = arguments.text(), arguments.integer()
        return [self._files.begin(name, size, bool(arguments.integer(0, 1)))], b""

    def _file_check(self, _arguments: Arguments, _: Blob) -> Answer:
        return [self._files.uploaded_hash()], b""

    def _file_write(self, arguments: Arguments, data: Blob) -> Answer:
        return [self._files.write(arguments.integer(), data)], b""

    def _file_end(self, _arguments: Arguments, _: Blob) -> Answer:
        self._files.end()
        return [], b""

    def _file_read(self, arguments: Arguments, _: Blob) -> Answer:
        name, offset = arguments.text(), arguments.integer()
        return [], self._files.read(name, offset, arguments.integer(0, wire.PIECE_BYTES))

    def _file_remove(self, arguments: Arguments, _: Blob) -> Answer:
        self._files.remove(arguments.text())
        return [], b""

    def _file_list(self, _arguments: Arguments, _: Blob) -> Answer:
        return [[[name, size] for name, size in self._files.listed()]], b""

    # ---- arrays ----------------------------------------------------------------------------------

    def _new(self, dtype: str, shape: Sequence[int]) -> int:
        if len(shape) > _MOST_DIMENSIONS:
            raise RpcError(f"an array has at most {_MOST_DIMENSIONS} dimensions")
        nbytes = dtypes.to_numpy(dtypes.check_dtype(dtype)).itemsize
        for size in shape:
            nbytes *= size
        if nbytes > self._memory - self._held:
            raise RpcError(
                f"an array of {nbytes:,} bytes is more than the session may take: it holds "
                f"{self._held:,} of {self._memory:,}",
                hint="free arrays",
            )
        return self._add(empty(shape, dtype))

    def _add(self, array: NDArray) -> int:
        handle = self._arrays.add(array)
        self._held += array.nbytes
        return handle

    def _array_new(self, arguments: Arguments, _: Blob) -> Answer:
        dtype = arguments.text(40)
        return [self._new(dtype, arguments.integers(0, 1 << 48))], b""

    def _array_free(self, arguments: Arguments, _: Blob) -> Answer:
        for handle in arguments.integers():
            if (array := self._arrays.pop(handle, None)) is not None:
                self._held -= array.nbytes
        return [], b""

    def _bytes(self, handle: int, offset: int, size: int) -> np.ndarray:
        flat = self._arrays.at(handle).numpy().reshape(-1).view(np.uint8)
        if offset + size > flat.size:
            raise RpcError(f"bytes {offset} to {offset + size} of an array of {flat.size}")
        return flat[offset : offset + size]

    def _array_write(self, arguments: Arguments, data: Blob) -> Answer:
        handle, offset = arguments.integer(), arguments.integer()
        np.copyto(self._bytes(handle, offset, len(data)), np.frombuffer(data, np.uint8))
        return [], b""

    def _array_read(self, arguments: Arguments, _: Blob) -> Answer:
        handle, offset = arguments.integer(), arguments.integer()
        return [], self._bytes(handle, offset, arguments.integer(0, wire.PIECE_BYTES)).data

    def _array_copy(self, arguments: Arguments, _: Blob) -> Answer:
        source, target = arguments.integer(), arguments.integer()
        self._arrays.at(source).copyto(self._arrays.at(target))
        return [], b""

    def _given(self, handles: Sequence[int]) -> list[NDArray]:
        return [self._arrays.at(handle) for handle in handles]

    # ---- models ----------------------------------------------------------------------------------

    def _model_load(self, arguments: Arguments, _: Blob) -> Answer:
        model = _Model(self._files.located(arguments.text()))
        if threads := arguments.integer(0, MOST_THREADS):
            model.executor.num_threads = threads
        made, executor = self._models.add(model), model.executor
        facts: list[Value] = [executor.target, executor.arena_bytes, executor.constant_bytes]
        return [made, _infos(executor.inputs), _infos(executor.outputs), *facts], b""

    def _model_free(self, arguments: Arguments, _: Blob) -> Answer:
        model = self._models.pop(arguments.integer(), None)
        if model is not None:
            model.executor.close()
            model.file.close()
        return [], b""

    def _model_run(self, arguments: Arguments, _: Blob) -> Answer:
        executor = self._models.at(arguments.integer()).executor
        inputs = self._given(arguments.integers())
        outputs = self._given(arguments.integers())
        results = executor.run(inputs, outputs or None)
        if outputs:
            return [[]], b""
        return [[[self._add(r), r.dtype, list(r.shape)] for r in results]], b""

    def _model_time(self, arguments: Arguments, _: Blob) -> Answer:
        executor = self._models.at(arguments.integer()).executor
        inputs = self._given(arguments.integers())
        number, repeat, least = _repeats(arguments)
        result = executor.benchmark(inputs, number=number, repeat=repeat, min_repeat_ms=least)
        return [list(result.results)], b""

    def _model_profile(self, arguments: Arguments, _: Blob) -> Answer:
        executor = self._models.at(arguments.integer()).executor
        inputs = self._given(arguments.integers())
        rows = executor.profile(inputs, arguments.integer(1, _MOST_REPEATS))
        return [[[row.kernel, row.origin, row.seconds, row.runs] for row in rows]], b""

    def _model_watch(self, arguments: Arguments, _: Blob) -> Answer:
        """Run once; return copies of what the instructions that are named have written."""
        executor = self._models.at(arguments.integer()).executor
        inputs = self._given(arguments.integers())
        wanted = set(arguments.integers())
        copies: dict[int, int] = {}

        def observe(index: int, found: np.ndarray) -> None:
            if index in wanted and index not in copies:
                copies[index] = self._new(dtypes.from_numpy(found.dtype), found.shape)
                np.copyto(self._arrays.at(copies[index]).numpy(), found)

        try:
            executor.watch(inputs, observe)
        except BaseException:
            for handle in copies.values():
                self._held -= self._arrays.pop(handle).nbytes
            raise
        made = ((index, handle, self._arrays.at(handle)) for index, handle in copies.items())
        return [[[index, handle, a.dtype, list(a.shape)] for index, handle, a in made]], b""

    def _model_threads(self, arguments: Arguments, _: Blob) -> Answer:
        """Set the number of threads, unless it is 0; return what it is."""
        executor = self._models.at(arguments.integer()).executor
        if count := arguments.integer(0, MOST_THREADS):
            executor.num_threads = count
        return [executor.num_threads], b""

    def _model_seed(self, arguments: Arguments, _: Blob) -> Answer:
        executor = self._models.at(arguments.integer()).executor
        executor.seed(arguments.integer(-1 << 63))
        return [], b""

    def _model_plan(self, arguments: Arguments, _: Blob) -> Answer:
        """Return a piece of the plan's text, and how long all of it is."""
        text = self._models.at(arguments.integer()).executor.plan_text.encode()
        start = arguments.integer()
        return [len(text)], text[start : start + wire.PIECE_BYTES]

    def _model_module(self, arguments: Arguments, _: Blob) -> Answer:
        kernels = self._models.at(arguments.integer()).kernels
        return [self._modules.add(kernels), list(kernels)], b""

    # ---- kernels ---------------------------------------------------------------------------------

    def _module_load(self, arguments: Arguments, _: Blob) -> Answer:
        path = self._files.located(arguments.text())
        module = load_module(path, arguments.text(wire.LARGEST_FRAME) or None)
        return [self._modules.add(module), list(module)], b""

    def _module_free(self, arguments: Arguments, _: Blob) -> Answer:
        self._modules.pop(arguments.integer(), None)
        return [], b""

    def _kernel(self, arguments: Arguments) -> tuple[LoadedKernel, list[NDArray], dict[str, int]]:
        kernel = self._modules.at(arguments.integer())[arguments.text()]
        arrays = self._given(arguments.integers())
        sizes = {row.text(): row.integer() for row in arguments.rows()}
        return kernel, arrays, sizes

    def _kernel_call(self, arguments: Arguments, _: Blob) -> Answer:
        kernel, arrays, sizes = self._kernel(arguments)
        kernel(*arrays, sizes=sizes)
        return [], b""

    def _kernel_time(self, arguments: Arguments, _: Blob) -> Answer:
        kernel, arrays, sizes = self._kernel(arguments)
        number, repeat, least = _repeats(arguments)
        flush = bool(arguments.integer(0, 1))
        evaluate = kernel.time_evaluator(number, repeat, least, flush=flush)
        return [list(evaluate(*arrays, sizes=sizes).results)], b""

    def _kernel_rotate(self, arguments: Arguments, _: Blob) -> Answer:
        kernel = self._modules.at(arguments.integer())[arguments.text()]
        lists = [self._given(row.all_integers()) for row in arguments.rows()]
        number, repeat = arguments.integer(1, _MOST_REPEATS), arguments.integer(1, _MOST_REPEATS)
        if not lists:
            raise RpcError("there is nothing to call the kernel with")
        time = kernel.rotation_timer(*lists)
        return [[time(number) for _ in range(repeat)]], b""


def _threads(arguments: Arguments, _: Blob) -> Answer:
    native.set_num_threads(arguments.integer(1, MOST_THREADS))
    return [], b""


def _infos(tensors: Sequence[TensorInfo]) -> Value:
    return [[info.name, info.dtype, list(info.shape), info.nbytes] for info in tensors]


def _repeats(arguments: Arguments) -> tuple[int, int, float]:
    number = arguments.integer(1, _MOST_REPEATS)
    return number, arguments.integer(1, _MOST_REPEATS), arguments.number(0, 1e7)


def _info(_arguments: Arguments, _: Blob) -> Answer:
    """Return what the device is: pairs of a name and a text."""
    features = native.cpu_features()
    machine = platform.machine()
    facts = {
        "cpu": _cpu_name(),
        "machine": machine,
        "features": " ".join(features),
        "cores": str(native.usable_cpus()),
        "memory_bytes": str(physical_memory()),
        "system": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()),
        "runtime": native.version(),
    }
    return [[[name, text] for name, text in facts.items()]], b""


def _cpu_name() -> str:
    """Return what the system calls the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor()
    for wanted in ("model name", "Model", "Hardware", "uarch"):
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip() == wanted:
                return value.strip()
    return platform.processor()


def physical_memory() -> int:
    """Return the bytes of memory this machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError) as error:
        raise UsageError(f"the system does not say how much memory there is: {error}") from None
