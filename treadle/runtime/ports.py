# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs of a model by place or name, alike for models here and on a device.

`index` is the place of every input, or output, by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.errors import InputError, UsageError, name_hint
from treadle.runtime.array import ArrayLike, NDArray
from treadle.runtime.native_executor import TensorInfo


def input_name(key: str | int, index: Mapping[str, int]) -> str:
    """Return the name of an input, given its place or its name. Raises: InputError."""
    if isinstance(key, int):
        if not 0 <= key < len(index):
            raise InputError(f"input {key} does not exist; the model has {len(index)}")
        return list(index)[key]
    if key in index:
        return key
    names = ", ".join(index) or "none"
    hint = name_hint(key, index, f"the model's inputs are {names}")
    raise InputError(f"the model has no input {key!r}", hint=hint)


def inputs_by_name(
    args: Sequence[ArrayLike], named: Mapping[str, ArrayLike], index: Mapping[str, int]
) -> dict[str, ArrayLike]:
    """Return inputs that are given in order and by name, by name. Raises: InputError."""
    if len(args) > len(index):
        raise InputError(f"the model has {len(index)} inputs but is given {len(args)}")
    by_name = dict(zip(index, args, strict=False))
    twice = sorted(by_name.keys() & named.keys())
    if twice:
        raise InputError(f"input {twice[0]!r} is given twice, in order and by name")
    return {**by_name, **named}


def output_of(
    results: Sequence[NDArray] | None, key: str | int, index: Mapping[str, int]
) -> NDArray:
    """Return an output of the last run, whose `results` are None before any. Raises: UsageError."""
    if results is None:
        raise UsageError("the model has not run yet", hint="call run() first")
    place = index.get(key, -1) if isinstance(key, str) else key
    if not 0 <= place < len(results):
        names = ", ".join(index)
        raise UsageError(f"the model has no output {key!r}", hint=f"its outputs are {names}")
    return results[place]


def type_text(info: TensorInfo) -> str:
    """Return the type of a tensor of a model, `?` for sizes that a run decides."""
    sizes = ("?" if size < 0 else str(size) for size in info.shape)
    return f"{info.dtype}[{', '.join(sizes)}]"


def dynamic_hint(info: TensorInfo) -> str:
    """Return what the question marks of an expected shape mean, nothing where there are none."""
    return "? is a size that the model leaves open: any number" if -1 in info.shape else ""


def fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """True when every size is the wanted one; -1 stands for any."""
    return len(shape) == len(wanted) and all(
        w in (s, -1) for s, w in zip(shape, wanted, strict=True)
    )
