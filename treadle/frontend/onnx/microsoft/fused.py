# SPDX-License-Identifier: Apache-2.0
"""Converters of operators that onnxruntime fuses with what follows them (com.microsoft)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    converted,
    cut_columns,
    dims_of,
    in_float32,
    known_width,
    per_channel,
    reshaped,
    transposed,
)
from treadle.frontend.builders.norm import centred_and_scaled, fitted
from treadle.frontend.onnx.core.conv import conv
from treadle.frontend.onnx.core.matmul import gemm
from treadle.frontend.onnx.core.vision import grid_sample
from treadle.frontend.onnx.microsoft.transformer import DOMAIN, fused_product
from treadle.frontend.onnx.node import ConvertFn, OnnxNode, converter
from treadle.graph.nodes import Node
from treadle.graph.types import known_sizes, product_of
from treadle.ops import activation as activation_ops
from treadle.ops import elementwise, norm

_Activation = Callable[[Node, Sequence[float]], Node]


def _clipped(x: Node, bounds: Sequence[float]) -> Node:
    low, high = bounds
    return elementwise.clip(x, min=low, max=high)


_ACTIVATIONS: Mapping[str, tuple[_Activation, tuple[float, ...]]] = {
    "Relu": (lambda x, p: elementwise.relu(x), ()),
    "Tanh": (lambda x, p: elementwise.tanh(x), ()),
    "Sigmoid": (lambda x, p: elementwise.sigmoid(x), ()),
    "Gelu": (lambda x, p: activation_ops.gelu(x), ()),
    "LeakyRelu": (lambda x, p: activation_ops.leaky_relu(x, alpha=p[0]), (0.01,)),
    "Elu": (lambda x, p: activation_ops.elu(x, alpha=p[0]), (1.0,)),
    "ThresholdedRelu": (lambda x, p: activation_ops.thresholded_relu(x, alpha=p[0]), (1.0,)),
    "Softplus": (lambda x, p: activation_ops.softplus(x), ()),
    "Softsign": (lambda x, p: activation_ops.softsign(x), ()),
    "HardSigmoid": (
        lambda x, p: activation_ops.hard_sigmoid(x, alpha=p[0], beta=p[1]),
        (0.2, 0.5),
    ),
    "Clip": (_clipped, (-3.4028234663852886e38, 3.4028234663852886e38)),
}
"""How to apply an activation with its parameters, and their defaults."""


def _activated(node: OnnxNode, x: Node, name: str, given: Sequence[float]) -> Node:
    if not name:
        return x
    if name not in _ACTIVATIONS:
        raise ModelError(f"the activation {name!r} of {node.op} is not supported")
    function, defaults = _ACTIVATIONS[name]
    parameters = (*given[: len(defaults)], *defaults[len(given) :])
    return function(x, parameters)


def _first(result: Node | Sequence[Node]) -> Node:
    return result[0] if isinstance(result, Sequence) else result


@converter("FusedConv", since=(1,), domain=DOMAIN)
def fused_convolution(node: OnnxNode) -> Node:
    """Convert an activation of a convolution plus another tensor."""
    made = _first(conv(replace(node, inputs=node.inputs[:3])))
    if node.has_input(3):
        made = elementwise.add(made, node.input(3))
    given = node.numbers("activation_params") or ()
    return _activated(node, made, node.text("activation", ""), given)


def _letters(node: OnnxNode) -> list[float]:
    """Return the activation's parameters where they are attributes called alpha, beta, gamma."""
    names = [f"activation_{n}" for n in ("alpha", "beta", "gamma")]
    return [node.number(n) for n in names if n in node.attributes]


@converter("FusedGemm", since=(1,), domain=DOMAIN)
def fused_gemm(node: OnnxNode) -> Node:
    """Convert an activation of alpha * A' B' + beta * C."""
    made = _first(gemm(replace(node, version=13)))
    return _activated(node, made, node.text("activation", ""), _letters(node))


@converter("FusedMatMulActivation", since=(1,), domain=DOMAIN)
def activated_product(node: OnnxNode) -> Node:
    """Convert an activation of alpha * A' B' of stacks of matrices."""
    node.without_effect("activation_axis")
    made = _first(fused_product(node))
    return _activated(node, made, node.text("activation"), _letters(node))


converter("TransposeMatMul", since=(1,), domain=DOMAIN)(fused_product)


@converter("GemmFastGelu", since=(1,), domain=DOMAIN)
def gelu_of_product(node: OnnxNode) -> Node:
    """Convert the Gaussian error linear unit by tanh of a product with a bias."""
    made = _first(fused_product(replace(node, inputs=node.inputs[:2])))
    if node.has_input(2):
        made = elementwise.add(made, fitted(node.input(2), made))
    return activation_ops.gelu(made, approximate="tanh")


