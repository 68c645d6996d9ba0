# SPDX-License-Identifier: Apache-2.0
"""Converters of the operators that onnxruntime's optimiser puts into transformers.

Their meaning is that of onnxruntime's CPU kernels (domain com.microsoft).
"""

from __future__ import annotations

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.builders.attention import rotated
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    counted,
    dims_of,
    in_float32,
    known_width,
    reshaped,
    scalar_like,
    transposed,
)
from treadle.frontend.builders.movement import taken
from treadle.frontend.builders.norm import centred_and_scaled, fitted, scaled_by_rms
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Constant, Node
from treadle.ops import activation, elementwise, matmul
from treadle.ops import reduce as reductions

DOMAIN = "com.microsoft"


@converter("Gelu", since=(1,), domain=DOMAIN)
def gelu(node: OnnxNode) -> Node:
    """Convert the exact Gaussian error linear unit."""
    return activation.gelu(node.input(0))


@converter("BiasGelu", since=(1,), domain=DOMAIN)
def bias_gelu(node: OnnxNode) -> Node:
    """Convert the exact Gaussian error linear unit of a sum."""
    return activation.gelu(_plus(node.input(0), node.input(1)))


@converter("FastGelu", since=(1,), domain=DOMAIN)
def fast_gelu(node: OnnxNode) -> Node:
    """Convert the Gaussian error linear unit by tanh, of a sum where a bias is given."""
    return activation.gelu(_plus(node.input(0), node.optional(1)), approximate="tanh")


@converter("QuickGelu", since=(1,), domain=DOMAIN)
def quick_gelu(node: OnnxNode) -> Node:
    """Convert x * sigmoid(alpha * x)."""
    x = node.input(0)
    inner = elementwise.multiply(x, scalar_like(node.number("alpha", 1.702), x))
    return elementwise.multiply(x, elementwise.sigmoid(inner))


@converter("FusedMatMul", since=(1,), domain=DOMAIN)
def fused_product(node: OnnxNode) -> Node:
    """Convert alpha * A' B' of stacks of matrices."""
    a = _arranged(node.input(0), node.flag("transA"), node.flag("transBatchA"))
    b = _arranged(node.input(1), node.flag("transB"), node.flag("transBatchB"))
    result: Node = matmul.matmul(a, b)
    alpha = node.number("alpha", 1.0)
    return result if alpha == 1.0 else elementwise.multiply(result, scalar_like(alpha, result))


def _arranged(x: Node, is_transposed: bool, batch_inside: bool) -> Node:
    """Return a stack of matrices; with `batch_inside` the first axis is that of the rows."""
    ndim = len(dims_of(x))
    if ndim < 2:
        raise ModelError(f"FusedMatMul of {x.type} is not supported")
    if batch_inside:
        x = transposed(x, (*range(1, ndim - 1), 0, ndim - 1))
    return transposed(x, (*range(ndim - 2), ndim - 1, ndim - 2)) if is_transposed else x


def _plus(x: Node, more: Node | None) -> Node:
    return x if more is None else elementwise.add(x, fitted(more, x))


@converter("SkipLayerNormalization", since=(1,), domain=DOMAIN)
def skip_layer_normalization(node: OnnxNode) -> list[Node]:
    """Convert a layer normalisation of input + skip + bias, and that sum."""
    total = _plus(_plus(node.input(0), node.input(1)), node.optional(4))
    epsilon = node.number("epsilon", 1e-12)
    normal, mean, inverse = _normalized(total, node.input(2), node.optional(3), epsilon)
    return [normal, mean, inverse, total]


def _normalized(
    x: Node, scale: Node, shift: Node | None, epsilon: float
) -> tuple[Node, Node, Node]:
    wide, dtype = in_float32(x)
    normal, mean, inverse = centred_and_scaled(wide, (len(dims_of(x)) - 1,), epsilon)
    return (
        _plus(elementwise.multiply(converted(normal, dtype), fitted(scale, x)), shift),
        mean,
        inverse,
    )


