# SPDX-License-Identifier: Apache-2.0
"""Converters of activations with parameters, softmax and normalisations."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.frontend.builders.basic import dims_of, scalar_like
from treadle.frontend.builders.layout import channels_first, channels_last, in_one_layout
from treadle.frontend.builders.matmul import scaled
from treadle.frontend.tflite.node import TfliteNode, converter
from treadle.frontend.tflite.pointwise import leaky_integers, prelu_integers
from treadle.frontend.tflite.softmax import softmax_of_integers
from treadle.graph.nodes import Node
from treadle.ops import activation, elementwise, norm
from treadle.ops import reduce as reductions


@converter("SOFTMAX")
def softmax(node: TfliteNode) -> Node:
    """Convert a softmax over the last axis of numbers times beta."""
    beta, scale = node.options.number("beta"), _short_scale(node)
    if scale is not None and beta > 0:
        return softmax_of_integers(node.input(0), scale, beta)
    x = scaled(node.real(0), beta)
    return node.stored(norm.softmax(x, axis=_last(x, node)))


def _short_scale(node: TfliteNode) -> float | None:
    """Return the scale of 16-bit data whose softmax is stored in steps of 2**-15, else None."""
    given, result = node.tensor(0), node.result()
    if given.quantization is None or result.quantization is None or not node.rank(0):
        return None
    is_short = given.dtype == result.dtype == "int16"
    has_points = given.quantization.zero_points.any() or result.quantization.zero_points.any()
    scale, made = float(given.quantization.scales[0]), float(result.quantization.scales[0])
    is_usual = abs(made * 2.0**15 - 1) < 1e-3 and 0 < scale <= 1
    return scale if is_short and is_usual and not has_points else None


@converter("LOG_SOFTMAX")
def log_softmax(node: TfliteNode) -> Node:
    """Convert the logarithm of a softmax over the last axis."""
    x = node.real(0)
    return node.stored(norm.log_softmax(x, axis=_last(x, node)))


def _last(x: Node, node: TfliteNode) -> int:
    if not dims_of(x):
        raise ModelError(f"{node.op} of a scalar is not defined")
    return len(dims_of(x)) - 1


@converter("LEAKY_RELU")
def leaky_relu(node: TfliteNode) -> Node:
    """Convert x where it is above 0, alpha times it below."""
    integers = leaky_integers(node)
    if integers is not None:
        return integers
    alpha = node.options.number("alpha")
    made = in_one_layout(lambda x: activation.leaky_relu(x, alpha=alpha), node.real(0))
    return node.stored(made)


@converter("PRELU")
def prelu(node: TfliteNode) -> Node:
    """Convert x where it is above 0, a slope times it below; slopes broadcast."""
    integers = prelu_integers(node)
    if integers is not None:
        return integers

    def compute(x: Node, slope: Node) -> Node:
        zero = scalar_like(0.0, x)
        below = elementwise.multiply(elementwise.minimum(x, zero), slope)
        return elementwise.add(elementwise.maximum(x, zero), below)

    return node.stored(in_one_layout(compute, node.real(0), node.real(1)))


@converter("ELU")
def elu(node: TfliteNode) -> Node:
    """Convert x where it is above 0, exp(x) - 1 below."""
    return node.stored(in_one_layout(lambda x: activation.elu(x, alpha=1.0), node.real(0)))


@converter("HARD_SWISH")
def hard_swish(node: TfliteNode) -> Node:
    """Convert x * relu6(x + 3) / 6."""
    return node.stored(in_one_layout(activation.hard_swish, node.real(0)))


@converter("GELU")
def gelu(node: TfliteNode) -> Node:
    """Convert x times the normal distribution's function, or its approximation by tanh."""
    way = "tanh" if node.options.flag("approximate") else "none"
    made = in_one_layout(lambda x: activation.gelu(x, approximate=way), node.real(0))
    return node.stored(made)


@converter("L2_NORMALIZATION")
def l2_normalization(node: TfliteNode) -> Node:
    """Convert rows divided by their length, which is at least 1e-6."""
    x = node.real(0)
    squares = elementwise.multiply(x, x)
    total = reductions.sum_(squares, axes=(_last(x, node),), keepdims=True)
    length = elementwise.maximum(elementwise.sqrt(total), scalar_like(1e-6, x))
    return node.stored(node.activated(elementwise.divide(x, length)))


@converter("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(node: TfliteNode) -> Node:
    """Convert a division by a power of the squares of neighbouring channels."""
    if node.rank(0) != 4:
        raise ModelError(f"{node.op} takes images [n, h, w, c], not {node.type(0)}")
    size = 2 * node.options.integer("radius") + 1
    made = norm.lrn(
        channels_first(node.real(0)),
        size=size,
        alpha=node.options.number("alpha") * size,
        beta=node.options.number("beta"),
        bias=node.options.number("bias"),
    )
    return channels_last(made)
