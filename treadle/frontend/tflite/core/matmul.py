# SPDX-License-Identifier: Apache-2.0
"""Converters of products: fully connected layers and matrices."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.expr.nodes import convert
from treadle.frontend.builders.basic import converted, dims_of, element_type, reshaped, transposed
from treadle.frontend.builders.matmul import product
from treadle.frontend.tflite.model import Quantization
from treadle.frontend.tflite.node import TfliteNode, converter, in_float32
from treadle.frontend.tflite.quantized import (
    centred_tensor,
    clipped_integers,
    dequantized_tensor,
    requantized_total,
    rows_quantized,
)
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, known_sizes, normal_size, product_of
from treadle.ops import elementwise


@converter("FULLY_CONNECTED")
def fully_connected(node: TfliteNode) -> Node:
    """Convert a layer of weights [channels, features]; the data are rows of features."""
    if node.options.choice("weights_format", ("DEFAULT", "SHUFFLED")) != "DEFAULT":
        raise ModelError("shuffled weights are not supported", hint="convert the model anew")
    channels, features = known_sizes(node.dims(1)) if node.rank(1) == 2 else (0, 0)
    if not features:
        raise ModelError(f"the weights are {node.type(1)}, not [channels, features]")
    rows = reshaped(node.input(0), (_rows(node, features), features))
    made = _product(node, rows)
    if node.options.flag("keep_num_dims"):
        return reshaped(made, (*node.dims(0)[:-1], channels))
    return made


def _rows(node: TfliteNode, features: int) -> Dim:
    dims = node.dims(0)
    if dims and dims[-1] == features:
        return product_of(dims[:-1])
    return normal_size(convert(product_of(dims)) // features)


def _product(node: TfliteNode, rows: Node) -> Node:
    """Return rows [m, k] by the weights with bias and activation, as the file stores it."""
    how, weights = node.tensor(1).quantization, node.input(1)
    if node.is_quantized(0) and element_type(rows) != "int16":
        return _by_integers(node, rows)
    if not node.is_quantized(0) and how is not None and element_type(weights) == "int8":
        return node.activated(_biased(node, _hybrid(node, rows, how)))
    data = node.tensor(0).quantization if node.is_quantized(0) else None
    real = rows if data is None else dequantized_tensor(rows, data)
    floats = weights if how is None else dequantized_tensor(weights, how)
    total = product(real, transposed(converted(in_float32(floats), element_type(real)), (1, 0)))
    return node.stored(node.activated(_biased(node, total)))


def _biased(node: TfliteNode, total: Node) -> Node:
    bias = node.optional_real(2)
    if bias is None:
        return total
    return elementwise.add(total, converted(bias, element_type(total)))


def _by_integers(node: TfliteNode, rows: Node) -> Node:
    data, how = node.tensor(0).quantization, node.tensor(1).quantization
    if data is None or how is None:
        raise ModelError(f"{node.op} lacks the scale of its data or weights")
    weights = transposed(centred_tensor(node.input(1), how), (1, 0))
    total = product(centred_tensor(rows, data), weights)
    bias = node.optional(2)
    if bias is not None:
        total = elementwise.add(total, converted(bias, "int32"))
    scales = data.scales[0].astype("float64") * how.scales
    result, dtype = node.result().quantization, node.result().dtype
    if result is None:  # a result of floats
        wide = Constant.of(scales.astype("float32").reshape(-1 if scales.size > 1 else ()))
        return node.activated(elementwise.multiply(converted(total, "float32"), wide))
    made = requantized_total(total, scales, (-1,), result, dtype)
    return clipped_integers(made, node.activation, result, dtype)


def _hybrid(node: TfliteNode, rows: Node, how: Quantization) -> Node:
    """Return floats by 8-bit weights: each row is quantised by its own range."""
    asymmetric = node.options.flag("asymmetric_quantize_inputs")
    integers, scale = rows_quantized(rows, 1, asymmetric=asymmetric)
    weights = transposed(centred_tensor(node.input(1), how), (1, 0))
    total = converted(product(integers, weights), "float32")
    columns = Constant.of(how.scales.reshape(-1 if how.is_per_channel else ()))
    return elementwise.multiply(elementwise.multiply(total, scale), columns)


@converter("BATCH_MATMUL")
def batch_matmul(node: TfliteNode) -> Node:
    """Convert a product of stacks of matrices, of which either may be transposed."""
    a, b = (_adjoint(node, k, name) for k, name in enumerate(("adj_x", "adj_y")))
    left, right = node.tensor(0).quantization, node.tensor(1).quantization
    result = node.result().quantization
    is_small = element_type(a) in ("int8", "uint8") and element_type(b) in ("int8", "uint8")
    if left is not None and right is not None and result is not None and is_small:
        total = product(centred_tensor(a, left), centred_tensor(b, right))
        scales = left.scales[:1].astype("float64") * right.scales[:1]
        return requantized_total(total, scales, (), result, node.result().dtype)
    real = [x if how is None else dequantized_tensor(x, how) for x, how in ((a, left), (b, right))]
    return node.stored(product(real[0], converted(real[1], element_type(real[0]))))


def _adjoint(node: TfliteNode, index: int, option: str) -> Node:
    x = node.input(index)
    ndim = len(dims_of(x))
    if ndim < 2:
        raise ModelError(f"{node.op} takes matrices, not {x.type}")
    if not node.options.flag(option):
        return x
    return transposed(x, (*range(ndim - 2), ndim - 1, ndim - 2))
