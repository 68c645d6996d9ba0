# SPDX-License-Identifier: Apache-2.0
"""The native library through ctypes: machine, memory, hashes, machine code.

This module, and native_executor.py and native_frames.py, which go on from here, are the only ones
that import ctypes.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from ctypes import (
    POINTER,
    c_char,
    c_char_p,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
    string_at,
)
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from treadle.errors import (
    ArtifactError,
    InputError,
    InternalError,
    SizesError,
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
        ("all", c_int32),
        ("pool", c_void_p),
    ]


class CSymbol(ctypes.Structure):
    """td_symbol."""

    _fields_ = [("name", c_char_p), ("kernel", c_void_p)]


class CConstant(ctypes.Structure):
    """td_constant."""

    _fields_ = [("name", c_char_p), ("data", c_void_p), ("bytes", c_size_t)]


class CTensorInfo(ctypes.Structure):
    """td_tensor_info."""

    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("shape", POINTER(c_int64)),
        ("ndim", c_int32),
        ("bytes", c_size_t),
    ]


class CTensor(ctypes.Structure):
    """td_tensor."""

    _fields_ = [("data", c_void_p), ("shape", c_void_p), ("ndim", c_int32)]


class CBuffer(ctypes.Structure):
    """td_buffer."""

    _fields_ = [("data", c_void_p), ("bytes", c_size_t)]


class CInstructionInfo(ctypes.Structure):
    """td_instruction_info."""

    _fields_ = [("op", c_char_p), ("kernel", c_char_p), ("origin", c_char_p)]


class _Hash64State(ctypes.Structure):
    _fields_ = [("lanes", c_uint64 * 4), ("bytes", c_uint64), ("tail", ctypes.c_uint8 * 32)]


_ERROR = POINTER(Error)
HANDLE = c_void_p
OBSERVER = ctypes.CFUNCTYPE(None, c_void_p, c_int32)

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
    "td_spans_equal": (c_int32, (c_void_p, c_void_p, c_size_t, c_char_p)),
    "td_poly1305": (None, (c_char_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p)),
    "td_send_frames": (c_int32, (c_int32, c_void_p, c_size_t, c_int32, c_void_p)),
    "td_library_open": (c_int32, (c_char_p, POINTER(HANDLE), _ERROR)),
    "td_library_open_memory": (c_int32, (c_char_p, c_size_t, POINTER(HANDLE), _ERROR)),
    "td_library_kernel": (c_void_p, (HANDLE, c_char_p)),
    "td_library_close": (None, (HANDLE,)),
    "td_executor_create": (
        c_int32,
        (
            c_char_p,
            c_size_t,
            POINTER(CSymbol),
            c_size_t,
            POINTER(CConstant),
            c_size_t,
            POINTER(HANDLE),
            _ERROR,
        ),
    ),
    "td_open_file": (c_int32, (c_int32, c_uint32, POINTER(HANDLE), _ERROR)),
    "td_executor_fork": (c_int32, (HANDLE, POINTER(HANDLE), _ERROR)),
    "td_executor_plan": (c_void_p, (HANDLE, POINTER(c_size_t))),
    "td_close": (None, (HANDLE,)),
    "td_run_call": (c_int32, (c_void_p,)),
    "td_executor_is_dynamic": (c_int32, (HANDLE,)),
    "td_executor_result": (c_int32, (HANDLE, c_int32, POINTER(CTensorInfo), _ERROR)),
    "td_executor_take_output": (c_void_p, (HANDLE, c_int32)),
    "td_executor_give_output": (None, (HANDLE, c_int32, c_void_p, c_size_t)),
    "td_executor_num_inputs": (c_int32, (HANDLE,)),
    "td_executor_num_outputs": (c_int32, (HANDLE,)),
    "td_executor_input": (c_int32, (HANDLE, c_int32, POINTER(CTensorInfo), _ERROR)),
    "td_executor_output": (c_int32, (HANDLE, c_int32, POINTER(CTensorInfo), _ERROR)),
    "td_executor_target": (c_char_p, (HANDLE,)),
    "td_executor_arena_bytes": (c_size_t, (HANDLE,)),
    "td_executor_constant_bytes": (c_size_t, (HANDLE,)),
    "td_executor_seed": (None, (HANDLE, c_uint64)),
    "td_executor_num_threads": (c_int32, (HANDLE,)),
    "td_executor_set_num_threads": (c_int32, (HANDLE, c_int32, _ERROR)),
    "td_executor_num_instructions": (c_int32, (HANDLE,)),
    "td_executor_instruction": (c_int32, (HANDLE, c_int32, POINTER(CInstructionInfo), _ERROR)),
    "td_observe": (None, (HANDLE, OBSERVER, c_void_p)),
    "td_executor_written": (
        c_int32,
        (HANDLE, c_int32, POINTER(CTensorInfo), POINTER(c_void_p), _ERROR),
    ),
    "td_profile_start": (None, (HANDLE,)),
    "td_profile_stop": (None, (HANDLE,)),
    "td_profile_read": (c_int32, (HANDLE, POINTER(c_uint64), POINTER(c_uint64), _ERROR)),
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


def library() -> Any:  # Any: see _load
    """Return the native library, loaded at the first call."""
    if _load.cache_info().currsize:  # no lock that a thread of a forked process may have held
        return _load()
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
    9: SizesError,
}


def fail(error: Error, at: str = "") -> NoReturn:
    """Raise what an error of the library says."""
    kind = _ERRORS.get(error.code, InternalError)
    text = error.text.decode("utf-8", "replace")
    raise kind(text, at=at, hint=error.hint.decode("utf-8", "replace"))


# ---- machine -------------------------------------------------------------------------------------


def version() -> str:
    """Return the version of the native runtime."""
    return str(library().td_version().decode())


def usable_cpus(root: str | None = None) -> int:
    """Return the CPUs this process may use: affinity mask, cut by the cgroup's quota.

    `root` is put in front of the paths under /proc and /sys.
    """
    return int(library().td_usable_cpus(None if root is None else os.fsencode(root)))


def cpu_features() -> list[str]:
    """Return the CPU's features under LLVM's names, as far as the runtime can check them."""
    return [name for name in library().td_cpu_features().decode().split(",") if name]


def has_cpu_feature(name: str) -> bool | None:
    """Tell whether the CPU has the feature; None if the runtime does not know the name."""
    answer = int(library().td_cpu_has(name.encode()))
    return None if answer < 0 else answer == 1


def num_threads() -> int:
    """Return the number of threads used where nothing else is said."""
    return current_settings().num_threads or int(library().td_num_threads())


def set_num_threads(count: int) -> None:
    """Set the process's number of threads; 0 returns to the default."""
    error = Error()
    if library().td_set_num_threads(count, error):
        fail(error)