@converter("SkipSimplifiedLayerNormalization", since=(1,), domain=DOMAIN)
def skip_rms_normalization(node: OnnxNode) -> list[Node]:
    """Convert a division of input + skip + bias by its root mean square, and that sum."""
    total = _plus(_plus(node.input(0), node.input(1)), node.optional(3))
    last = (len(dims_of(total)) - 1,)
    normal, inverse = scaled_by_rms(total, last, node.number("epsilon", 1e-5))
    return [elementwise.multiply(normal, fitted(node.input(2), total)), inverse, inverse, total]


@converter("SimplifiedLayerNormalization", since=(1,))
@converter("SimplifiedLayerNormalization", since=(1,), domain=DOMAIN)
def rms_normalization(node: OnnxNode) -> list[Node]:
    """Convert a division by the root mean square over the last axes."""
    node.without_effect("stash_type")
    ndim = node.type(0).ndim
    axes = tuple(range(node.axis(node.integer("axis", -1), ndim), ndim))
    normal, inverse = scaled_by_rms(node.input(0), axes, node.number("epsilon", 1e-5))
    return [elementwise.multiply(normal, fitted(node.input(1), normal)), inverse]


@converter("EmbedLayerNormalization", since=(1,), domain=DOMAIN)
def embed_layer_normalization(node: OnnxNode) -> list[Node]:
    """Convert the sum of word, position and segment embeddings, normalised."""
    node.without_effect("mask_index_type")
    ids, words = node.input(0), node.input(2)
    total: Node = taken(words, ids, 0, node.op)
    batch, steps = node.dims(0)
    positions = node.optional(8) or counted(steps)
    total = elementwise.add(total, taken(node.input(3), positions, 0, node.op))
    if node.has_input(1) and node.has_input(4):
        segments = taken(node.input(4), node.input(1), 0, node.op)
        total = elementwise.add(total, segments)
    epsilon = node.number("epsilon", 1e-12)
    normal, _, _ = _normalized(total, node.input(5), node.optional(6), epsilon)
    if node.has_input(7):
        lengths: Node = reductions.sum_(converted(node.input(7), "int32"), axes=(1,))
    else:
        lengths = broadcast(Constant.of(np.zeros(1, "int32")), (batch,))
    return [normal, lengths, total]


@converter("RotaryEmbedding", since=(1,), domain=DOMAIN)
def rotary_embedding(node: OnnxNode) -> Node:
    """Convert a rotation of pairs of features by angles that follow from positions."""
    node.without_effect("is_packed_batching")
    if node.number("scale", 1.0) != 1.0:
        raise ModelError("RotaryEmbedding with a scale is not supported")
    x, cos, sin = node.input(0), node.input(2), node.input(3)
    shape = dims_of(x)
    width = node.integer("rotary_embedding_dim", 0) or 2 * known_width(cos)
    heads = _heads_apart(node, x, width)
    angles = [_at_positions(node, table, heads) for table in (cos, sin)]
    interleaved = node.flag("interleaved")
    made = rotated(heads, angles[0], angles[1], width, interleaved)
    if len(shape) == 4:
        return made
    return reshaped(transposed(made, (0, 2, 1, 3)), shape)


def _heads_apart(node: OnnxNode, x: Node, width: int) -> Node:
    """Return [batch, heads, steps, features] of an input that may have its heads side by side."""
    shape, features = dims_of(x), known_width(x)
    if len(shape) == 4:
        return x
    count = node.integer("num_heads", 0)
    size = features // count if count else width
    if len(shape) != 3 or features % size:
        raise ModelError(f"heads of {size} features do not fit {x.type}")
    return transposed(reshaped(x, (*shape[:2], features // size, size)), (0, 2, 1, 3))


def _at_positions(node: OnnxNode, table: Node, heads: Node) -> Node:
    """Return a table's rows at the positions of all steps: [batch, 1, steps, features / 2]."""
    steps = dims_of(heads)[2]
    positions = node.input(1)
    if dims_of(positions) == (1,):
        each = reshaped(counted(steps), (1, steps))
        positions = elementwise.add(converted(positions, "int64"), each)
    rows = taken(table, positions, 0, node.op)
    return reshaped(rows, (dims_of(positions)[0], 1, steps, dims_of(table)[-1]))
