# SPDX-License-Identifier: Apache-2.0
"""Converters of products: fully connected layers and matrices."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.expr.nodes import convert
from treadle.frontend.builders.basic import converted, dims_of, element_type, reshaped, transposed
from treadle.frontend.builders.matmul import product
from treadle.frontend.tflite.fixed_point import (
    joined_total,
    requantized_by_float64,
    requantized_total,
)
from treadle.frontend.tflite.model import Quantization
from treadle.frontend.tflite.node import TfliteNode, converter, in_float32, integer_bias
from treadle.frontend.tflite.quantized import (
    centred_halves,
    centred_tensor,
    dequantized_tensor,
    product_scales,
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
    if node.is_quantized(0):
        return _by_integers(node, rows)
    if how is not None and element_type(weights) == "int8":
        return node.activated(_biased(node, _hybrid(node, rows, how)))
    floats = weights if how is None else dequantized_tensor(weights, how)
    total = product(rows, transposed(converted(in_float32(floats), element_type(rows)), (1, 0)))
    return node.activated(_biased(node, total))


def _biased(node: TfliteNode, total: Node) -> Node:
    bias = node.optional_real(2)
    if bias is None:
        return total
    return elementwise.add(total, converted(bias, element_type(total)))


def _by_integers(node: TfliteNode, rows: Node) -> Node:
    data, how = node.tensor(0).quantization, node.tensor(1).quantization
    if data is None or how is None:
        raise ModelError(f"{node.op} lacks the scale of its data or weights")
    total = _total(rows, data, transposed(centred_tensor(node.input(1), how), (1, 0)), node)
    is_old = element_type(rows) == "uint8"  # the kernel of the first files
    scales = product_scales(data, how, is_float=is_old)
    result, dtype = node.result().quantization, node.result().dtype
    if result is None:  # a result of floats
        wide = Constant.of(scales.astype("float32").reshape(-1 if scales.size > 1 else ()))
        return node.activated(elementwise.multiply(converted(total, "float32"), wide))
    if is_old:
        return requantized_total(total, scales, (-1,), result, dtype, node.activation)
    return requantized_by_float64(total, scales, result, dtype, node.activation)


def _total(rows: Node, data: Quantization, weights: Node, node: TfliteNode) -> Node:
    """Return integers by weights [k, n] with the bias: int32, or int64 where rows are int16."""
    bias = integer_bias(node, 2)
    if element_type(rows) == "int16":
        parts = [product(part, weights) for part in centred_halves(rows, data)]
        total = joined_total(*parts, is_wide=bias is None or element_type(bias) == "int64")
    else:
        total = product(centred_tensor(rows, data), weights)
    return total if bias is None else elementwise.add(total, converted(bias, element_type(total)))


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
        scales = product_scales(left, right, is_float=True)[:1]
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
