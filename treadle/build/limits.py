# SPDX-License-Identifier: Apache-2.0
"""What a compiled model can hold: checked before any work, so that what is compiled also runs."""

from __future__ import annotations

from collections.abc import Iterator

from treadle.errors import ModelError
from treadle.graph.nodes import Module, Node, topological
from treadle.graph.text import functions_of
from treadle.graph.types import TensorType, TupleType, Type

LARGEST_VALUE = 1 << 40
"""Bytes of one value whose sizes are known: 1 TiB, more than a machine gives to one tensor."""

MOST_DIMENSIONS = 32
"""Of a value: TD_MAX_NDIM of the runtime."""

LONGEST_NAME = 4096
"""Bytes of the name of an input or output, in UTF-8."""


def check_limits(module: Module) -> None:
    """Raise ModelError where a model has a value or a name that nothing could run."""
    for function in functions_of(module.main):
        for node in (*function.params, *topological([function.body])):
            for type_ in _tensors(node.type):
                _check_value(module, node, type_)
    names = [*(p.name for p in module.main.params), *module.output_names]
    for name in names:
        length = len(name.encode("utf-8", "surrogatepass"))
        if length > LONGEST_NAME:
            raise ModelError(
                f"the name of an input or output has {length} bytes; {LONGEST_NAME} are possible",
                at=f"{module.name}, {name[:40]}…",
                hint="give it a shorter name",
            )


def _tensors(type_: Type) -> Iterator[TensorType]:
    if isinstance(type_, TupleType):
        for field in type_.fields:
            yield from _tensors(field)
    else:
        yield type_


def _check_value(module: Module, node: Node, type_: TensorType) -> None:
    at = f"{module.name}, {node.origin or getattr(node, 'name', '') or 'a result'}"
    if type_.ndim > MOST_DIMENSIONS:
        raise ModelError(
            f"a value has {type_.ndim} dimensions; {MOST_DIMENSIONS} are possible",
            at=at,
            hint="join dimensions of it with a Reshape",
        )
    if type_.is_static and type_.nbytes > LARGEST_VALUE:
        raise ModelError(
            f"a value of type {type_} fits in no memory: it has {type_.nbytes} bytes, "
            f"at most {LARGEST_VALUE} (1 TiB) are possible",
            at=at,
            hint="check the sizes of the inputs",
        )