def env(threads: int | None = None) -> Env:
    """Return an environment for kernels with that many threads (None: `num_threads()`)."""
    made, error = Env(), Error()
    if library().td_env_init(made, threads or current_settings().num_threads or 0, error):
        fail(error)
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
        native, error = library(), Error()
        self.pointer: int = pointer or native.td_alloc(nbytes, error) or 0
        if not self.pointer:
            fail(error)
        self._free = free or native.td_free
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
        self._free = library().td_free
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


class Leftovers:
    """The memory of a result that was given up, kept for the next result, of any size.

    Results may be given up by any thread, also after this object.
    """

    __slots__ = ("_free", "_held")

    def __init__(self) -> None:
        self._free = library().td_free
        self._held: list[tuple[int, int]] = []

    def block(self, pointer: int, nbytes: int) -> Block:
        """Return so many bytes at `pointer` as a block whose memory comes back here."""
        return Block(nbytes, pointer, lambda place: self._take_back(place, nbytes))

    def pop(self) -> tuple[int, int] | None:
        """Return address and bytes of what is held, None where nothing is."""
        try:
            return self._held.pop()
        except IndexError:
            return None

    def _take_back(self, pointer: int, nbytes: int) -> None:
        if self._held:
            self._free(pointer)
        else:
            self._held.append((pointer, nbytes))

    def __del__(self) -> None:
        for pointer, _ in getattr(self, "_held", ()):
            self._free(pointer)


