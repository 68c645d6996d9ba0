# SPDX-License-Identifier: Apache-2.0
"""Makes the networks of `architectures` as torch modules, and exports them to ONNX."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import torch
from torch import Tensor, nn

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

OPSET = 18
"""The lowest opset that torch's exporter writes without a conversion."""


class ResidualBlock(nn.Module):
    """The sum of two branches; see `architectures.Residual`."""

    def __init__(self, layer: Residual) -> None:
        super().__init__()
        self.before = sequential(layer.before)
        self.body = sequential(layer.body)
        self.shortcut = sequential(layer.shortcut) if layer.shortcut else None

    def forward(self, x: Tensor) -> Tensor:
        """Return body(before(x)) plus the shortcut."""
        before = self.before(x)
        shortcut = x if self.shortcut is None else self.shortcut(before)
        total: Tensor = self.body(before) + shortcut
        return total


def sequential(layers: tuple[Layer, ...]) -> nn.Sequential:
    """Return the layers as one module, not yet with their weights."""
    return nn.Sequential(*map(_module, layers))


def _module(layer: Layer) -> nn.Module:
    if isinstance(layer, Conv):
        return nn.Conv2d(
            layer.inputs,
            layer.outputs,
            layer.kernel,
            layer.stride,
            layer.padding,
            groups=layer.groups,
            bias=False,
        )
    if isinstance(layer, Norm):
        return nn.BatchNorm2d(layer.channels)
    if isinstance(layer, Activation):
        return nn.ReLU() if layer.kind == "relu" else nn.ReLU6()
    if isinstance(layer, MaxPool):
        return nn.MaxPool2d(layer.kernel, layer.stride, layer.kernel // 2)
    if isinstance(layer, GlobalPool):
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    if isinstance(layer, Dense):
        return nn.Linear(layer.inputs, layer.outputs)
    return ResidualBlock(layer)


def network(name: str) -> nn.Sequential:
    """Return the network `name` with its weights, in evaluation mode."""
    module = sequential(ARCHITECTURES[name])
    roles = dict(_roles(ARCHITECTURES[name], ""))
    state = module.state_dict()
    with torch.no_grad():
        for parameter, role in roles.items():
            target = state[parameter]
            target.copy_(torch.from_numpy(draw(name, parameter, tuple(target.shape), role)))
    return module.eval()


def _roles(layers: tuple[Layer, ...], path: str) -> Iterator[tuple[str, Role]]:
    for index, layer in enumerate(layers):
        here = f"{path}{index}"
        if isinstance(layer, Conv):
            yield f"{here}.weight", "filter"
        elif isinstance(layer, Norm):
            yield f"{here}.weight", "branch_scale" if layer.is_damped else "norm_scale"
            yield f"{here}.bias", "norm_shift"
            yield f"{here}.running_mean", "norm_mean"
            yield f"{here}.running_var", "norm_variance"
        elif isinstance(layer, Dense):
            yield f"{here}.weight", "dense"
            yield f"{here}.bias", "bias"
        elif isinstance(layer, Residual):
            yield from _roles(layer.before, f"{here}.before.")
            yield from _roles(layer.body, f"{here}.body.")
            yield from _roles(layer.shortcut, f"{here}.shortcut.")


def build(name: str, opset: int | None = None) -> onnx.ModelProto:
    """Return the network `name` as torch exports it, with input "image" and output "logits"."""
    program = torch.onnx.export(
        network(name),
        (torch.zeros(INPUT_SHAPE),),
        input_names=["image"],
        output_names=["logits"],
        opset_version=opset or OPSET,
        dynamo=True,
        verbose=False,
    )
    if program is None:
        raise RuntimeError(f"torch.onnx.export gave no program for {name}")
    model: onnx.ModelProto = program.model_proto
    _drop_traces(model)
    return model


def _drop_traces(model: onnx.ModelProto) -> None:
    """Remove the exporter's notes: they hold stack traces with paths of this machine."""
    graph = model.graph
    values = (*graph.input, *graph.output, *graph.value_info)
    for item in (model, graph, *graph.node, *graph.initializer, *values):
        del item.metadata_props[:]
