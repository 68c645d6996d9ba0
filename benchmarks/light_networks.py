# SPDX-License-Identifier: Apache-2.0
"""The nine image networks inside the onnx package, with random weights in place of constant ones.

The onnx package ships them without their weights: each parameter is a ConstantOfShape node, so all
its values are equal. Here such a parameter becomes an initializer drawn by `benchmarks.weights`.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path

import onnx
from onnx import numpy_helper, version_converter

from benchmarks.weights import Role, draw

FILES = {
    "alexnet": "light_bvlc_alexnet.onnx",
    "densenet121": "light_densenet121.onnx",
    "inception_v1": "light_inception_v1.onnx",
    "inception_v2": "light_inception_v2.onnx",
    "resnet50": "light_resnet50.onnx",
    "shufflenet": "light_shufflenet.onnx",
    "squeezenet": "light_squeezenet.onnx",
    "vgg19": "light_vgg19.onnx",
    "zfnet512": "light_zfnet512.onnx",
}

_NORM_ROLES: dict[int, Role] = {
    1: "norm_scale",
    2: "norm_shift",
    3: "norm_mean",
    4: "norm_variance",
}


def build(name: str, opset: int | None = None) -> onnx.ModelProto:
    """Return network `name` with random weights, at its own opset (9) or converted to `opset`."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = onnx.load(folder / FILES[name])
    if opset is not None:
        model = version_converter.convert_version(model, opset)
    _randomise(model.graph, name)
    _drop_unused(model.graph)
    model.ir_version = max(4, model.ir_version)  # from 4 on, an initializer need not be an input
    model.producer_name = "treadle benchmarks"
    return model


def _randomise(graph: onnx.GraphProto, network: str) -> None:
    """Replace every floating-point parameter of `graph` by an initializer with drawn values."""
    shapes = _parameter_shapes(graph)
    roles = dict(_parameter_roles(graph, shapes))
    kept_nodes = [node for node in graph.node if node.output[0] not in roles]
    kept_initializers = [tensor for tensor in graph.initializer if tensor.name not in roles]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(kept_nodes)
    graph.initializer.extend(kept_initializers)
    for name, role in roles.items():
        graph.initializer.append(
            numpy_helper.from_array(draw(network, name, shapes[name], role), name)
        )


def _parameter_shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Return the shape of each floating-point initializer and ConstantOfShape output by name."""
    stored = {tensor.name: tensor for tensor in graph.initializer}
    shapes = {
        tensor.name: tuple(tensor.dims)
        for tensor in graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT
    }
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in stored:
            dims = numpy_helper.to_array(stored[node.input[0]])
            shapes[node.output[0]] = tuple(int(dim) for dim in dims)
    return shapes


def _parameter_roles(
    graph: onnx.GraphProto, parameters: Container[str]
) -> Iterator[tuple[str, Role]]:
    """Yield each parameter with the role that the node it reaches gives it.

    A parameter may pass a Reshape or an Unsqueeze on its way.
    """
    origin: dict[str, str] = {}
    added = {name for node in graph.node if node.op_type == "Sum" for name in node.input}
    for node in graph.node:
        for position, name in enumerate(node.input):
            parameter = origin.get(name, name)
            if parameter not in parameters:
                continue
            if node.op_type in ("Reshape", "Unsqueeze"):
                origin[node.output[0]] = parameter
            else:
                yield parameter, _role(node, position, node.output[0] in added)


def _role(node: onnx.NodeProto, position: int, is_added: bool) -> Role:
    if node.op_type == "BatchNormalization":
        if position == 1 and is_added:
            return "branch_scale"
        return _NORM_ROLES[position]
    if node.op_type == "Mul":
        return "norm_scale"
    if node.op_type == "Add":
        return "norm_shift"
    if node.op_type not in ("Conv", "Gemm"):
        raise ValueError(f"no role is known for input {position} of {node.op_type} {node.name!r}")
    if position == 2:
        return "bias"
    if node.op_type == "Conv":
        return "filter"
    transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
    return "dense" if transposed else "dense_transposed"


def _drop_unused(graph: onnx.GraphProto) -> None:
    """Leave only initializers that a node reads, and no initializer among the inputs."""
    read = {name for node in graph.node for name in node.input}
    stored = {tensor.name for tensor in graph.initializer}
    initializers = [tensor for tensor in graph.initializer if tensor.name in read]
    inputs = [value for value in graph.input if value.name in read and value.name not in stored]
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend(initializers)
    graph.input.extend(inputs)
