# SPDX-License-Identifier: Apache-2.0
"""The native library through ctypes: the only module that imports ctypes."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import (
    POINTER,
    c_char,
    c_char_p,
    c_int32,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from treadle.errors import (
    ArtifactError,
    InputError,
    InternalError,
    ToolchainError,
    TreadleError,
    UsageError,
)
from treadle.runtime import native_build
from treadle.settings import get as current_settings

ALIGNMENT = 64
"""Every buffer a kernel sees starts at a multiple of this many bytes."""

# ---- the header's structures ---------------------------------------------------------------------


class Error(ctypes.Structure):
    """td_error."""

    _fields_ = [("code", c_int32), ("text", c_char * 1024), ("hint", c_char * 512)]


class Env(ctypes.Structure):
    """td_env: what a kernel may use."""

    _fields_ = [
        ("parallel", c_void_p),
        ("num_threads", c_int32),
        ("reserved", c_int32),
        ("pool", c_void_p),
    ]


class _Symbol(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("kernel", c_void_p)]


class _Constant(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("data", c_void_p), ("bytes", c_size_t)]


class _TensorInfo(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("shape", POINTER(c_int64)),
        ("ndim", c_int32),
        ("bytes", c_size_t),
    ]


class _Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("shape", c_void_p), ("ndim", c_int32)]


class _Buffer(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("bytes", c_size_t)]


class _InstructionInfo(ctypes.Structure):
    _fields_ = [("op", c_char_p), ("kernel", c_char_p), ("origin", c_char_p)]


class _Hash64State(ctypes.Structure):
    _fields_ = [("lanes", c_uint64 * 4), ("bytes", c_uint64), ("tail", ctypes.c_uint8 * 32)]


_ERROR = POINTER(Error)
_HANDLE = c_void_p
_OBSERVER = ctypes.CFUNCTYPE(None, c_void_p, c_int32)

# name: (result type, argument types)
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {  # Any: ctypes' type objects
    "td_version": (c_char_p, ()),
    "td_kernel_call": (c_int32, (c_void_p, POINTER(Env), c_void_p, c_void_p, _ERROR)),
    "td_kernel_time": (
        c_int32,
        (c_void_p, POINTER(Env), c_void_p, c_void_p, c_int64, POINTER(c_int64), _ERROR),
    ),
    "td_usable_cpus": (c_int32, (c_char_p,)),
    "td_cpu_has": (c_int32, (c_char_p,)),
    "td_cpu_features": (c_char_p, ()),
    "td_alloc": (c_void_p, (c_size_t, _ERROR)),
    "td_free": (None, (c_void_p,)),
    "td_num_threads": (c_int32, ()),
    "td_set_num_threads": (c_int32, (c_int32, _ERROR)),
    "td_env_init": (c_int32, (POINTER(Env), c_int32, _ERROR)),
    "td_sha256": (None, (c_void_p, c_size_t, c_char_p)),
    "td_hash64": (None, (c_void_p, c_size_t, c_char_p)),
    "td_hash64_start": (None, (POINTER(_Hash64State),)),
    "td_hash64_add": (None, (POINTER(_Hash64State), c_void_p, c_size_t)),
    "td_hash64_hex": (None, (POINTER(_Hash64State), c_char_p)),
    "td_library_open": (c_int32, (c_char_p, POINTER(_HANDLE), _ERROR)),
    "td_library_open_memory": (c_int32, (c_char_p, c_size_t, POINTER(_HANDLE), _ERROR)),
    "td_library_kernel": (c_void_p, (_HANDLE, c_char_p)),
    "td_library_close": (None, (_HANDLE,)),
    "td_executor_create": (
        c_int32,
        (
            c_char_p,
            c_size_t,
            POINTER(_Symbol),
            c_size_t,
            POINTER(_Constant),
            c_size_t,
            POINTER(_HANDLE),
            _ERROR,
        ),
    ),
    "td_open": (c_int32, (c_char_p, POINTER(_HANDLE), _ERROR)),
    "td_close": (None, (_HANDLE,)),
    "td_run": (c_int32, (_HANDLE, c_void_p, c_void_p, _ERROR)),
    "td_run_shaped": (c_int32, (_HANDLE, POINTER(_Tensor), POINTER(_Buffer), _ERROR)),
    "td_executor_is_dynamic": (c_int32, (_HANDLE,)),
    "td_executor_result": (c_int32, (_HANDLE, c_int32, POINTER(_TensorInfo), _ERROR)),
    "td_executor_take_output": (c_void_p, (_HANDLE, c_int32)),
    "td_executor_num_inputs": (c_int32, (_HANDLE,)),
    "td_executor_num_outputs": (c_int32, (_HANDLE,)),
    "td_executor_input": (c_int32, (_HANDLE, c_int32, POINTER(_TensorInfo), _ERROR)),
    "td_executor_output": (c_int32, (_HANDLE, c_int32, POINTER(_TensorInfo), _ERROR)),
    "td_executor_target": (c_char_p, (_HANDLE,)),
    "td_executor_arena_bytes": (c_size_t, (_HANDLE,)),
    "td_executor_constant_bytes": (c_size_t, (_HANDLE,)),
    "td_executor_seed": (None, (_HANDLE, c_uint64)),
    "td_executor_num_threads": (c_int32, (_HANDLE,)),
    "td_executor_set_num_threads": (c_int32, (_HANDLE, c_int32, _ERROR)),
    "td_executor_num_instructions": (c_int32, (_HANDLE,)),
    "td_executor_instruction": (c_int32, (_HANDLE, c_int32, POINTER(_InstructionInfo), _ERROR)),
    "td_observe": (None, (_HANDLE, _OBSERVER, c_void_p)),
    "td_executor_written": (
        c_int32,
        (_HANDLE, c_int32, POINTER(_TensorInfo), POINTER(c_void_p), _ERROR),
    ),
    "td_profile_start": (None, (_HANDLE,)),
    "td_profile_stop": (None, (_HANDLE,)),
    "td_profile_read": (c_int32, (_HANDLE, POINTER(c_uint64), POINTER(c_uint64), _ERROR)),
}

# ---- finding and loading the library -------------------------------------------------------------


def _private_folder(folder: Path) -> Path:
    """Make `folder` for this user alone. Raises ToolchainError if it is somebody else's."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise ToolchainError(
            f"the cache folder {folder} can be written by other users",
            hint="set TREADLE_CACHE to a folder of your own",
        )
    return folder


