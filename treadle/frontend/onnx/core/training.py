# SPDX-License-Identifier: Apache-2.0
"""Converters of optimiser steps (domain ai.onnx.preview.training)."""

from __future__ import annotations

from collections.abc import Callable

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, scalar_like
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import tensor_type
from treadle.ops.elementwise import add, divide, greater, multiply, power, sqrt, subtract, where

DOMAIN = "ai.onnx.preview.training"

_Step = Callable[..., tuple[Node, ...]]


def _stepped(node: OnnxNode, states: int, step: _Step) -> list[Node]:
    """Apply `step(x, gradient, *states)` to every tensor; results are grouped by kind."""
    given = node.all_inputs()[2:]
    count, rest = divmod(len(given), 2 + states)
    if rest or not count:
        raise ModelError(
            f"{node.op} takes {2 + states} inputs per tensor after the first two, "
            f"not {len(given)} in all"
        )
    groups = [given[k * count : (k + 1) * count] for k in range(2 + states)]
    made = [step(*one) for one in zip(*groups, strict=True)]
    return [values[k] for k in range(1 + states) for values in made]


def _scaled(x: Node, factor: float) -> Node:
    return multiply(x, scalar_like(factor, x))


def _regularized(node: OnnxNode, x: Node, gradient: Node) -> Node:
    factor = node.number("norm_coefficient", 0.0)
    return gradient if factor == 0 else add(_scaled(x, factor), gradient)


@converter("Adagrad", since=(1,), domain=DOMAIN)
def adagrad(node: OnnxNode) -> list[Node]:
    """Convert a step whose rate falls with the sum of the squared gradients."""
    rate, count = node.input(0), converted(node.input(1), node.type(0).dtype)
    decay, epsilon = node.number("decay_factor", 0.0), node.number("epsilon", 0.0)
    rate = divide(rate, add(scalar_like(1, count), _scaled(count, decay)))

    def step(x: Node, gradient: Node, squares: Node) -> tuple[Node, ...]:
        moved = _regularized(node, x, gradient)
        total = add(squares, multiply(moved, moved))
        root: Node = sqrt(total)
        scale = add(root, scalar_like(epsilon, root))
        return subtract(x, divide(multiply(rate, moved), scale)), total

    return _stepped(node, 1, step)


@converter("Adam", since=(1,), domain=DOMAIN)
def adam(node: OnnxNode) -> list[Node]:
    """Convert a step along the running mean of gradients, scaled by that of their squares."""
    alpha, beta = node.number("alpha", 0.9), node.number("beta", 0.999)
    epsilon, after = node.number("epsilon", 0.0), node.number("norm_coefficient_post", 0.0)
    rate = _unbiased_rate(node, alpha, beta)

    def step(x: Node, gradient: Node, mean: Node, squares: Node) -> tuple[Node, ...]:
        moved = _regularized(node, x, gradient)
        mean = add(_scaled(mean, alpha), _scaled(moved, 1 - alpha))
        squares = add(_scaled(squares, beta), _scaled(multiply(moved, moved), 1 - beta))
        root: Node = sqrt(squares)
        way = divide(mean, add(root, scalar_like(epsilon, root)))
        fresh: Node = subtract(x, multiply(rate, way))
        return (fresh if after == 0 else _scaled(fresh, 1 - after)), mean, squares

    return _stepped(node, 2, step)


def _unbiased_rate(node: OnnxNode, alpha: float, beta: float) -> Node:
    """Return rate * sqrt(1 - beta ** count) / (1 - alpha ** count), the rate itself at count 0."""
    rate = node.input(0)
    count = converted(node.input(1), node.type(0).dtype)
    one, zero = scalar_like(1, rate), scalar_like(0, rate)
    is_later = greater(count, zero)
    count = where(is_later, count, one)
    spread = sqrt(subtract(one, power(scalar_like(beta, rate), count)))
    share = subtract(one, power(scalar_like(alpha, rate), count))
    return where(is_later, divide(multiply(rate, spread), share), rate)


@converter("Momentum", since=(1,), domain=DOMAIN)
def momentum(node: OnnxNode) -> list[Node]:
    """Convert a step along a decaying sum of gradients, plain or Nesterov's."""
    alpha, beta = node.number("alpha"), node.number("beta")
    mode = node.text("mode")
    if mode not in ("standard", "nesterov"):
        raise ModelError(f"the mode of Momentum is {mode!r}, not standard or nesterov")
    rate, count = node.input(0), node.input(1)
    is_later = greater(count, Constant.of(0, tensor_type(count.type).dtype))
    factor = where(is_later, scalar_like(beta, rate), scalar_like(1, rate))

    def step(x: Node, gradient: Node, velocity: Node) -> tuple[Node, ...]:
        moved = _regularized(node, x, gradient)
        velocity = add(_scaled(velocity, alpha), multiply(factor, moved))
        way = velocity if mode == "standard" else add(moved, _scaled(velocity, alpha))
        return subtract(x, multiply(rate, way)), velocity

    return _stepped(node, 1, step)
