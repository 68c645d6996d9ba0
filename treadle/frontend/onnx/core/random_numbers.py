# SPDX-License-Identifier: Apache-2.0
"""Converters of random numbers: hashes of the elements' positions and of a key.

A kernel keeps no state, so number i of a node is a function of i and a key: the output function of
SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014). The key
of a node with a seed is the seed, so its numbers are the same in every run; the others get a key
from the executor, a new one whenever they run.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import pi

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, reshaped, scalar_like
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.frontend.onnx.tensors import dtype_of
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, product_of, tensor_type
from treadle.ops import cumulative, elementwise, norm, sizes
from treadle.ops import reduce as reductions
from treadle.ops.random import random_key

_STEP = 0x9E3779B97F4A7C15
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31
_DIGITS = {"float64": 53}
"""Random bits of a number, by its element type; 24, the digits of float32, for the others."""


_NOTE = "each run draws other random numbers; executable.seed(...) makes them repeatable"
_SECOND = 0xD1342543DE82EF95
"""What tells the second number of a pair from the first."""


def _word(value: int) -> Constant:
    return Constant.of(value % (1 << 64), "uint64")


def uniform(shape: Sequence[Dim], key: Node, dtype: str) -> Node:
    """Return random numbers in [0, 1) as float64, or else as float32; `key` is uint64[]."""
    wide = dtype if dtype in _DIGITS else "float32"
    digits = _DIGITS.get(wide, 24)
    place = converted(sizes.arange(start=1, step=1, size=product_of(shape)), "uint64")
    mixed = elementwise.add(elementwise.multiply(place, _word(_STEP)), key)
    for shift, factor in _ROUNDS:
        mixed = elementwise.multiply(_folded(mixed, shift), _word(factor))
    top = elementwise.shift_right(_folded(mixed, _LAST_SHIFT), _word(64 - digits))
    # As int64, which hardware converts: the highest bits are 0.
    numbers = converted(converted(top, "int64"), wide)
    return reshaped(elementwise.multiply(numbers, scalar_like(2.0**-digits, numbers)), shape)


def _folded(x: Node, shift: int) -> Node:
    return elementwise.bitwise_xor(x, elementwise.shift_right(x, _word(shift)))


def normal(shape: Sequence[Dim], key: Node, dtype: str) -> Node:
    """Return normally distributed numbers (Box and Muller, 1958), as float64 or else float32."""
    first = uniform(shape, key, dtype)
    second = uniform(shape, elementwise.add(key, _word(_SECOND)), dtype)
    above_zero = elementwise.subtract(scalar_like(1.0, first), first)
    squared = elementwise.multiply(elementwise.log(above_zero), scalar_like(-2.0, first))
    angle = elementwise.multiply(second, scalar_like(2 * pi, second))
    return elementwise.multiply(elementwise.sqrt(squared), elementwise.cos(angle))


def key_of(node: OnnxNode, seed: int | None) -> Node:
    """Return the key of a node's random numbers: of its seed, or one that each run draws."""
    if seed is not None:
        return _word(seed * _STEP)
    if _NOTE not in node.notes:
        node.notes.append(_NOTE)
    return random_key(label=node.origin)


def _key(node: OnnxNode) -> Node:
    """Return the key of a node whose seed is a float: its bits."""
    if "seed" not in node.attributes:
        return key_of(node, None)
    return key_of(node, int.from_bytes(struct.pack("<f", node.number("seed")), "little"))


def _scaled(x: Node, factor: float, offset: float, dtype: str) -> Node:
    scaled = elementwise.multiply(x, scalar_like(factor, x))
    return converted(elementwise.add(scaled, scalar_like(offset, x)), dtype)


def _dtype(node: OnnxNode, default: str) -> str:
    return dtype_of(node.integer("dtype")) if "dtype" in node.attributes else default


def _given_shape(node: OnnxNode) -> tuple[int, ...]:
    shape = node.integers("shape")
    if shape is None or any(d < 0 for d in shape):
        raise ModelError(f"the shape {shape} is no shape of a tensor")
    return shape


def _of_input(node: OnnxNode) -> tuple[tuple[Dim, ...], str]:
    return node.dims(0), _dtype(node, node.type(0).dtype)


@converter("RandomUniform", since=(1, 22))
def random_uniform(node: OnnxNode) -> Node:
    """Convert uniformly distributed numbers of a given shape."""
    return _uniform(node, _given_shape(node), _dtype(node, "float32"))


@converter("RandomUniformLike", since=(1, 22))
def random_uniform_like(node: OnnxNode) -> Node:
    """Convert uniformly distributed numbers of the shape of an input."""
    return _uniform(node, *_of_input(node))


def _uniform(node: OnnxNode, shape: Sequence[Dim], dtype: str) -> Node:
    low, high = node.number("low", 0.0), node.number("high", 1.0)
    return _scaled(uniform(shape, _key(node), dtype), high - low, low, dtype)


@converter("RandomNormal", since=(1, 22))
def random_normal(node: OnnxNode) -> Node:
    """Convert normally distributed numbers of a given shape."""
    return _normal(node, _given_shape(node), _dtype(node, "float32"))


@converter("RandomNormalLike", since=(1, 22))
def random_normal_like(node: OnnxNode) -> Node:
    """Convert normally distributed numbers of the shape of an input."""
    return _normal(node, *_of_input(node))


def _normal(node: OnnxNode, shape: Sequence[Dim], dtype: str) -> Node:
    mean, scale = node.number("mean", 0.0), node.number("scale", 1.0)
    return _scaled(normal(shape, _key(node), dtype), scale, mean, dtype)


@converter("Multinomial", since=(7, 22))
def multinomial(node: OnnxNode) -> Node:
    """Convert draws of classes from the logarithms of their weights, [batch, classes]."""
    if node.type(0).ndim != 2:
        raise ModelError(f"Multinomial takes [batch, classes] weights, not {node.type(0)}")
    batch, classes = node.dims(0)
    draws, dtype = node.integer("sample_size", 1), _dtype(node, "int32")
    weights = norm.softmax(converted(node.input(0), "float32"), axis=1)
    below = reshaped(cumulative.cumsum(weights, axis=1), (batch, 1, classes))
    drawn = uniform((batch, draws, 1), _key(node), "float32")
    passed = converted(elementwise.greater_equal(drawn, below), dtype)
    last = elementwise.subtract(sizes.sizes(values=(classes,)), Constant.of(1))
    index = reductions.sum_(passed, axes=(2,), keepdims=False)
    return elementwise.minimum(index, converted(last, dtype))


@converter("Bernoulli", since=(15, 22))
def bernoulli(node: OnnxNode) -> Node:
    """Convert draws of 1 with the probability in each element, else 0.

    The function body that ONNX gives draws 1 with the opposite probability.
    """
    shape, dtype = _of_input(node)
    probability = node.input(0)
    drawn = uniform(shape, _key(node), node.type(0).dtype)
    wide = tensor_type(drawn.type).dtype
    return converted(elementwise.less(drawn, converted(probability, wide)), dtype)