def _build_on_demand(sources: Path | None) -> Path:
    """Return a library built from `sources` in the cache, building it if needed."""
    if sources is None:
        raise ToolchainError(
            "the native runtime is missing from this installation",
            hint="install the package again: pip install --force-reinstall treadle",
        )
    folder = current_settings().cache / "native" / native_build.source_hash(sources)[:32]
    library = folder / native_build.LIBRARY
    try:
        _private_folder(folder)
        if not native_build.is_current(library, sources):
            native_build.build(library, sources=sources)
    except native_build.BuildFailed as error:
        raise ToolchainError(
            f"the native runtime cannot be built: {error}",
            hint='install a C compiler, or: pip install "treadle[cross]"',
        ) from None
    except OSError as error:
        raise ToolchainError(
            f"the native runtime cannot be built in {folder}: {error.strerror}",
            hint="set TREADLE_CACHE to a folder you can write to",
        ) from None
    return library


def find_library() -> Path:
    """Return the library to load: the package's if it is current, else one built on demand."""
    packaged = Path(__file__).resolve().parent.parent / "_native" / native_build.LIBRARY
    sources = native_build.find_sources()
    return packaged if native_build.is_current(packaged, sources) else _build_on_demand(sources)


_load_lock = threading.Lock()


@cache
def _load() -> Any:  # Any: ctypes resolves functions at run time
    path = find_library()
    try:
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError) as error:
        raise ToolchainError(
            f"the native runtime {path} cannot be loaded: {error}",
            hint="delete the file; it is built again on the next start",
        ) from None
    return library


def _library() -> Any:  # Any: see _load
    with _load_lock:
        return _load()


# ---- errors --------------------------------------------------------------------------------------

_ERRORS: dict[int, type[TreadleError]] = {
    1: UsageError,
    2: InputError,
    3: ArtifactError,
    4: ArtifactError,
    5: ArtifactError,
    6: TreadleError,
    7: ArtifactError,
    8: InternalError,
}


def _fail(error: Error, at: str = "") -> NoReturn:
    kind = _ERRORS.get(error.code, InternalError)
    text = error.text.decode("utf-8", "replace")
    raise kind(text, at=at, hint=error.hint.decode("utf-8", "replace"))


# ---- machine -------------------------------------------------------------------------------------


def version() -> str:
    """Return the version of the native runtime."""
    return str(_library().td_version().decode())


