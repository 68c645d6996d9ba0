# SPDX-License-Identifier: Apache-2.0
"""Arrays: aligned memory with an element type and a shape, shared with NumPy and DLPack."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from treadle import dtype as dtypes
from treadle.errors import InputError, TypeMismatch, UsageError
from treadle.runtime import native

_DLPACK_CPU = 1


@dataclass(frozen=True)
class Device:
    """A place where arrays live and kernels run."""

    kind: str
    index: int = 0

    def __str__(self) -> str:
        return f"{self.kind}({self.index})"


_CPU = Device("cpu")


def cpu(index: int = 0) -> Device:
    """Return the CPU as a device."""
    return Device("cpu", index) if index else _CPU


def cuda(index: int = 0) -> Device:
    """Return an NVIDIA GPU as a device; it is opened when an array or a kernel is first there."""
    return Device("cuda", index)


def opencl(index: int = 0) -> Device:
    """Return a device of OpenCL; it is opened when an array or a kernel is first there."""
    return Device("opencl", index)


@runtime_checkable
class SupportsDLPack(Protocol):
    """Anything that hands out its memory as a DLPack capsule."""

    def __dlpack__(self, **options: Any) -> Any:  # Any: the protocol's own looseness
        """Return a capsule."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return (device type, device number)."""


