# SPDX-License-Identifier: Apache-2.0
"""Small damages to ONNX models: what a broken exporter or an editing user makes of them."""

from __future__ import annotations

import random
from collections.abc import Callable

import onnx
from onnx import AttributeProto, TensorProto

_TYPES = (
    TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT8,
    TensorProto.UINT8, TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT8E4M3FN,
    TensorProto.INT4, TensorProto.STRING, TensorProto.COMPLEX64,
)  # fmt: skip


def _no_attribute(graph: onnx.GraphProto, node: onnx.NodeProto, rng: random.Random) -> bool:
    if node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]
    return bool(node.attribute)


def _other_attribute(graph: onnx.GraphProto, node: onnx.NodeProto, rng: random.Random) -> bool:
    if not node.attribute:
        return False
    chosen = rng.choice(node.attribute)
    if chosen.type == AttributeProto.INT:
        chosen.i = rng.choice([-9, -1, 0, 1, 2, 7, 1000])
    elif chosen.type == AttributeProto.INTS:
        chosen.ints.append(rng.choice([-1, 0, 5, 100]))
    elif chosen.type == AttributeProto.FLOAT:
        chosen.f = rng.choice([0.0, -1.0, float("nan"), 1e30])
    elif chosen.type == AttributeProto.STRING:
        chosen.s = b"wrong"
    return True


def _no_input(graph: onnx.GraphProto, node: onnx.NodeProto, rng: random.Random) -> bool:
    if not node.input:
        return False
    if rng.random() < 0.5:
        del node.input[-1]
    else:
        node.input[rng.randrange(len(node.input))] = ""
    return True


def _swapped(graph: onnx.GraphProto, node: onnx.NodeProto, rng: random.Random) -> bool:
    if len(node.input) < 2:
        return False
    a, b = rng.sample(range(len(node.input)), 2)
    node.input[a], node.input[b] = node.input[b], node.input[a]
    return True


def _tensors(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    return [i for i in graph.input if i.type.HasField("tensor_type")]


def _other_shape(graph: onnx.GraphProto, node: onnx.NodeProto, rng: random.Random) -> bool:
    tensors = _tensors(graph)
    if not tensors:
        return False
    dims = rng.choice(tensors).type.tensor_type.shape.dim
    if len(dims) and rng.random() < 0.6:
        rng.choice(dims).dim_value = rng.choice([0, 1, 2, 3, 5, 7])
    elif len(dims) and rng.random() < 0.5:
        del dims[-1]
    else:
        dims.add().dim_value = rng.choice([1, 2, 3])
    return True


def _other_type(graph: onnx.GraphProto, node: onnx.NodeProto, rng: random.Random) -> bool:
    tensors = _tensors(graph)
    if tensors:
        rng.choice(tensors).type.tensor_type.elem_type = rng.choice(_TYPES)
    return bool(tensors)


_Damage = Callable[[onnx.GraphProto, onnx.NodeProto, random.Random], bool]
_DAMAGES: tuple[_Damage, ...] = (
    _no_attribute, _other_attribute, _no_input, _swapped, _other_shape, _other_type,
)  # fmt: skip


def mutant(model: onnx.ModelProto, rng: random.Random) -> onnx.ModelProto:
    """Return a copy of `model` with one thing wrong with it (or, rarely, nothing)."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if copy.graph.node:
        node = rng.choice(copy.graph.node)
        for _ in range(9):
            if rng.choice(_DAMAGES)(copy.graph, node, rng):
                break
    return copy
