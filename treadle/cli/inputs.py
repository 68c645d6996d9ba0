# SPDX-License-Identifier: Apache-2.0
"""The inputs of a run: filled with numbers, or read from an .npz file that nobody has to trust."""

from __future__ import annotations

import argparse
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import IO

import numpy as np

from treadle import dtype as dtypes
from treadle.build.loaded import Runnable, Size
from treadle.cli.named import check_readable, given_shapes
from treadle.cli.pictures import Spec, picture_input
from treadle.errors import InputError, UsageError
from treadle.runtime.array import NDArray, array
from treadle.runtime.fill import FillMode, filled

_SEED = 0
_EXAMPLE_SIZE = 32
_EXAMPLE_SIZES = ((1, _EXAMPLE_SIZE), (3, 2 * _EXAMPLE_SIZE))
"""First and other open sizes to try a model at: multiples of what networks divide images by."""
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


def given_inputs(
    arguments: argparse.Namespace, model: Runnable, mode: FillMode | None = None
) -> dict[str, NDArray]:
    """Return what --inputs names, else arrays filled with numbers, of --input-shapes where open.

    Raises: InputError when they do not fit. UsageError when two options say what the inputs are.
    """
    shapes = given_shapes(arguments)
    preset: str | None = getattr(arguments, "preset", None)
    if preset is not None:
        return _picture(arguments, model, mode, preset)
    if arguments.inputs is None:
        return filled_inputs(model, mode or "random", shapes)
    if mode is not None:
        raise UsageError(
            "--fill-mode fills inputs that --inputs gives", hint="leave one of them out"
        )
    inputs = read_npz(arguments.inputs, model.inputs)
    for name, shape in (shapes or {}).items():
        if name in inputs and inputs[name].shape != shape:
            raise UsageError(
                f"--input-shapes says {name}:{list(shape)}, the array in --inputs is "
                f"{list(inputs[name].shape)}",
                hint="leave one of them out",
            )
    return inputs


def _picture(
    arguments: argparse.Namespace, model: Runnable, mode: FillMode | None, preset: str
) -> dict[str, NDArray]:
    """Return the picture that --inputs names, as the preset says."""
    if arguments.inputs is None or mode is not None:
        raise UsageError(
            "--preset says how the picture in --inputs becomes an input",
            hint=f"--preset {preset} --inputs picture.png, without --fill-mode",
        )
    return picture_input(arguments.inputs, model.inputs, preset)


def filled_inputs(
    model: Runnable, mode: FillMode, shapes: Mapping[str, Sequence[int]] | None = None
) -> dict[str, NDArray]:
    """Return arrays for every input of `model`, full of zeros, ones or seeded random numbers.

    Random floats are normally distributed; random integers are 0 or 1, which every index is.
    `shapes` gives sizes to inputs that leave them open; inputs that share an open size get the
    same.

    Raises: InputError when a size stays open or does not fit.
    """
    random = np.random.default_rng(_SEED)
    settled = _settled(model.input_sizes(), shapes or {})
    return {name: array(filled(mode, dt, settled[name], random)) for name, dt, _ in model.inputs}


def chosen_shapes(model: Runnable) -> list[dict[str, tuple[int, ...]]]:
    """Return shapes of the inputs with open sizes at which a model can be tried: two sets of them.

    One empty set where no size is open. Inputs that share an open size get the same.
    """
    declared = model.input_sizes()
    if not any(isinstance(size, str) for sizes in declared.values() for size in sizes):
        return [{}]
    return [_chosen(declared, first, other) for first, other in _EXAMPLE_SIZES]


def _chosen(
    declared: Mapping[str, Sequence[Size]], first: int, other: int
) -> dict[str, tuple[int, ...]]:
    """Give open sizes numbers: `first` to first dimensions, `other` to all others."""
    known: dict[str, int] = {}
    for sizes in declared.values():
        for axis, size in enumerate(sizes):
            if isinstance(size, str):
                known.setdefault(size, other if axis else first)
    return {
        name: tuple(known[s] if isinstance(s, str) else s for s in sizes)
        for name, sizes in declared.items()
        if any(isinstance(s, str) for s in sizes)
    }


def shapes_text(shapes: Mapping[str, Sequence[int]]) -> str:
    """Return shapes as --input-shapes takes them."""
    return " ".join(f"{name}:[{','.join(map(str, shape))}]" for name, shape in shapes.items())


def _settled(
    declared: Mapping[str, Sequence[Size]], shapes: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every input, with what `shapes` says about the sizes they share."""
    known: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in declared:
            hint = f"the model's inputs are {', '.join(declared) or 'none'}"
            raise InputError(f"the model has no input {name!r}", hint=hint)
        _bind(name, declared[name], shape, known)
    unknown = [
        name
        for name, sizes in declared.items()
        if any(isinstance(s, str) and s not in known for s in sizes)
    ]
    if unknown:
        raise _open_error(declared, unknown, known)
    return {
        name: tuple(known[s] if isinstance(s, str) else s for s in sizes)
        for name, sizes in declared.items()
    }


def _bind(name: str, declared: Sequence[Size], shape: Sequence[int], known: dict[str, int]) -> None:
    """Note which sizes a shape gives.

    Raises: InputError when it does not fit the input.
    """
    fits = len(shape) == len(declared)
    for wanted, size in zip(declared, shape, strict=False):
        fits &= (known.setdefault(wanted, size) if isinstance(wanted, str) else wanted) == size
    if not fits:
        settled = [f"{s} = {known[s]}" for s in declared if isinstance(s, str) and s in known]
        raise InputError(
            f"input {name!r} is {_shape_text(declared)} in the model, not {_shape_text(shape)}",
            hint=f"the shapes given say {', '.join(settled)}"
            if settled
            else "its sizes are fixed: compile it for others by --input-shapes, or by --dynamic",
        )


def _open_error(
    declared: Mapping[str, Sequence[Size]], unknown: Sequence[str], known: Mapping[str, int]
) -> InputError:
    seen = dict(known)
    rows, examples = [], []
    for name in unknown:
        rows.append(f"  {name}: {_shape_text(declared[name])}")
        if all(s in seen for s in declared[name] if isinstance(s, str)):
            continue
        for axis, size in enumerate(declared[name]):
            if isinstance(size, str):
                seen.setdefault(size, 1 if axis == 0 else _EXAMPLE_SIZE)
        sizes = [seen[s] if isinstance(s, str) else s for s in declared[name]]
        examples.append(f"{name}:[{','.join(map(str, sizes))}]")
    return InputError(
        "each run decides sizes of these inputs:\n" + "\n".join(rows),
        hint=f'give those of this run, for example --input-shapes "{" ".join(examples)}"',
    )


def _shape_text(shape: Sequence[Size]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _fits(found: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """True where sizes are those of a shape, which has -1 for any."""
    return len(found) == len(shape) and all(w in (s, -1) for s, w in zip(found, shape, strict=True))


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


def _check_names(members: Mapping[str, object], wanted: list[Spec]) -> None:
    known = {name for name, _, _ in wanted}
    missing = [f"{n}: {dt}{list(shape)}" for n, dt, shape in wanted if n not in members]
    unknown = [name for name in members if name not in known]
    if unknown:
        raise InputError(
            f"the model has no input {unknown[0]!r}",
            hint=f"its inputs are {', '.join(sorted(known)) or 'none'}",
        )
    if missing:
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
