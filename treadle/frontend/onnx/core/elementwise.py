# SPDX-License-Identifier: Apache-2.0
"""Converters of element-wise operators: activations, arithmetic, comparison, logic, casts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.frontend.builders import activations
from treadle.frontend.builders import elementwise as builders
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    operands,
    reshaped,
    scalar_like,
)
from treadle.frontend.builders.elementwise import aligned_at, clipped, mean_of, shrunk
from treadle.frontend.onnx.core.random_numbers import key_of, uniform
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.frontend.onnx.tensors import dtype_of
from treadle.graph.nodes import Call, Constant, Node
from treadle.ops import activation, bits, elementwise

Op = Callable[..., Call]

UNARY: Mapping[str, tuple[Op, tuple[int, ...]]] = {
    "Abs": (elementwise.abs, (1, 6, 13)),
    "Acos": (elementwise.acos, (7, 22)),
    "Acosh": (elementwise.acosh, (9, 22)),
    "Asin": (elementwise.asin, (7, 22)),
    "Asinh": (elementwise.asinh, (9, 22)),
    "Atan": (elementwise.atan, (7, 22)),
    "Atanh": (elementwise.atanh, (9, 22)),
    "BitwiseNot": (elementwise.bitwise_not, (18,)),
    "Ceil": (elementwise.ceil, (1, 6, 13)),
    "Cos": (elementwise.cos, (7, 22)),
    "Cosh": (elementwise.cosh, (9, 22)),
    "Erf": (elementwise.erf, (9, 13)),
    "Exp": (elementwise.exp, (1, 6, 13)),
    "Floor": (elementwise.floor, (1, 6, 13)),
    "HardSwish": (activation.hard_swish, (14, 22)),
    "IsNaN": (elementwise.isnan, (9, 13, 20)),
    "Log": (elementwise.log, (1, 6, 13)),
    "Mish": (activation.mish, (18, 22)),
    "Neg": (elementwise.negative, (1, 6, 13)),
    "Not": (elementwise.not_, (1,)),
    "Reciprocal": (elementwise.reciprocal, (1, 6, 13)),
    "Relu": (elementwise.relu, (1, 6, 13, 14)),
    "Round": (elementwise.round, (11, 22)),
    "Sigmoid": (elementwise.sigmoid, (1, 6, 13)),
    "Sign": (elementwise.sign, (9, 13)),
    "Sin": (elementwise.sin, (7, 22)),
    "Sinh": (elementwise.sinh, (9, 22)),
    "Softplus": (activation.softplus, (1, 22)),
    "Softsign": (activation.softsign, (1, 22)),
    "Sqrt": (elementwise.sqrt, (1, 6, 13)),
    "Tan": (elementwise.tan, (7, 22)),
    "Tanh": (elementwise.tanh, (1, 6, 13)),
}

BINARY: Mapping[str, tuple[Op, tuple[int, ...]]] = {
    "Add": (elementwise.add, (1, 6, 7, 13, 14)),
    "And": (elementwise.logical_and, (1, 7)),
    "BitwiseAnd": (elementwise.bitwise_and, (18,)),
    "BitwiseOr": (elementwise.bitwise_or, (18,)),
    "BitwiseXor": (elementwise.bitwise_xor, (18,)),
    "Div": (elementwise.divide, (1, 6, 7, 13, 14)),
    "Equal": (elementwise.equal, (1, 7, 11, 13, 19)),
    "Greater": (elementwise.greater, (1, 7, 9, 13)),
    "GreaterOrEqual": (elementwise.greater_equal, (12, 16)),
    "Less": (elementwise.less, (1, 7, 9, 13)),
    "LessOrEqual": (elementwise.less_equal, (12, 16)),
    "Mul": (elementwise.multiply, (1, 6, 7, 13, 14)),
    "Or": (elementwise.logical_or, (1, 7)),
    "Sub": (elementwise.subtract, (1, 6, 7, 13, 14)),
    "Xor": (elementwise.logical_xor, (1, 7)),
}

VARIADIC: Mapping[str, tuple[Op, tuple[int, ...]]] = {
    "Max": (elementwise.maximum, (1, 6, 8, 12, 13)),
    "Min": (elementwise.minimum, (1, 6, 8, 12, 13)),
    "Sum": (elementwise.add, (1, 6, 8, 13)),
}


def _register_tables() -> None:
    for name, (op, since) in UNARY.items():
        converter(name, since=since)(_unary(op))
    for name, (op, since) in BINARY.items():
        converter(name, since=since)(_binary(op))
    for name, (op, since) in VARIADIC.items():
        converter(name, since=since)(_variadic(op))


def _unary(op: Op) -> Callable[[OnnxNode], Node]:
    def convert(node: OnnxNode) -> Node:
        node.without_effect("consumed_inputs")
        return op(node.input(0))

    return convert


def _binary(op: Op) -> Callable[[OnnxNode], Node]:
    def convert(node: OnnxNode) -> Node:
        a, b = _operands(node)
        return op(a, b)

    return convert


def _operands(node: OnnxNode) -> tuple[Node, Node]:
    if node.version < 7:
        return _broadcast_legacy(node)
    a, b = operands(node.input(0), node.input(1))
    return a, b


def _broadcast_legacy(node: OnnxNode) -> tuple[Node, Node]:
    """Return the two inputs of a binary operator, aligned as opsets before 7 say.

    Before opset 7 shapes must agree unless `broadcast` is set; `axis` then says where in `a` the
    dimensions of `b` start.
    """
    a, b = node.input(0), node.input(1)
    node.without_effect("consumed_inputs")
    if not node.flag("broadcast"):
        if node.shape(0) != node.shape(1):
            raise ModelError(
                f"the shapes {list(node.shape(0))} and {list(node.shape(1))} differ, "
                f"and {node.op}-{node.version} broadcasts only where `broadcast` is 1"
            )
        return a, b
    axis = node.integer("axis", node.type(0).ndim - node.type(1).ndim)
    return a, aligned_at(a, b, axis + node.type(0).ndim if axis < 0 else axis)


def _variadic(op: Op) -> Callable[[OnnxNode], Node]:
    def convert(node: OnnxNode) -> Node:
        node.without_effect("consumed_inputs")
        return reduce(op, operands(*node.all_inputs()))

    return convert


@converter("Mean", since=(1, 6, 8, 13))
def mean(node: OnnxNode) -> Node:
    """Convert the mean of several tensors."""
    node.without_effect("consumed_inputs")
    return mean_of(node.all_inputs())


@converter("Pow", since=(1, 7, 12, 13, 15))
def power(node: OnnxNode) -> Node:
    """Convert a power; the result has the base's type whatever the exponent's."""
    return builders.power(*_operands(node))


@converter("Mod", since=(10, 13, 28))
def modulo(node: OnnxNode) -> Node:
    """Convert a remainder with the sign of the divisor (fmod 0) or the dividend (fmod 1)."""
    fmod = node.flag("fmod")
    if not fmod and node.version < 28 and dt.is_float(node.type(0).dtype):
        raise ModelError("Mod of floats needs fmod = 1 before opset 28")
    return elementwise.mod(*operands(node.input(0), node.input(1)), fmod=fmod)


@converter("BitShift", since=(11, 28))
def bit_shift(node: OnnxNode) -> Node:
    """Convert a shift of the bits left or right."""
    direction = node.text("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise ModelError(f"the direction of BitShift is {direction!r}, not LEFT or RIGHT")
    op = elementwise.shift_left if direction == "LEFT" else elementwise.shift_right
    return op(*operands(node.input(0), node.input(1)))


@converter("LeakyRelu", since=(1, 6, 16))
def leaky_relu(node: OnnxNode) -> Node:
    """Convert a rectifier with a slope for negative values."""
    node.without_effect("consumed_inputs")
    return activation.leaky_relu(node.input(0), alpha=node.number("alpha", 0.01))


@converter("Elu", since=(1, 6, 22))
def elu(node: OnnxNode) -> Node:
    """Convert an exponential linear unit."""
    node.without_effect("consumed_inputs")
    return activation.elu(node.input(0), alpha=node.number("alpha", 1.0))


@converter("Celu", since=(12, 28))
def celu(node: OnnxNode) -> Node:
    """Convert a continuously differentiable exponential linear unit."""
    return activation.celu(node.input(0), alpha=node.number("alpha", 1.0))


@converter("Selu", since=(1, 6, 22))
def selu(node: OnnxNode) -> Node:
    """Convert a scaled exponential linear unit; its constants changed with opset 6."""
    node.without_effect("consumed_inputs")
    old = node.version == 1
    alpha = node.number("alpha", 1.6732 if old else 1.67326319217681884765625)
    gamma = node.number("gamma", 1.0507 if old else 1.05070102214813232421875)
    return activation.selu(node.input(0), alpha=alpha, gamma=gamma)


@converter("Gelu", since=(20,))
def gelu(node: OnnxNode) -> Node:
    """Convert a Gaussian error linear unit."""
    approximate = node.text("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise ModelError(f"the approximation {approximate!r} of Gelu is not none or tanh")
    return activation.gelu(node.input(0), approximate=approximate)


@converter("HardSigmoid", since=(1, 6, 22))
def hard_sigmoid(node: OnnxNode) -> Node:
    """Convert max(0, min(1, alpha * x + beta))."""
    node.without_effect("consumed_inputs")
    alpha, beta = node.number("alpha", 0.2), node.number("beta", 0.5)
    return activation.hard_sigmoid(node.input(0), alpha=alpha, beta=beta)


@converter("ThresholdedRelu", since=(10, 22))
def thresholded_relu(node: OnnxNode) -> Node:
    """Convert a rectifier that passes values above alpha."""
    return activation.thresholded_relu(node.input(0), alpha=node.number("alpha", 1.0))


@converter("Swish", since=(24,))
def swish(node: OnnxNode) -> Node:
    """Convert x * sigmoid(alpha * x)."""
    return activations.swish(node.input(0), node.number("alpha", 1.0))


@converter("Shrink", since=(9,))
def shrink(node: OnnxNode) -> Node:
    """Convert x + bias below -lambd, x - bias above lambd, 0 between."""
    return shrunk(node.input(0), node.number("lambd", 0.5), node.number("bias", 0.0))


@converter("PRelu", since=(1, 6, 7, 9, 16))
def prelu(node: OnnxNode) -> Node:
    """Convert a rectifier with learned slopes: per channel before opset 7, broadcast after."""
    node.without_effect("consumed_inputs")
    x, slope = node.input(0), node.input(1)
    if node.version < 7 and node.type(1).ndim == 1 and node.type(0).ndim > 1:
        slope = reshaped(slope, (*node.shape(1), *(1,) * (node.type(0).ndim - 2)))
    if node.type(1).ndim <= node.type(0).ndim:
        x, slope = operands(x, slope)
    return activation.prelu(x, slope)


@converter("Clip", since=(1, 6))
def clip_by_attributes(node: OnnxNode) -> Node:
    """Convert a clip whose bounds are attributes."""
    node.without_effect("consumed_inputs")
    lowest, highest = -3.4028234663852886e38, 3.4028234663852886e38
    low, high = node.number("min", lowest), node.number("max", highest)
    return elementwise.clip(
        node.input(0),
        min=None if low <= lowest else low,
        max=None if high >= highest else high,
    )


@converter("Clip", since=(11, 12, 13))
def clip(node: OnnxNode) -> Node:
    """Convert a clip whose bounds are inputs; constant float bounds become attributes."""
    return clipped(node.input(0), node.optional(1), node.optional(2))


@converter("Cast", since=(1,))
def cast_by_name(node: OnnxNode) -> Node:
    """Convert a cast whose target is written as a name ("FLOAT")."""
    names = {"FLOAT": "float32", "DOUBLE": "float64"}
    name = node.text("to").upper()
    return converted(node.input(0), names.get(name, name.lower()))


@converter("Cast", since=(6, 9, 13, 19, 21, 23, 24, 25, 28))
def cast(node: OnnxNode) -> Node:
    """Convert a cast."""
    return _cast(node, dtype_of(node.integer("to")))


@converter("CastLike", since=(15, 19, 21, 23, 24, 25))
def cast_like(node: OnnxNode) -> Node:
    """Convert a cast to the type of a second input."""
    return _cast(node, node.type(1).dtype)


def _cast(node: OnnxNode, dtype: str) -> Node:
    saturate, round_mode = node.flag("saturate", True), node.text("round_mode", "up")
    return converted(node.input(0), dtype, saturate, round_mode)


@converter("BitCast", since=(26,))
def bit_cast(node: OnnxNode) -> Node:
    """Convert a reading of elements as another type of the same size."""
    return bits.bitcast(node.input(0), dtype=dtype_of(node.integer("to")))


@converter("IsInf", since=(10, 20))
def is_infinite(node: OnnxNode) -> Node:
    """Convert a test for infinities of either or one sign."""
    return elementwise.isinf(
        node.input(0),
        detect_negative=node.flag("detect_negative", True),
        detect_positive=node.flag("detect_positive", True),
    )


@converter("Where", since=(9, 16))
def where(node: OnnxNode) -> Node:
    """Convert a choice by condition."""
    return elementwise.where(*operands(node.input(0), node.input(1), node.input(2)))


@converter("Dropout", since=(1, 6, 7, 10))
def dropout_by_attributes(node: OnnxNode) -> list[Node]:
    """Convert a dropout, which passes its input on when a network is used."""
    node.without_effect("consumed_inputs", "is_test", "ratio")
    mask_dtype = "bool" if node.version >= 10 else node.type(0).dtype
    return _dropout(node, mask_dtype)


@converter("Dropout", since=(12, 13, 22))
def dropout(node: OnnxNode) -> list[Node]:
    """Convert a dropout whose ratio and mode are inputs; in training mode it drops elements."""
    if node.has_input(2) and bool(node.constant(2, "training_mode").any()):
        given = node.optional_constant(1, "ratio")
        ratio = 0.5 if given is None else float(given.reshape(()))
        if ratio != 0.0:
            return _dropped(node, ratio)
    node.without_effect("seed")
    return _dropout(node, "bool")


def _dropped(node: OnnxNode, ratio: float) -> list[Node]:
    """Return the input with a share of its elements 0 and the others scaled, and where they are."""
    x = node.input(0)
    if not 0.0 <= ratio <= 1.0:
        raise ModelError(f"the ratio {ratio} of Dropout is not between 0 and 1")
    seed = node.integer("seed") if "seed" in node.attributes else None
    drawn = uniform(node.dims(0), key_of(node, seed), node.type(0).dtype)
    kept = elementwise.greater_equal(drawn, scalar_like(ratio, drawn))
    scaled = elementwise.multiply(x, scalar_like(1.0 / (1.0 - ratio) if ratio < 1.0 else 0.0, x))
    return [elementwise.where(kept, scaled, scalar_like(0.0, x)), kept]


def _dropout(node: OnnxNode, mask_dtype: str) -> list[Node]:
    x = node.input(0)
    if not node.wants(1):
        return [x]
    return [x, broadcast(Constant.of(1, mask_dtype), node.dims(0))]


@converter("Identity", since=(1, 13, 14, 16, 19, 21, 23, 24, 25))
def identity(node: OnnxNode) -> Node:
    """Convert a node that passes its input on."""
    return node.input(0)


_register_tables()