def usable_cpus(root: str | None = None) -> int:
    """Return the CPUs this process may use: affinity mask, cut by the cgroup's quota.

    `root` is put in front of the paths under /proc and /sys.
    """
    return int(_library().td_usable_cpus(None if root is None else os.fsencode(root)))


def cpu_features() -> list[str]:
    """Return the CPU's features under LLVM's names, as far as the runtime can check them."""
    return [name for name in _library().td_cpu_features().decode().split(",") if name]


def has_cpu_feature(name: str) -> bool | None:
    """Tell whether the CPU has the feature; None if the runtime does not know the name."""
    answer = int(_library().td_cpu_has(name.encode()))
    return None if answer < 0 else answer == 1


def num_threads() -> int:
    """Return the number of threads used where nothing else is said."""
    return current_settings().num_threads or int(_library().td_num_threads())


def set_num_threads(count: int) -> None:
    """Set the process's number of threads; 0 returns to the default."""
    error = Error()
    if _library().td_set_num_threads(count, error):
        _fail(error)


def env(threads: int | None = None) -> Env:
    """Return an environment for kernels with that many threads (None: `num_threads()`)."""
    made, error = Env(), Error()
    if _library().td_env_init(made, threads or current_settings().num_threads or 0, error):
        _fail(error)
    return made


# ---- memory and hashes ---------------------------------------------------------------------------


class Block:
    """Aligned memory (64 bytes; huge pages from 2 MiB on), freed with the object."""

    __slots__ = ("__array_interface__", "_free", "pointer")

    def __init__(
        self, nbytes: int, pointer: int = 0, free: Callable[[int], object] | None = None
    ) -> None:
        """Allocate, or take over memory at `pointer` that the library has allocated.

        `free` takes the memory in the end; without it the library does.
        """
        library, error = _library(), Error()
        self.pointer: int = pointer or library.td_alloc(nbytes, error) or 0
        if not self.pointer:
            _fail(error)
        self._free = free or library.td_free
        self.__array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (self.pointer, False),
            "version": 3,
        }

    def __del__(self) -> None:
        if getattr(self, "pointer", 0):
            self._free(self.pointer)


