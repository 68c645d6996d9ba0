# SPDX-License-Identifier: Apache-2.0
"""The inputs of a run: filled with numbers, or read from an .npz file that nobody has to trust."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import IO, Literal

import numpy as np

from treadle import dtype as dtypes
from treadle.build.executable import Runnable
from treadle.cli.models import check_readable
from treadle.errors import InputError
from treadle.runtime.array import NDArray, array

FillMode = Literal["zeros", "ones", "random"]
Spec = tuple[str, str, tuple[int, ...]]
"""Name, dtype and shape of an input."""

_SEED = 0
_INTEGERS = 2
_MAX_HEADER = 4096
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,  # a compression method Python does not know
    OSError,
    RuntimeError,  # an encrypted member
    SyntaxError,  # of an array's header
    TokenError,
    ValueError,
)


def filled_inputs(
    model: Runnable, mode: FillMode, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> dict[str, NDArray]:
    """Return arrays for every input of `model`, full of zeros, ones or seeded random numbers.

    Random floats are normally distributed; random integers are 0 or 1, which every index is.
    `shapes` say how large inputs are whose sizes each run decides.

    Raises: InputError when such an input has no shape, or another than the model's.
    """
    random = np.random.default_rng(_SEED)
    given = shapes or {}
    _check_names(given, model.inputs, whole=False)
    sized = [(name, dt, _run_shape(name, dt, shape, given)) for name, dt, shape in model.inputs]
    return {name: array(_filled(mode, dt, shape, random)) for name, dt, shape in sized}


def _run_shape(
    name: str, dtype: str, shape: tuple[int, ...], given: Mapping[str, tuple[int, ...]]
) -> tuple[int, ...]:
    """Return the shape an input has in this run."""
    wanted = given.get(name, shape)
    sizes = ", ".join("?" if size < 0 else str(size) for size in shape)
    if not _fits(wanted, shape):
        raise InputError(
            f"input {name!r} is {dtype}[{sizes}] but --input-shapes gives {list(wanted)}"
        )
    if any(size < 0 for size in wanted):
        raise InputError(
            f"input {name!r} is {dtype}[{sizes}]: each run decides its size",
            hint=f'give it with --input-shapes "{name}:[…]"',
        )
    return wanted


def _fits(found: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """True where sizes are those of a shape, which has -1 for any."""
    return len(found) == len(shape) and all(w in (s, -1) for s, w in zip(found, shape, strict=True))


def _filled(
    mode: FillMode, dtype: str, shape: tuple[int, ...], random: np.random.Generator
) -> np.ndarray:
    kind = dtypes.to_numpy(dtype)
    if mode != "random":
        return np.full(shape, 0 if mode == "zeros" else 1, kind)
    if dtypes.is_float(dtype):
        return random.standard_normal(shape, np.float32).astype(kind)
    return random.integers(0, _INTEGERS, shape).astype(kind)


def read_npz(path: Path, wanted: list[Spec]) -> dict[str, NDArray]:
    """Return the arrays of an .npz file, which must be exactly the `wanted` inputs.

    Every header is checked before its data is read, so that a file cannot ask for more memory than
    the model's inputs take; arrays of Python objects are refused.

    Raises: InputError when the file is broken or an input is missing, unknown or of another type.
    """
    check_readable(path, "a file made by numpy.savez")
    try:
        with zipfile.ZipFile(path) as archive:
            members = {i.filename.removesuffix(".npy"): i for i in archive.infolist()}
            _check_names(members, wanted)
            return {spec[0]: _member(archive, members[spec[0]], spec) for spec in wanted}
    except _ZIP_ERRORS as error:
        raise InputError(
            f"the inputs file cannot be read: {str(error) or type(error).__name__}",
            at=str(path),
            hint="make it with numpy.savez(path, name=array, …)",
        ) from None
    except InputError as error:
        raise error.located(str(path)) from None


def _check_names(members: Mapping[str, object], wanted: list[Spec], *, whole: bool = True) -> None:
    """Refuse names that are no inputs, and where the `whole` is wanted, inputs without a name."""
    known = {name for name, _, _ in wanted}
    missing = [f"{n}: {dt}{list(shape)}" for n, dt, shape in wanted if n not in members]
    unknown = [name for name in members if name not in known]
    if unknown:
        raise InputError(
            f"the model has no input {unknown[0]!r}",
            hint=f"its inputs are {', '.join(sorted(known)) or 'none'}",
        )
    if missing and whole:
        raise InputError(
            f"{len(missing)} of {len(wanted)} inputs are not given", hint=f"add {missing}"
        )


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, spec: Spec) -> NDArray:
    name, dtype, shape = spec
    with archive.open(member) as file:
        found_shape, is_fortran, found = _header(file, name)
        expected = dtypes.to_numpy(dtype)
        if found.hasobject:
            raise InputError(
                f"input {name!r} holds Python objects, which are never loaded",
                hint=f"save it as an array of {dtype}",
            )
        if found.newbyteorder("=") != expected and not _is_stored_as(found, expected):
            raise InputError(
                f"input {name!r} is {found.name}{list(found_shape)} but {dtype}{list(shape)} is "
                "expected",
                hint=f"convert it with .astype({dtype!r})",
            )
        if not _fits(found_shape, shape):
            raise InputError(
                f"input {name!r} has the shape {list(found_shape)} but {list(shape)} is expected"
            )
        wanted = prod(found_shape) * expected.itemsize
        data = file.read(wanted + 1)
    if len(data) != wanted:
        raise InputError(f"input {name!r} has {len(data)} bytes of data, not {wanted}")
    flat = np.frombuffer(data, found).astype(found.newbyteorder("="), copy=False).view(expected)
    return array(np.reshape(flat, found_shape, order="F" if is_fortran else "C"))


def _is_stored_as(found: np.dtype, expected: np.dtype) -> bool:
    """True for the raw bytes NumPy writes for types it does not know, such as bfloat16."""
    return expected.kind == "V" and found.kind == "V" and found.itemsize == expected.itemsize


def _header(file: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise InputError(f"input {name!r} has an array format of version {version}")
    return readers[version](file, max_header_size=_MAX_HEADER)
