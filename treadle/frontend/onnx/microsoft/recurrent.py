# SPDX-License-Identifier: Apache-2.0
"""Converters of the recurrent layers of onnxruntime's own domain (com.microsoft)."""

from __future__ import annotations

from dataclasses import replace

from treadle.frontend.builders.basic import transposed
from treadle.frontend.builders.quantize import dynamically_quantized_product
from treadle.frontend.builders.recurrent import Product, row_of
from treadle.frontend.onnx.core.recurrent import lstm_by_products
from treadle.frontend.onnx.microsoft.transformer import DOMAIN
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Node

_WEIGHTS, _RECURRENCE = 1, 2
_SCALES = {_WEIGHTS: 8, _RECURRENCE: 10}
"""The inputs with the scales of weights [directions, k, 4 * hidden]; zero points follow them."""


@converter("DynamicQuantizeLSTM", since=(1,), domain=DOMAIN)
def dynamically_quantized_lstm(node: OnnxNode) -> list[Node]:
    """Convert an LSTM of 8-bit weights, whose inputs and states are quantised by their ranges."""

    def product(index: int, direction: int) -> Product:
        at = _SCALES[index]
        weights, scale, zero = (row_of(node.input(k), direction, 0) for k in (index, at, at + 1))
        return lambda rows: dynamically_quantized_product(rows, weights, scale, zero)

    columns = [transposed(node.input(k), (0, 2, 1)) for k in (_WEIGHTS, _RECURRENCE)]
    plain = replace(node, inputs=(node.input(0), *columns, *node.inputs[3:8]))
    return lstm_by_products(plain, lambda d: (product(_WEIGHTS, d), product(_RECURRENCE, d)))