class Spares:
    """Blocks of one size; one that was given up is kept for the next, its pages are there already.

    Blocks may be given up by any thread, also after this object.
    """

    __slots__ = ("_free", "_held", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._free = _library().td_free
        self._held: list[int] = []

    def block(self) -> Block:
        """Return a block, fresh or used before."""
        try:
            pointer = self._held.pop()
        except IndexError:
            pointer = 0
        return Block(self.nbytes, pointer, self._take_back)

    def _take_back(self, pointer: int) -> None:
        if self._held:
            self._free(pointer)
        else:
            self._held.append(pointer)

    def __del__(self) -> None:
        for pointer in getattr(self, "_held", ()):
            self._free(pointer)


def address_in(buffer: Any) -> int:  # Any: whatever has the buffer protocol
    """Return the address of a writable buffer of a known element type, quickly.

    Raises: TypeError, ValueError or BufferError for another one.
    """
    return ctypes.addressof(c_char.from_buffer(buffer))


def memory_at(pointer: int, nbytes: int) -> memoryview:
    """Return a view of memory that somebody else keeps alive."""
    return memoryview((ctypes.c_uint8 * nbytes).from_address(pointer) if nbytes else b"")


def sha256_at(pointer: int, nbytes: int) -> str:
    """Return the SHA-256 of memory in hexadecimal."""
    digest = ctypes.create_string_buffer(65)
    _library().td_sha256(pointer, nbytes, digest)
    return digest.value.decode()


def hash64(data: bytes) -> str:
    """Return the fast 64-bit content check of `data` in hexadecimal (for mod.params)."""
    digest = ctypes.create_string_buffer(17)
    _library().td_hash64(data, len(data), digest)
    return digest.value.decode()


def hash64_at(pointer: int, nbytes: int) -> str:
    """Return the fast 64-bit content check of memory in hexadecimal."""
    digest = ctypes.create_string_buffer(17)
    _library().td_hash64(pointer, nbytes, digest)
    return digest.value.decode()


class Hash64:
    """The fast 64-bit content check over data that comes in pieces."""

    def __init__(self) -> None:
        self._state = _Hash64State()
        _library().td_hash64_start(self._state)

    def add_at(self, pointer: int, nbytes: int) -> None:
        """Add the next piece, which lies in memory."""
        _library().td_hash64_add(self._state, pointer, nbytes)

    def hexdigest(self) -> str:
        """Return the result in hexadecimal; nothing can be added afterwards."""
        digest = ctypes.create_string_buffer(17)
        _library().td_hash64_hex(self._state, digest)
        return digest.value.decode()


# ---- machine code --------------------------------------------------------------------------------


class Library:
    """A loaded shared object with kernels; unloaded by `close` or with the object."""

    def __init__(self, code: str | os.PathLike[str] | bytes) -> None:
        """Load from a path, or from the file's content in memory."""
        self._native, error, handle = _library(), Error(), _HANDLE()
        self._handle: int | None = None
        if isinstance(code, bytes):
            failed = self._native.td_library_open_memory(code, len(code), handle, error)
        else:
            failed = self._native.td_library_open(os.fsencode(code), handle, error)
        if failed:
            _fail(error)
        self._handle = handle.value

    def kernel(self, name: str) -> int:
        """Return the address of a kernel. Raises: ArtifactError when there is none."""
        if self._handle is None:
            raise UsageError("the library is closed")
        address = self._native.td_library_kernel(self._handle, name.encode())
        if not address:
            raise ArtifactError(f"the machine code has no kernel {name!r}")
        return int(address)

    def close(self) -> None:
        """Unload; the addresses of its kernels are invalid from then on."""
        if self._handle is not None:
            self._native.td_library_close(self._handle)
            self._handle = None

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()


class KernelCall:
    """One kernel with its arguments bound, ready to call or to time."""

    __slots__ = ("_address", "_buffers", "_dims", "_env", "_native")

    def __init__(
        self, address: int, kernel_env: Env, buffers: Sequence[int], dims: Sequence[int]
    ) -> None:
        """`buffers` are addresses; what they point to must outlive the call."""
        self._native = _library()
        self._address = address
        self._env = kernel_env
        self._buffers = (c_void_p * len(buffers))(*buffers)
        self._dims = (c_int64 * len(dims))(*dims) if dims else None

    def run(self) -> None:
        """Call the kernel once. Raises: InternalError with the kernel's code."""
        error = Error()
        if self._native.td_kernel_call(self._address, self._env, self._buffers, self._dims, error):
            _fail(error)

    def time(self, number: int) -> float:
        """Call the kernel `number` times in a row; return the elapsed seconds."""
        error, elapsed = Error(), c_int64()
        if self._native.td_kernel_time(
            self._address, self._env, self._buffers, self._dims, number, elapsed, error
        ):
            _fail(error)
        return elapsed.value * 1e-9


# ---- executors -----------------------------------------------------------------------------------


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


def _tensor_info(info: _TensorInfo) -> TensorInfo:
    shape = tuple(info.shape[axis] for axis in range(info.ndim))
    return TensorInfo(info.name.decode(), info.dtype.decode(), shape, info.bytes)


@cache
def _pointers(count: int) -> Any:  # Any: a ctypes type
    return c_void_p * count


class ExecutorHandle:
    """A td_executor; closed by `close` or with the object."""

    def __init__(self, handle: int) -> None:
        self._native = _library()
        self._handle: int | None = handle

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> ExecutorHandle:
        """Load an artifact. Raises: ArtifactError."""
        error, handle = Error(), _HANDLE()
        if _library().td_open(os.fsencode(path), handle, error):
            _fail(error, at=os.fspath(path))
        return cls(handle.value or 0)

    @classmethod
    def create(
        cls,
        plan: bytes,
        kernels: Mapping[str, int],
        constants: Mapping[str, tuple[int, int]],
    ) -> ExecutorHandle:
        """Make an executor from a plan, kernel addresses and constants (address, bytes)."""
        symbols = (_Symbol * len(kernels))(
            *(_Symbol(name.encode(), address) for name, address in kernels.items())
        )
        data = (_Constant * len(constants))(
            *(_Constant(name.encode(), *place) for name, place in constants.items())
        )
        error, handle = Error(), _HANDLE()
        if _library().td_executor_create(
            plan, len(plan), symbols, len(symbols), data, len(data), handle, error
        ):
            _fail(error)
        return cls(handle.value or 0)

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
        """Run the plan on buffers given by address (None: memory of the executor)."""
        error = Error()
        given = _pointers(len(inputs))(*inputs)
        taken = _pointers(len(outputs))(*outputs)
        if self._native.td_run(self._handle or self.handle, given, taken, error):
            _fail(error)

    @property
    def is_dynamic(self) -> bool:
        """True for a plan with sizes that each run decides: it runs by `run_shaped`."""
        return bool(self._native.td_executor_is_dynamic(self.handle))

    def run_shaped(
        self,
        inputs: Sequence[tuple[int, tuple[int, ...]]],
        outputs: Sequence[tuple[int, int] | None],
    ) -> None:
        """Run the plan on inputs (address, shape); outputs are (address, bytes) or None."""
        error = Error()
        shapes = [(c_int64 * len(shape))(*shape) for _, shape in inputs]
        given = (_Tensor * len(inputs))(
            *(
                _Tensor(address, ctypes.addressof(sizes), len(sizes))
                for (address, _), sizes in zip(inputs, shapes, strict=True)
            )
        )
        taken = (_Buffer * len(outputs))(*(_Buffer(*(o or (None, 0))) for o in outputs))
        if self._native.td_run_shaped(self.handle, given, taken, error):
            _fail(error)

    def result(self, index: int) -> TensorInfo:
        """Describe an output as the last run made it."""
        info, error = _TensorInfo(), Error()
        if self._native.td_executor_result(self.handle, index, info, error):
            _fail(error)
        return _tensor_info(info)

    def take_output(self, index: int, nbytes: int) -> Block:
        """Return the memory, so many bytes, of an output that the last run left to the executor."""
        pointer = self._native.td_executor_take_output(self.handle, index)
        if not pointer:
            raise UsageError(f"output {index} is not with the executor")
        return Block(nbytes, pointer)

    def _tensors(self, count: str, describe: str) -> tuple[TensorInfo, ...]:
        found, info, error = [], _TensorInfo(), Error()
        for index in range(getattr(self._native, count)(self.handle)):
            if getattr(self._native, describe)(self.handle, index, info, error):
                _fail(error)
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
        found, info, error = [], _InstructionInfo(), Error()
        for index in range(self._native.td_executor_num_instructions(self.handle)):
            if self._native.td_executor_instruction(self.handle, index, info, error):
                _fail(error)
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
            _fail(error)

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

        callback = _OBSERVER(observe)
        self._native.td_observe(self.handle, callback, None)
        try:
            yield
        finally:
            self._native.td_observe(self.handle, _OBSERVER(), None)
        if raised:
            raise raised[0]

    def written(self, index: int) -> tuple[TensorInfo, int]:
        """Return what an instruction writes and its address; see td_executor_written."""
        info, data, error = _TensorInfo(), c_void_p(), Error()
        if self._native.td_executor_written(self.handle, index, info, data, error):
            _fail(error)
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
            _fail(error)
        return [(ns * 1e-9, n) for ns, n in zip(nanoseconds, runs, strict=True)]


# ---- DLPack --------------------------------------------------------------------------------------
# NumPy exchanges every element type but bfloat16; its capsules carry the same memory as uint16, and
# only the type written in the capsule differs.

_DLPACK_UINT, _DLPACK_BFLOAT = 1, 4
# Where the type code is: after data, device and ndim of a DLTensor, which in the versioned struct
# follows version, context, deleter and flags.
_DLPACK_CODE_OFFSET = {b"dltensor": 20, b"dltensor_versioned": 32 + 20}


def _capsule_code(capsule: object) -> Any:  # Any: a ctypes array over (code, bits)
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, c_char_p]
    name = api.PyCapsule_GetName(capsule)
    if name not in _DLPACK_CODE_OFFSET:
        raise InputError("the object's DLPack capsule is not one that can be read")
    pointer = api.PyCapsule_GetPointer(capsule, name)
    return (ctypes.c_uint8 * 2).from_address(pointer + _DLPACK_CODE_OFFSET[name])


def _change_code(capsule: object, before: int, after: int) -> bool:
    code = _capsule_code(capsule)
    if tuple(code) != (before, 16):
        return False
    code[0] = after
    return True


def dlpack_bfloat16_to_uint16(capsule: object) -> bool:
    """Relabel a capsule of bfloat16 as uint16. Returns whether it was one."""
    return _change_code(capsule, _DLPACK_BFLOAT, _DLPACK_UINT)


def dlpack_uint16_to_bfloat16(capsule: object) -> bool:
    """Relabel a capsule of uint16 as bfloat16. Returns whether it was one."""
    return _change_code(capsule, _DLPACK_UINT, _DLPACK_BFLOAT)
