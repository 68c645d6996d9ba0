# SPDX-License-Identifier: Apache-2.0
"""Functions in models: attributes passed in, inputs left out, and bodies that ONNX itself gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from treadle.errors import ModelError
from treadle.frontend.onnx.resolve import Expansion, domain_of
from treadle.frontend.onnx.tensors import DTYPES
from treadle.graph.nodes import Node, Tuple
from treadle.graph.types import Dim, TensorType


def attributes_of(
    proto: onnx.NodeProto, outer: Mapping[str, onnx.AttributeProto] | None
) -> dict[str, onnx.AttributeProto]:
    """Return the attributes of a node; in a function body those of the call are filled in."""
    found: dict[str, onnx.AttributeProto] = {}
    for a in proto.attribute:
        if a.name in found:
            raise ModelError(f"the attribute {a.name!r} is given twice")
        if not a.ref_attr_name:
            found[a.name] = a
        elif outer is None:
            raise ModelError(f"the attribute {a.name!r} refers to a function outside of one")
        elif a.ref_attr_name in outer:
            copy = onnx.AttributeProto()
            copy.CopyFrom(outer[a.ref_attr_name])
            copy.name = a.name
            found[a.name] = copy
    return found


def without_absent(
    function: onnx.FunctionProto, given: int, inputs: Sequence[Node | None]
) -> Sequence[onnx.NodeProto]:
    """Return the body with inputs that are not given replaced by the empty name."""
    absent = {n for k, n in enumerate(function.input) if k >= given or inputs[k] is None}
    if not absent:
        return list(function.node)
    nodes = []
    for node in function.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for k, name in enumerate(copy.input):
            if name in absent:
                copy.input[k] = ""
        nodes.append(copy)
    return nodes


def with_all_attributes(
    meaning: Expansion,
    proto: onnx.NodeProto,
    outer: Mapping[str, onnx.AttributeProto] | None,
) -> onnx.NodeProto:
    """Return a node with its attributes resolved and the defaults of its schema written out."""
    given = attributes_of(proto, outer)
    defaults = {
        name: a.default_value
        for name, a in meaning.schema.attributes.items()
        if a.default_value.name and name not in given
    }
    full = onnx.NodeProto()
    full.CopyFrom(proto)
    del full.attribute[:]
    full.attribute.extend([*given.values(), *defaults.values()])
    return full


def expand(
    meaning: Expansion, proto: onnx.NodeProto, inputs: Sequence[Node | None]
) -> onnx.FunctionProto:
    """Return the body ONNX gives for an operator, for the types at hand."""
    schema: Any = meaning.schema  # the stubs of the onnx package leave these methods out
    function = onnx.FunctionProto()
    if schema.has_context_dependent_function:
        opset = _body_version(schema.context_dependent_function_opset_versions, meaning.opset)
        types = [_type_proto(i).SerializeToString() for i in inputs]
        body = schema.get_context_dependent_function_with_opset_version(
            opset, proto.SerializeToString(), types
        )
    else:
        opset = _body_version(schema.function_opset_versions, meaning.opset)
        body = schema.get_function_with_opset_version(opset)
    function.ParseFromString(body)
    if not function.node:
        raise ModelError(f"ONNX defines no {schema.name}-{schema.since_version} of such inputs")
    if not any(domain_of(o.domain) == "" for o in function.opset_import):
        core = opset if not schema.domain else onnx.defs.onnx_opset_version()
        function.opset_import.add(domain="", version=core)
    return function


def _body_version(versions: Sequence[int], opset: int) -> int:
    """Return the newest body an operator has in the model's opset."""
    return max((v for v in versions if v <= opset), default=opset)


def _type_proto(node: Node | None) -> onnx.TypeProto:
    if isinstance(node, Tuple):
        element = _type_proto(node.fields[0]) if node.fields else _tensor_proto("float32", None)
        return onnx.helper.make_sequence_type_proto(element)
    if node is None or not isinstance(node.type, TensorType):
        return onnx.TypeProto()
    return _tensor_proto(node.type.dtype, node.type.shape)


def _tensor_proto(dtype: str, shape: Sequence[Dim] | None) -> onnx.TypeProto:
    numbers = {name: number for number, name in DTYPES.items()}
    dims = None if shape is None else [d if isinstance(d, int) else str(d) for d in shape]
    return onnx.helper.make_tensor_type_proto(numbers[dtype], dims)
