# SPDX-License-Identifier: Apache-2.0
"""Makes the networks of `architectures` as ONNX models directly, without torch."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper, numpy_helper, version_converter

from benchmarks.architectures import (
    ARCHITECTURES,
    INPUT_SHAPE,
    Activation,
    Conv,
    Dense,
    GlobalPool,
    Layer,
    MaxPool,
    Norm,
    Residual,
)
from benchmarks.weights import Role, draw

OPSET = 17


def build(name: str, opset: int | None = None) -> onnx.ModelProto:
    """Return the network `name` with input "image" and output "logits"."""
    writer = _Writer(name)
    writer.sequence(ARCHITECTURES[name], "image", "")
    writer.nodes[-1].output[0] = "logits"
    graph = helper.make_graph(
        writer.nodes,
        name,
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, INPUT_SHAPE)],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, (INPUT_SHAPE[0], 1000))],
        writer.parameters,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="treadle benchmarks"
    )
    model.ir_version = 8  # what goes with opset 17
    return model if opset in (None, OPSET) else version_converter.convert_version(model, opset)


class _Writer:
    """Nodes and parameters so far; each layer's method returns the name of its output."""

    def __init__(self, network: str) -> None:
        self.network = network
        self.nodes: list[onnx.NodeProto] = []
        self.parameters: list[TensorProto] = []

    def sequence(self, layers: tuple[Layer, ...], source: str, path: str) -> str:
        for index, layer in enumerate(layers):
            source = self.layer(layer, source, f"{path}{index}")
        return source

    def layer(self, layer: Layer, source: str, path: str) -> str:
        if isinstance(layer, Conv):
            return self.conv(layer, source, path)
        if isinstance(layer, Norm):
            return self.norm(layer, source, path)
        if isinstance(layer, Activation):
            return self.activation(layer, source, path)
        if isinstance(layer, MaxPool):
            return self.node(
                "MaxPool",
                [source],
                path,
                kernel_shape=[layer.kernel] * 2,
                strides=[layer.stride] * 2,
                pads=[layer.kernel // 2] * 4,
            )
        if isinstance(layer, GlobalPool):
            mean = self.node("GlobalAveragePool", [source], f"{path}.mean")
            return self.node("Flatten", [mean], path)
        if isinstance(layer, Dense):
            return self.dense(layer, source, path)
        return self.residual(layer, source, path)

    def conv(self, layer: Conv, source: str, path: str) -> str:
        weight = self.parameter(f"{path}.weight", layer.weight_shape, "filter")
        return self.node(
            "Conv",
            [source, weight],
            path,
            kernel_shape=[layer.kernel] * 2,
            strides=[layer.stride] * 2,
            pads=[layer.padding] * 4,
            group=layer.groups,
        )

    def norm(self, layer: Norm, source: str, path: str) -> str:
        scale: Role = "branch_scale" if layer.is_damped else "norm_scale"
        shape = (layer.channels,)
        statistics = [
            self.parameter(f"{path}.weight", shape, scale),
            self.parameter(f"{path}.bias", shape, "norm_shift"),
            self.parameter(f"{path}.running_mean", shape, "norm_mean"),
            self.parameter(f"{path}.running_var", shape, "norm_variance"),
        ]
        return self.node("BatchNormalization", [source, *statistics], path, epsilon=1e-5)

    def activation(self, layer: Activation, source: str, path: str) -> str:
        if layer.kind == "relu":
            return self.node("Relu", [source], path)
        bounds = [self.scalar(f"{path}.min", 0.0), self.scalar(f"{path}.max", 6.0)]
        return self.node("Clip", [source, *bounds], path)

    def dense(self, layer: Dense, source: str, path: str) -> str:
        weight = self.parameter(f"{path}.weight", (layer.outputs, layer.inputs), "dense")
        bias = self.parameter(f"{path}.bias", (layer.outputs,), "bias")
        return self.node("Gemm", [source, weight, bias], path, transB=1)

    def residual(self, layer: Residual, source: str, path: str) -> str:
        before = self.sequence(layer.before, source, f"{path}.before.")
        body = self.sequence(layer.body, before, f"{path}.body.")
        shortcut = source
        if layer.shortcut:
            shortcut = self.sequence(layer.shortcut, before, f"{path}.shortcut.")
        return self.node("Add", [body, shortcut], path)

    def node(
        self, operator: str, inputs: list[str], path: str, **attributes: int | float | list[int]
    ) -> str:
        node = helper.make_node(operator, inputs, [path], name=path)
        node.attribute.extend(helper.make_attribute(key, attributes[key]) for key in attributes)
        self.nodes.append(node)
        return path

    def parameter(self, name: str, shape: tuple[int, ...], role: Role) -> str:
        self.parameters.append(numpy_helper.from_array(draw(self.network, name, shape, role), name))
        return name

    def scalar(self, name: str, value: float) -> str:
        self.parameters.append(helper.make_tensor(name, TensorProto.FLOAT, [], [value]))
        return name
