# SPDX-License-Identifier: Apache-2.0
"""What callers must know of a kernel, read off its fused function or its loop nest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import cast

from treadle.build.group import function_sizes
from treadle.build.sizes import size_from_json, size_to_json
from treadle.expr.nodes import Var, int_value
from treadle.graph.nodes import Function, outputs_of
from treadle.graph.types import Dim, TensorType, Type, as_dim, tensor_type
from treadle.loop.nodes import PrimFunc
from treadle.runtime.extents import Extent, Formula
from treadle.runtime.signature import Param, Signature


def signature_of_function(name: str, function: Function, workspace: object) -> Signature:
    """Return the signature of the kernel `name` that a fused function becomes.

    `workspace` is its scratch memory in bytes, as `sizes.size_to_json` writes sizes.
    """
    sizes = function_sizes(function)
    inputs = [(p.name, tensor_type(p.type), False) for p in function.params]
    made = [t for node in outputs_of(function.body) for t in _tensor_types(node.type)]
    names = ["out"] if len(made) == 1 else [f"out{k}" for k in range(len(made))]
    outputs = [(name, type_, True) for name, type_ in zip(names, made, strict=True)]
    rows = [(n, t.dtype, t.shape, is_output) for n, t, is_output in (*inputs, *outputs)]
    return _signature(name, rows, sizes, workspace)


def _tensor_types(type_: Type) -> list[TensorType]:
    if isinstance(type_, TensorType):
        return [type_]
    return [t for field in type_.fields for t in _tensor_types(field)]


def signature_of_loops(func: PrimFunc, workspace: object) -> Signature:
    """Return the signature of a kernel given as a loop nest over shaped buffers."""
    written = {k % len(func.params) for k in func.outputs}
    rows = [
        (b.name, b.dtype, tuple(map(as_dim, b.shape)), k in written)
        for k, b in enumerate(func.params)
    ]
    return _signature(func.name, rows, func.sizes, workspace)


def _signature(
    name: str,
    rows: Sequence[tuple[str, str, Sequence[Dim], bool]],
    sizes: Sequence[Var],
    workspace: object,
) -> Signature:
    symbols = _distinct_names(sizes)
    plain = dict(zip(sizes, symbols, strict=True))
    params = tuple(
        Param(
            label,
            dtype,
            tuple(
                plain[d] if isinstance(d, Var) and d in plain else _extent(d, sizes) for d in shape
            ),
            is_output,
        )
        for label, dtype, shape, is_output in rows
    )
    scratch = _extent(size_from_json(workspace, sizes), sizes)
    return Signature(name, params, scratch, symbols)


def _distinct_names(sizes: Sequence[Var]) -> tuple[str, ...]:
    """Return the names of sizes; of several with one name all but the first get a number."""
    names: dict[str, None] = {}
    for size in sizes:
        tries = (size.name if k == 0 else f"{size.name}_{k}" for k in count())
        names[next(name for name in tries if name not in names)] = None
    return tuple(names)


def _extent(size: Dim, sizes: Sequence[Var]) -> int | Extent:
    number = int_value(size)
    if number is not None:
        return number
    return Extent(str(size), cast(Formula, size_to_json(size, sizes)))