class NDArray(NDArrayOperatorsMixin):
    """An array in CPU memory; memory made by Treadle is 64-byte aligned.

    `numpy()` and DLPack share the memory, and keep it alive. Indexing follows NumPy: integers and
    slices give views of the same memory, lists and masks give copies, and a whole index gives the
    element. Operators, comparisons and NumPy's functions take it as the NumPy array it holds, and
    return NumPy arrays.
    """

    __slots__ = ("_view", "device", "dtype")

    def __init__(self, view: np.ndarray, device: Device | None = None) -> None:
        """Wrap a NumPy array without a copy. Raises: InputError for object arrays and the like."""
        if not isinstance(view, np.ndarray):
            raise InputError(
                f"an NDArray is made from a NumPy array, not from a {type(view).__name__}",
                hint="treadle.array(...) copies anything that NumPy reads",
            )
        self._view = view
        self.dtype = _element_type(view)
        self.device = device or _CPU

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions."""
        return self._view.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._view.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._view.size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self._view.nbytes

    @property
    def pointer(self) -> int:
        """Address of the first element."""
        return address_of(self._view)

    @property
    def is_aligned(self) -> bool:
        """True if a kernel can use the memory in place."""
        return is_ready(self._view)

    def numpy(self) -> np.ndarray:
        """Return a NumPy view of the same memory."""
        return self._view

    def copyfrom(self, source: ArrayLike) -> NDArray:
        """Copy elements of the same shape and type from `source`; return self."""
        given = as_numpy(source, "the source")
        if given.shape != self.shape or _element_type(given) != self.dtype:
            raise InputError(
                f"{describe(given)} cannot be copied to {describe(self._view)}",
                hint="both must have the same shape and element type",
            )
        np.copyto(self._view, given)
        return self

    def copyto(self, target: NDArray) -> NDArray:
        """Copy the elements to `target`; return `target`."""
        return target.copyfrom(self)

    def __dlpack__(self, **options: Any) -> Any:  # Any: a PyCapsule
        if self.dtype != "bfloat16":
            return self._view.__dlpack__(**options)
        capsule = self._view.view(np.uint16).__dlpack__(**options)
        native.dlpack_uint16_to_bfloat16(capsule)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_DLPACK_CPU, 0)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:  # Any: NumPy's
        return np.array(self._view, dtype=dtype, copy=copy)

    # Any below: what NumPy takes as an operand, an index or an axis.

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *operands: Any, **options: Any) -> Any:
        targets = options.get("out", ())
        if targets:
            options["out"] = tuple(map(_plain, targets))
        result = getattr(ufunc, method)(*map(_plain, operands), **options)
        return targets[0] if len(targets) == 1 else result

    def __getitem__(self, index: Any) -> Any:
        found = self._view[_plain_index(index)]
        return NDArray(found, self.device) if isinstance(found, np.ndarray) else found

    def __setitem__(self, index: Any, value: Any) -> None:
        self._view[_plain_index(index)] = _plain(value)

    def __len__(self) -> int:
        return len(self._view)

    def __iter__(self) -> Iterator[Any]:
        return (self[position] for position in range(len(self)))

    def __contains__(self, value: object) -> bool:
        return value in self._view

    def __bool__(self) -> bool:
        return bool(self._view)

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def item(self) -> Any:
        """Return the only element as a Python number. Raises: ValueError for other sizes."""
        return self._view.item()

    def tolist(self) -> Any:
        """Return the elements as nested lists of Python numbers."""
        return self._view.tolist()

    def astype(self, dtype: Any) -> NDArray:
        """Return a copy with elements of another type (its name, or NumPy's type)."""
        kind = dtypes.to_numpy(dtype) if isinstance(dtype, str) else np.dtype(dtype)
        return from_numpy(self._view.astype(kind), self.device)

    def reshape(self, *shape: Any) -> NDArray:
        """Return the elements in another shape: a view where possible, else a copy."""
        return NDArray(self._view.reshape(*shape), self.device)

    def argmax(self, axis: int | None = None) -> Any:
        """Return the position of the largest element, or those along an axis, as NumPy does."""
        return self._view.argmax(axis)

    def argmin(self, axis: int | None = None) -> Any:
        """Return the position of the smallest element, or those along an axis."""
        return self._view.argmin(axis)

    def max(self, axis: int | tuple[int, ...] | None = None) -> Any:
        """Return the largest element, or those along an axis."""
        return self._view.max(axis)

    def min(self, axis: int | tuple[int, ...] | None = None) -> Any:
        """Return the smallest element, or those along an axis."""
        return self._view.min(axis)

    def sum(self, axis: int | tuple[int, ...] | None = None) -> Any:
        """Return the sum of all elements, or the sums along an axis."""
        return self._view.sum(axis)

    def mean(self, axis: int | tuple[int, ...] | None = None) -> Any:
        """Return the mean of all elements, or the means along an axis."""
        return self._view.mean(axis)

    def __str__(self) -> str:
        return str(self._view)

    def __repr__(self) -> str:
        elements = np.array2string(self._view, separator=", ", prefix="NDArray(")
        return f"NDArray({elements}, shape={self.shape}, dtype={self.dtype})"


def array_over(view: np.ndarray, dtype: str) -> NDArray:
    """Return an array over one of NumPy whose element type is known to be `dtype`, quickly."""
    made = _new(NDArray)
    made._view, made.dtype, made.device = view, dtype, _CPU
    return made


_new = NDArray.__new__


def _plain(value: Any) -> Any:
    """Return the NumPy array in an NDArray, anything else as it is."""
    return value.numpy() if isinstance(value, NDArray) else value


def _plain_index(index: Any) -> Any:
    return tuple(map(_plain, index)) if isinstance(index, tuple) else _plain(index)


ArrayLike = NDArray | np.ndarray | np.generic | SupportsDLPack

# ---- making arrays -------------------------------------------------------------------------------


def _check_shape(shape: Sequence[int]) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in shape)
    if any(size < 0 for size in sizes):
        raise UsageError(f"a shape has no negative sizes: {sizes}")
    return sizes


_BYTE = np.dtype("uint8")
SMALL = 1 << 16
"""Bytes up to which NumPy's own memory, cut to the alignment, is made faster than a block."""

_PAGE = 1 << 12
"""Bytes of arrays whose memory is made at once, and lives as long as one of them."""


def empty_numpy(shape: Sequence[int], dtype: str) -> np.ndarray:
    """Return a NumPy array over aligned memory, its elements undefined."""
    return maker_of(shape, dtypes.to_numpy(dtype))()[0]


