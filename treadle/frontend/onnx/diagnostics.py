# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a node and where: checks against ONNX's definitions, and placed errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import onnx
from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message import Message  # type: ignore[import-untyped]

from treadle.errors import ModelError
from treadle.frontend import places
from treadle.frontend.importer import origin_of
from treadle.frontend.onnx.node import OnnxNode
from treadle.graph.nodes import Node
from treadle.graph.types import TensorType

_ONNX_NAMES = {"float32": "float", "float64": "double"}
"""The element types that ONNX's definitions call otherwise."""


@contextmanager
def placed(place: str, advice: Callable[[], str] = str) -> Iterator[None]:
    """Give whatever goes wrong inside its place, and the hint of `advice` where it has none."""
    rule = "the model may break a rule of ONNX; try onnx.checker.check_model on it"
    with places.placed(lambda: place, mistake=rule, advice=advice):
        yield


def usage(schema: onnx.defs.OpSchema | None) -> str:
    """Return what an operator takes, in one line, and where ONNX describes it."""
    if schema is None:
        return "check how the model was exported"
    option = onnx.defs.OpSchema.FormalParameterOption
    marks = {option.Optional: "?", option.Variadic: "..."}
    inputs = ", ".join(i.name + marks.get(i.option, "") for i in schema.inputs)
    attributes = ", ".join(
        name + ("" if definition.required else "?")
        for name, definition in sorted(schema.attributes.items())
    )
    page = f"onnx_{schema.domain.replace('.', '')}_{schema.name}"
    return (
        f"{schema.name}-{schema.since_version} takes ({inputs})"
        + (f" with {attributes}" if attributes else "")
        + f"; see https://onnx.ai/onnx/operators/{page}.html"
    )


def check_form(
    schema: onnx.defs.OpSchema,
    attributes: Mapping[str, onnx.AttributeProto],
    inputs: Sequence[Node | None],
    proto: onnx.NodeProto,
) -> None:
    """Check a node against ONNX's definition: attribute names, number of inputs and outputs."""
    for name in attributes:
        if name not in schema.attributes:
            known = ", ".join(sorted(schema.attributes)) or "none"
            raise ModelError(
                f"{schema.name}-{schema.since_version} has no attribute {name!r}",
                hint=f"its attributes are {known}",
            )
    for name, definition in schema.attributes.items():
        if definition.required and name not in attributes:
            raise ModelError(f"{schema.name} lacks its attribute {name!r}")
    if not schema.min_input <= len(inputs) <= schema.max_input:
        few, many = schema.min_input, schema.max_input
        wanted = f"{few}" if few == many else f"{few} to {many}"
        raise ModelError(f"{schema.name} has {len(inputs)} inputs; it takes {wanted}")
    if len(proto.output) > schema.max_output:
        raise ModelError(f"{schema.name} has {len(proto.output)} outputs")


@contextmanager
def fitting(schema: onnx.defs.OpSchema | None, inputs: Sequence[Node | None]) -> Iterator[None]:
    """Say which input breaks the definition of an operator where a converter stumbles over it."""
    try:
        yield
    except (ArithmeticError, LookupError, ValueError, TypeError) as e:
        if schema is None:
            raise
        wrong = _wrong_type(schema, inputs)
        shapes = f"the inputs do not fit {schema.name}-{schema.since_version}: {e}"
        raise ModelError(wrong or shapes) from e


def _wrong_type(schema: onnx.defs.OpSchema, inputs: Sequence[Node | None]) -> str:
    """Return which input has an element type that ONNX does not allow, if one has."""
    for k, node in enumerate(inputs):
        declared = schema.inputs[min(k, len(schema.inputs) - 1)]
        found = "" if node is None or not isinstance(node.type, TensorType) else node.type.dtype
        allowed = {name.removeprefix("tensor(").rstrip(")") for name in declared.types}
        if found and _ONNX_NAMES.get(found, found) not in allowed:
            return (
                f"the input {k} ({declared.name!r}) has elements of {found}; "
                f"{schema.name}-{schema.since_version} takes {', '.join(sorted(allowed))}"
            )
    return ""


def check_complete(node: OnnxNode, results: Sequence[Node]) -> None:
    """Check that a converter read every attribute and made every output that is wanted."""
    unread = sorted(set(node.attributes) - node.read)
    if unread:
        raise ModelError(f"the attribute {unread[0]!r} of {node.op} is not supported")
    for k, name in enumerate(node.outputs):
        if name and k >= len(results):
            raise ModelError(f"the output {k} ({name!r}) of {node.op} is not supported")


def check_text(model: onnx.ModelProto) -> None:
    """Raise ModelError if a name in the model is not text (protobuf then hands out bytes)."""
    stack: list[Message] = [model]
    while stack:
        for field, value in stack.pop().ListFields():
            values = [value] if isinstance(value, (Message, str, bytes)) else value
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                stack += values
            is_text = field.type == FieldDescriptor.TYPE_STRING
            if is_text and any(isinstance(v, bytes) for v in values):
                raise ModelError(
                    f"this is not an ONNX file: its field {field.name!r} holds no text"
                )


def undefined(name: str, nodes: Sequence[onnx.NodeProto], reader: int) -> ModelError:
    """Say why node number `reader` does not find a name: computed later, a cycle, or nowhere."""
    makers = {o: k for k, n in enumerate(nodes) for o in n.output if o}
    if name not in makers:
        return ModelError(
            f"the input {name!r} is no graph input, initializer or result of a node",
            hint="the model is incomplete; check how it was exported",
        )
    if _depends_on(nodes, makers, makers[name], reader):
        return ModelError(f"the graph has a cycle: {name!r} depends on a result of this node")
    maker = nodes[makers[name]]
    return ModelError(
        f"{name!r} is used before node "
        f"{origin_of(maker.name, maker.op_type, makers[name])} computes it",
        hint="the nodes of an ONNX graph must be sorted; re-export or sort the model",
    )


def _depends_on(
    nodes: Sequence[onnx.NodeProto], makers: Mapping[str, int], start: int, goal: int
) -> bool:
    seen: set[int] = set()
    stack = [start]
    while stack:
        index = stack.pop()
        if index == goal:
            return True
        if index not in seen:
            seen.add(index)
            stack.extend(makers[i] for i in nodes[index].input if i in makers)
    return False