bytes_in: Callable[[Any], c_char] = c_char.from_buffer  # Any: whatever has the buffer protocol
"""Return the memory of a writable buffer of a known element type, for `address`.

Raises: TypeError, ValueError or BufferError for another one.
"""

address = ctypes.addressof
"""Return the address of a structure or array of ctypes; of `bytes_in`, at once, of a buffer."""


def memory_at(pointer: int, nbytes: int) -> memoryview:
    """Return a view of memory that somebody else keeps alive."""
    return memoryview((ctypes.c_uint8 * nbytes).from_address(pointer) if nbytes else b"")


def sha256_at(pointer: int | bytes, nbytes: int) -> str:
    """Return the SHA-256 of memory in hexadecimal, by its address or as bytes."""
    digest = ctypes.create_string_buffer(65)
    library().td_sha256(pointer, nbytes, digest)
    return digest.value.decode()


def hash64(data: bytes) -> str:
    """Return the fast 64-bit content check of `data` in hexadecimal (for mod.params)."""
    digest = ctypes.create_string_buffer(17)
    library().td_hash64(data, len(data), digest)
    return digest.value.decode()


def hash64_at(pointer: int, nbytes: int) -> str:
    """Return the fast 64-bit content check of memory in hexadecimal."""
    digest = ctypes.create_string_buffer(17)
    library().td_hash64(pointer, nbytes, digest)
    return digest.value.decode()


class Hash64:
    """The fast 64-bit content check over data that comes in pieces."""

    def __init__(self) -> None:
        self._state = _Hash64State()
        library().td_hash64_start(self._state)

    def add_at(self, pointer: int, nbytes: int) -> None:
        """Add the next piece, which lies in memory."""
        library().td_hash64_add(self._state, pointer, nbytes)

    def hexdigest(self) -> str:
        """Return the result in hexadecimal; nothing can be added afterwards."""
        digest = ctypes.create_string_buffer(17)
        library().td_hash64_hex(self._state, digest)
        return digest.value.decode()


# ---- machine code --------------------------------------------------------------------------------


class Library:
    """A loaded shared object with kernels; unloaded by `close` or with the object."""

    def __init__(self, code: str | os.PathLike[str] | bytes) -> None:
        """Load from a path, or from the file's content in memory."""
        self._native, error, handle = library(), Error(), HANDLE()
        self._handle: int | None = None
        if isinstance(code, bytes):
            failed = self._native.td_library_open_memory(code, len(code), handle, error)
        else:
            failed = self._native.td_library_open(os.fsencode(code), handle, error)
        if failed:
            fail(error)
        self._handle = handle.value

    def kernel(self, name: str) -> int:
        """Return the address of a kernel. Raises: ArtifactError when there is none."""
        if self._handle is None:
            raise UsageError("the library is closed")
        address = self._native.td_library_kernel(self._handle, name.encode())
        if not address:
            raise ArtifactError(f"the machine code has no kernel {name!r}")
        return int(address)

    def text(self, name: str) -> str | None:
        """Return a text that the code holds under a name; None where there is none."""
        if self._handle is None:
            raise UsageError("the library is closed")
        address = self._native.td_library_kernel(self._handle, name.encode())
        return string_at(address).decode() if address else None

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
        self, address: int, kernel_env: Env | None, buffers: Sequence[int], dims: Sequence[int]
    ) -> None:
        """`buffers` are addresses; what they point to must outlive the call.

        Without an environment the kernel runs its parallel loops in order.
        """
        self._native = library()
        self._address = address
        self._env = kernel_env
        self._buffers = (c_void_p * len(buffers))(*buffers)
        self._dims = (c_int64 * len(dims))(*dims) if dims else None

    def run(self) -> None:
        """Call the kernel once. Raises: InternalError with the kernel's code."""
        error = Error()
        if self._native.td_kernel_call(self._address, self._env, self._buffers, self._dims, error):
            fail(error)

    def time(self, number: int) -> float:
        """Call the kernel `number` times in a row; return the elapsed seconds."""
        error, elapsed = Error(), c_int64()
        if self._native.td_kernel_time(
            self._address, self._env, self._buffers, self._dims, number, elapsed, error
        ):
            fail(error)
        return elapsed.value * 1e-9


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
