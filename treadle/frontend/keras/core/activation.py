# SPDX-License-Identifier: Apache-2.0
"""Activations: by name, as the setting of a layer or as layers of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from treadle.errors import ModelError
from treadle.frontend.builders.activations import swish
from treadle.frontend.builders.basic import converted, operands, scalar_like
from treadle.frontend.builders.layout import in_one_layout
from treadle.frontend.importer import did_you_mean
from treadle.frontend.keras.layer import KerasLayer, layer, rank
from treadle.graph.nodes import Node
from treadle.ops import activation as act
from treadle.ops import elementwise as ew
from treadle.ops import norm

Function = Callable[[Node], Node]


def _hard_sigmoid(x: Node) -> Node:
    return act.hard_sigmoid(x, alpha=1.0 / 6.0, beta=0.5)


def _tanh_shrink(x: Node) -> Node:
    return ew.subtract(x, ew.tanh(x))


def _log_sigmoid(x: Node) -> Node:
    return ew.negative(act.softplus(ew.negative(x)))


def _squareplus(x: Node) -> Node:
    """Return (x + sqrt(x^2 + 4)) / 2."""
    root = ew.sqrt(ew.add(ew.multiply(x, x), scalar_like(4.0, x)))
    return ew.multiply(ew.add(x, root), scalar_like(0.5, x))


ELEMENTWISE: Mapping[str, Function] = {
    "linear": lambda x: x,
    "relu": ew.relu,
    "relu6": partial(ew.clip, min=0.0, max=6.0),
    "sigmoid": ew.sigmoid,
    "tanh": ew.tanh,
    "softplus": act.softplus,
    "softsign": act.softsign,
    "elu": partial(act.elu, alpha=1.0),
    "selu": act.selu,
    "celu": partial(act.celu, alpha=1.0),
    "gelu": partial(act.gelu, approximate="none"),
    "silu": swish,
    "swish": swish,
    "mish": act.mish,
    "exponential": ew.exp,
    "hard_sigmoid": _hard_sigmoid,
    "hard_silu": act.hard_swish,
    "hard_swish": act.hard_swish,
    "hard_tanh": partial(ew.clip, min=-1.0, max=1.0),
    "leaky_relu": partial(act.leaky_relu, alpha=0.2),
    "log_sigmoid": _log_sigmoid,
    "squareplus": _squareplus,
    "tanh_shrink": _tanh_shrink,
}
"""The element-wise activations of keras.activations by name."""

_OVER_LAST_AXIS: Mapping[str, Callable[..., Node]] = {
    "softmax": norm.softmax,
    "log_softmax": norm.log_softmax,
}


def activation_name(value: object) -> str:
    """Return the name of an activation of Keras. Raises ModelError for a function of its own."""
    if value is None:
        return "linear"
    name = value
    if isinstance(value, dict):
        module = str(value.get("module") or "")
        name = value.get("config") if value.get("class_name") == "function" else None
        if module.split(".")[0] not in ("keras", "builtins"):
            name = None
    if isinstance(name, str) and name in {*ELEMENTWISE, *_OVER_LAST_AXIS}:
        return name
    hint = "use an activation of Keras, or export a SavedModel"
    if isinstance(name, str):
        hint = did_you_mean(name, [*ELEMENTWISE, *_OVER_LAST_AXIS])
    raise ModelError(f"the activation {name or value!r} is none of Keras's", hint=hint)


def function_of(value: object) -> Function:
    """Return an element-wise activation. Raises ModelError for another one."""
    name = activation_name(value)
    if name not in ELEMENTWISE:
        raise ModelError(f"the activation {name!r} inside of a layer is not supported")
    return ELEMENTWISE[name]


def activated(use: KerasLayer, x: Node, setting: str = "activation") -> Node:
    """Return `x` after the activation that a setting names."""
    name = activation_name(use.setting(setting))
    if name in _OVER_LAST_AXIS:
        return _OVER_LAST_AXIS[name](x, axis=rank(x) - 1)
    return x if name == "linear" else in_one_layout(ELEMENTWISE[name], x)


@layer("Activation")
def activation(use: KerasLayer) -> Node:
    """Convert an activation."""
    return activated(use, use.input())


@layer("ReLU")
def relu(use: KerasLayer) -> Node:
    """Convert a line above a threshold, up to a greatest value, with a smaller slope below it."""
    slope, threshold = use.number("negative_slope"), use.number("threshold")
    most = None if use.setting("max_value") is None else use.number("max_value")

    def compute(x: Node) -> Node:
        if not slope and not threshold:
            return ew.relu(x) if most is None else ew.clip(x, min=0.0, max=most)
        low = scalar_like(threshold, x)
        above = x if most is None else ew.minimum(x, scalar_like(most, x))
        below = ew.multiply(ew.subtract(x, low), scalar_like(slope, x))
        return ew.where(ew.greater_equal(x, low), above, below)

    return in_one_layout(compute, use.input())


@layer("LeakyReLU")
def leaky_relu(use: KerasLayer) -> Node:
    """Convert a line with a smaller slope below 0."""
    slope = use.number("negative_slope", 0.3)
    return in_one_layout(partial(act.leaky_relu, alpha=slope), use.input())


@layer("ELU")
def elu(use: KerasLayer) -> Node:
    """Convert a line above 0, an exponential function below."""
    return in_one_layout(partial(act.elu, alpha=use.number("alpha", 1.0)), use.input())


@layer("PReLU")
def prelu(use: KerasLayer) -> Node:
    """Convert a line with a learnt slope below 0."""

    def compute(x: Node, slope: Node) -> Node:
        zero = scalar_like(0.0, x)
        below = ew.multiply(ew.minimum(x, zero), slope)
        return ew.add(ew.maximum(x, zero), below)

    return compute(*operands(use.input(), use.weight(0)))


@layer("Softmax")
def softmax(use: KerasLayer) -> Node:
    """Convert a softmax over an axis; what a mask leaves out gets a very small number."""
    x = use.input()
    axes = use.axes("axis", rank(x))
    if len(axes) != 1:
        raise ModelError("a softmax over several axes is not supported")
    mask = use.mask
    if mask is None and len(use.args) > 1 and isinstance(use.args[1], Node):
        mask = use.args[1]
    if mask is not None:
        kept = converted(mask, "bool")
        low = scalar_like(-3e4 if use.compute_dtype == "float16" else -1e9, x)
        x = ew.add(x, ew.where(*operands(kept, scalar_like(0.0, x), low)))
    return norm.softmax(x, axis=axes[0])