@converter("BiasSoftmax", since=(1,), domain=DOMAIN)
def softmax_of_sum(node: OnnxNode) -> Node:
    """Convert a softmax of a sum over the axes from `axis` on."""
    node.without_effect("is_inner_broadcast")
    ndim = node.type(0).ndim
    axis = node.axis(node.integer("axis", 1), ndim)
    if axis != ndim - 1:
        raise ModelError(f"BiasSoftmax over the axes from {axis} on of {node.type(0)}")
    return norm.softmax(elementwise.add(node.input(0), node.input(1)), axis=axis)


@converter("BiasAdd", since=(1,), domain=DOMAIN)
def sum_of_three(node: OnnxNode) -> Node:
    """Convert x + bias + skip."""
    total = elementwise.add(node.input(0), fitted(node.input(1), node.input(0)))
    return elementwise.add(total, node.input(2))


@converter("BiasSplitGelu", since=(1,), domain=DOMAIN)
def gated_gelu(node: OnnxNode) -> Node:
    """Convert left * gelu(right) of the two halves of x + bias."""
    left, right = _halves(elementwise.add(node.input(0), fitted(node.input(1), node.input(0))))
    return elementwise.multiply(left, activation_ops.gelu(right))


def _halves(x: Node) -> tuple[Node, Node]:
    half = known_width(x) // 2
    return cut_columns(x, 0, half), cut_columns(x, half, 2 * half)


def _channels_last(convert: ConvertFn) -> ConvertFn:
    """Return a converter for data [n, ..., c] from one for data [n, c, ...]."""

    def convert_transposed(node: OnnxNode) -> Node:
        ndim = node.type(0).ndim
        order = (0, ndim - 1, *range(1, ndim - 1))
        x = transposed(node.input(0), order)
        made = _first(convert(replace(node, inputs=(x, *node.inputs[1:]))))
        return transposed(made, (0, *range(2, ndim), 1))

    return convert_transposed


@converter("NhwcConv", since=(1,), domain=DOMAIN)
def conv_channels_last(node: OnnxNode) -> Node:
    """Convert a convolution of data and weights with the channels in last place."""
    ndim = node.type(1).ndim
    weights = transposed(node.input(1), (0, ndim - 1, *range(1, ndim - 1)))
    inner = replace(node, inputs=(node.input(0), weights, *node.inputs[2:]))
    return _first(_channels_last(conv)(inner))


@converter("GridSample", since=(1,), domain=DOMAIN)
def sampled_grid(node: OnnxNode) -> Node:
    """Convert a sampling of an image at the points of a grid, as ONNX has it since opset 16."""
    return _first(grid_sample(replace(node, version=16)))


@converter("GroupNorm", since=(1,), domain=DOMAIN)
def group_normalization(node: OnnxNode) -> Node:
    """Convert a normalisation of groups of channels, with SiLU after it where asked for."""
    shape = node.dims(0)
    last = node.flag("channels_last", True)
    groups = node.integer("groups")
    channels = known_sizes(shape[-1:] if last else shape[1:2])[0]
    if groups < 1 or channels % groups:
        raise ModelError(f"{groups} groups do not divide {channels} channels")
    order = (0, len(shape) - 1, *range(1, len(shape) - 1))
    x = transposed(node.input(0), order) if last else node.input(0)
    made = _normalized_groups(node, x, groups)
    activation = node.integer("activation")
    if activation not in (0, 1):
        raise ModelError(f"the activation of GroupNorm is {activation}, not 0 or 1")
    if activation:
        made = elementwise.multiply(made, elementwise.sigmoid(made))
    return transposed(made, (0, *range(2, len(shape)), 1)) if last else made


def _normalized_groups(node: OnnxNode, x: Node, groups: int) -> Node:
    """Return data [n, c, ...] normalised by groups and scaled by channel, in float32 between."""
    shape, (wide, dtype) = dims_of(x), in_float32(x)
    channels = known_sizes(shape[1:2])[0] // groups
    parts = reshaped(wide, (shape[0], groups, product_of((channels, *shape[2:]))))
    normal = centred_and_scaled(parts, (2,), node.number("epsilon", 1e-5))[0]
    scale, shift = (per_channel(converted(node.input(k), "float32"), x) for k in (1, 2))
    scaled = elementwise.multiply(reshaped(normal, shape), scale)
    return converted(elementwise.add(scaled, shift), dtype)