def maker_of(
    shape: Sequence[int], kind: np.dtype, spares: native.Spares | None = None
) -> Callable[[], tuple[np.ndarray, int]]:
    """Return what makes arrays over aligned memory, elements undefined, with their addresses.

    `spares` gives large memory of this size, which need not be fresh.
    """
    sizes, size = tuple(shape), math.prod(shape) * kind.itemsize
    step = max(1, -(-size // native.ALIGNMENT)) * native.ALIGNMENT
    count = max(1, _PAGE // step)
    free: list[tuple[np.ndarray, int, int]] = []  # memory, offset and address of the next arrays

    def large() -> tuple[np.ndarray, int]:
        block = native.Block(size) if spares is None else spares.block()
        return np.asarray(block).view(kind).reshape(sizes), block.pointer

    def more() -> tuple[np.ndarray, int, int]:
        memory = np.empty(count * step + native.ALIGNMENT, _BYTE)
        address = native.address(native.bytes_in(memory))
        start = -address % native.ALIGNMENT
        offsets = range(start, start + count * step, step)
        first, *others = [(memory, offset, address + offset) for offset in offsets]
        free.extend(others)
        return first

    def small() -> tuple[np.ndarray, int]:
        try:
            memory, offset, address = free.pop()
        except IndexError:
            memory, offset, address = more()
        return np.ndarray(sizes, kind, memory, offset), address

    return large if size > SMALL else small


def _is_elsewhere(device: Device | None) -> bool:
    """True for a device with memory of its own. Raises: UsageError for one that is not known."""
    if device is None or device.kind == "cpu":
        return False
    if device.kind not in ("cuda", "opencl"):
        raise UsageError(
            f"arrays on {device} are not possible",
            hint="use treadle.cpu(), treadle.cuda() or treadle.opencl()",
        )
    return True


def _gpu_arrays() -> Any:  # Any: a module
    """Return the module of arrays on devices: it is imported when one is made."""
    return import_module("treadle.runtime.gpu.array")


def empty(
    shape: Sequence[int] | int, dtype: str = "float32", device: Device | None = None
) -> NDArray:
    """Return an array of that shape with undefined elements, in the memory of `device`.

    Raises: DeviceError where there is no such device.
    """
    sizes = _check_shape((shape,) if isinstance(shape, int) else shape)
    if _is_elsewhere(device):
        made: NDArray = _gpu_arrays().DeviceArray(sizes, dtypes.check_dtype(dtype), device)
        return made
    return NDArray(empty_numpy(sizes, dtypes.check_dtype(dtype)), device)


def from_numpy(source: np.ndarray, device: Device | None = None) -> NDArray:
    """Copy a NumPy array into aligned memory (native byte order, C order), or to a device."""
    if _is_elsewhere(device):
        made: NDArray = _gpu_arrays().device_array(source, _element_type(source), device)
        return made
    view = empty_numpy(source.shape, _element_type(source))
    np.copyto(view, source)
    return NDArray(view, device)


def array(source: Any, dtype: str | None = None, device: Device | None = None) -> NDArray:
    """Copy anything array-like (lists and scalars too) into an array in the memory of `device`.

    Any: whatever np.asarray takes. Python floats become float32 unless `dtype` says otherwise.
    Raises: DeviceError where there is no such device.
    """
    is_array = isinstance(source, (NDArray, np.ndarray, np.generic, SupportsDLPack))
    given = as_numpy(source, "the source") if is_array else np.asarray(source)
    if dtype is None and not is_array and given.dtype == np.float64:
        dtype = "float32"
    if dtype is not None:
        given = given.astype(dtypes.to_numpy(dtype))
    return from_numpy(given, device)


# ---- DLPack --------------------------------------------------------------------------------------


class _Exchange:
    """Stands between NumPy and the owner of a capsule: relabels bfloat16, which NumPy refuses."""

    def __init__(self, owner: SupportsDLPack) -> None:
        self._owner = owner
        self.is_bfloat16 = False

    def __dlpack__(self, **options: Any) -> Any:  # Any: a PyCapsule
        capsule = self._owner.__dlpack__(**options)
        self.is_bfloat16 = native.dlpack_bfloat16_to_uint16(capsule)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._owner.__dlpack_device__()


def _numpy_from_dlpack(source: SupportsDLPack, what: str) -> np.ndarray:
    kind = int(source.__dlpack_device__()[0])
    if kind != _DLPACK_CPU:
        raise InputError(
            f"{what} is on a device of DLPack type {kind}, not in CPU memory",
            hint="move it to the CPU first, for example with .cpu()",
        )
    exchange = _Exchange(source)
    try:
        view = np.from_dlpack(exchange)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"{what} cannot be shared through DLPack: {error}",
            hint="detach it, and convert it to an element type Treadle has",
        ) from None
    return view.view(dtypes.to_numpy("bfloat16")) if exchange.is_bfloat16 else view


def from_dlpack(source: SupportsDLPack) -> NDArray:
    """Return an array over the memory of another library's tensor, without a copy.

    The memory stays alive as long as the array. Raises: InputError when it is not CPU memory.
    """
    if not isinstance(source, SupportsDLPack):
        raise InputError(f"{type(source).__name__} does not speak DLPack")
    return NDArray(_numpy_from_dlpack(source, "the tensor"))


# ---- looking at what a caller gives --------------------------------------------------------------


@cache
def _name_of(kind: np.dtype) -> str:
    try:
        return dtypes.from_numpy(kind)
    except TypeMismatch:
        return ""


def _element_type(view: np.ndarray) -> str:
    if name := _name_of(view.dtype):
        return name
    holds = "Python objects" if view.dtype.hasobject else f"elements of type {view.dtype}"
    raise InputError(
        f"the array holds {holds}",
        hint=f"element types are {', '.join(dtypes.NAMES)}",
    )


def as_numpy(source: ArrayLike, what: str) -> np.ndarray:
    """Return `source` as a NumPy array in native byte order, without a copy where possible.

    `what` names it in messages. Raises: InputError.
    """
    if isinstance(source, NDArray):
        return source.numpy()
    if isinstance(source, (np.ndarray, np.generic)):
        view = np.asarray(source)
    elif isinstance(source, SupportsDLPack):
        view = _numpy_from_dlpack(source, what)
    else:
        raise InputError(
            f"{what} is a {type(source).__name__}, not an array",
            hint="give a NumPy array, a treadle NDArray, or a tensor that speaks DLPack",
        )
    if view.dtype.hasobject:
        raise InputError(f"{what} holds Python objects", hint="convert it to a numeric array")
    return view if view.dtype.isnative else view.astype(view.dtype.newbyteorder("="))


def type_of(source: ArrayLike) -> str:
    """Return the element type of an array. Raises: InputError for one that Treadle has not."""
    return source.dtype if isinstance(source, NDArray) else _element_type(as_numpy(source, "it"))


def describe(view: np.ndarray) -> str:
    """Return the element type and shape of an array in the words of error messages."""
    return f"{view.dtype.name}[{', '.join(str(size) for size in view.shape)}]"


def conversion_hint(source: object, dtype: str) -> str:
    """Return how to give an array the element type `dtype`, as its own library says it."""
    if isinstance(source, (NDArray, np.ndarray, np.generic)):
        return f"convert it with .astype({dtype!r})"
    library = type(source).__module__.partition(".")[0]
    return f"convert it with .to(torch.{dtype})" if library == "torch" else f"convert it to {dtype}"


_address, _bytes_in = native.address, native.bytes_in  # looked up once: each call asks


def address_of(view: np.ndarray) -> int:
    """Return the address of the first element."""
    try:
        return _address(_bytes_in(view))
    except (TypeError, ValueError, BufferError):  # read-only, bfloat16, empty, not contiguous
        return int(view.__array_interface__["data"][0])


def is_ready(view: np.ndarray) -> bool:
    """True if a kernel can use the memory in place: aligned, in C order."""
    return address_of(view) % native.ALIGNMENT == 0 and view.flags.c_contiguous


def ready_copy(view: np.ndarray) -> np.ndarray:
    """Return the elements in fresh aligned memory."""
    copy = empty_numpy(view.shape, _element_type(view))
    np.copyto(copy, view)
    return copy


def ready(view: np.ndarray) -> np.ndarray:
    """Return `view` if a kernel can use its memory in place, else a copy in aligned memory.

    NumPy's own memory is rarely aligned enough: weights made with `empty_numpy`, or passed through
    here once, are not copied again by an executor, and large ones lie on huge pages.
    """
    return view if is_ready(view) else ready_copy(view)
