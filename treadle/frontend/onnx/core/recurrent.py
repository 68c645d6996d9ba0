# SPDX-License-Identifier: Apache-2.0
"""Converters of recurrent layers: RNN, LSTM and GRU, in one direction or both."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from treadle.errors import ModelError
from treadle.frontend.builders.activations import Activation, activation, parameters_of
from treadle.frontend.builders.basic import dims_of, shape_of, transposed
from treadle.frontend.builders.recurrent import (
    DirectionWeights,
    Product,
    Sequences,
    gru,
    lstm,
    rnn,
    row_of,
)
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Node
from treadle.ops import movement

Products = Callable[[int], tuple[Product, Product]]
"""products(direction) multiply its inputs and states where its weights have another form."""


def _activations(node: OnnxNode, default: Sequence[str], directions: int) -> list[Activation]:
    """Return the functions of all directions, clipped as the node says."""
    names = node.texts("activations") or tuple(default) * directions
    if len(names) != len(default) * directions:
        raise ModelError(f"{node.op} needs {len(default) * directions} activations, not {names}")
    alphas = list(node.numbers("activation_alpha") or ())
    betas = list(node.numbers("activation_beta") or ())
    clip = node.number("clip", 0.0)
    found = []
    for k, name in enumerate(names):
        alpha, beta = parameters_of(name)
        a = alphas.pop(0) if alpha is not None and alphas else alpha
        b = betas.pop(0) if beta is not None and betas else beta
        # As onnxruntime does it, the third function (of the cell state) is not clipped.
        found.append(activation(name, a, b, clip if k % len(default) < 2 else 0.0))
    return found


class _Reader:
    """Reads what the recurrent operators have in common: inputs 0 to 5 and their attributes."""

    def __init__(self, node: OnnxNode, gates: int) -> None:
        layout = node.integer("layout", 0) if node.version >= 14 else 0
        x = node.input(0)
        if layout not in (0, 1) or node.type(0).ndim != 3:
            raise ModelError(
                f"{node.op} takes [steps, batch, features] in layout 0 or 1, not {x.type}"
            )
        self.node = node
        self.gates = gates
        self.batch_first = bool(layout)
        x = transposed(x, (1, 0, 2)) if layout else x
        self.over = Sequences(x, node.optional(4), node.origin)
        self.directions, self.hidden = node.shape(1)[0], node.shape(2)[-1]
        self._check()

    def _check(self) -> None:
        node, hidden, width = self.node, self.hidden, self.gates * self.hidden
        if node.integer("hidden_size", hidden) != hidden:
            raise ModelError(
                f"hidden_size does not fit the recurrence weights {node.input(2).type}"
            )
        weights = (self.directions, width, node.dims(0)[-1])
        if node.shape(1) != weights or node.shape(2) != (self.directions, width, hidden):
            raise ModelError(f"weights {node.type(1)} and {node.type(2)} do not fit {node.type(0)}")
        if dims_of(self.over.x)[0] == 0:
            raise ModelError(f"{node.op} over no steps is not supported")

    def weights(
        self, functions: Sequence[str], states: Sequence[int], products: Products | None = None
    ) -> list[DirectionWeights]:
        """Return the parameters of every direction.

        `functions` are the default activations, `states` the inputs with the first states.
        """
        order = self._order()
        found = _activations(self.node, functions, self.directions)
        n = len(functions)
        return [
            DirectionWeights(
                row_of(self.node.input(1), d, 0),
                row_of(self.node.input(2), d, 0),
                *self._biases(d),
                self._start(states, d),
                tuple(found[d * n : (d + 1) * n]),
                backwards,
                self._part(7, d),
                products(d) if products else None,
            )
            for d, backwards in enumerate(order)
        ]

    def _order(self) -> list[bool]:
        """Return for every direction whether it runs backwards."""
        kinds = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
        direction = self.node.text("direction", "forward")
        if direction not in kinds or len(kinds[direction]) != self.directions:
            raise ModelError(
                f"direction={direction!r} does not fit {self.directions} sets of weights"
            )
        return kinds[direction]

    def _part(self, index: int, direction: int) -> Node | None:
        """Return one direction of an optional input [directions, ...]."""
        value = self.node.optional(index)
        return None if value is None else row_of(value, direction, 0)

    def _start(self, states: Sequence[int], direction: int) -> tuple[Node | None, ...]:
        """Return the first states [batch, hidden] of a direction, None where one is not given."""
        axis = 1 if self.batch_first else 0
        given = [self.node.optional(k) for k in states]
        return tuple(None if v is None else row_of(v, direction, axis) for v in given)

    def _biases(self, direction: int) -> tuple[Node | None, Node | None]:
        """Return the biases of the inputs and of the state, [gates * hidden] each."""
        bias = self._part(3, direction)
        if bias is None:
            return None, None
        half = self.gates * self.hidden
        if shape_of(bias) != (2 * half,):
            raise ModelError(f"the bias {bias.type} must have {2 * half} entries per direction")
        return _entries(bias, 0, half), _entries(bias, half, 2 * half)

    def results(self, made: Sequence[Node]) -> list[Node]:
        """Return all states and the last ones in the layout of the node."""
        states, *last = made
        if not self.batch_first:
            return [states, *last]
        return [transposed(states, (2, 0, 1, 3)), *(transposed(x, (1, 0, 2)) for x in last)]


def _entries(x: Node, begin: int, end: int) -> Node:
    return movement.slice_(x, begin=(begin,), end=(end,), strides=(1,), axes=(0,))


@converter("RNN", since=(7, 14, 22))
def convert_rnn(node: OnnxNode) -> list[Node]:
    """Convert the simple layer: H = f(X W' + H R' + b)."""
    reader = _Reader(node, 1)
    return reader.results(rnn(reader.over, reader.weights(["Tanh"], (5,))))


@converter("LSTM", since=(7, 14, 22))
def convert_lstm(node: OnnxNode) -> list[Node]:
    """Convert the long short-term memory, with peepholes and coupled gates where given."""
    return lstm_by_products(node)


def lstm_by_products(node: OnnxNode, products: Products | None = None) -> list[Node]:
    """Return a long short-term memory, by `products` where the weights have another form."""
    reader = _Reader(node, 4)
    weights = reader.weights(["Sigmoid", "Tanh", "Tanh"], (5, 6), products)
    return reader.results(lstm(reader.over, weights, coupled=node.flag("input_forget")))


@converter("GRU", since=(3, 7, 14, 22))
def convert_gru(node: OnnxNode) -> list[Node]:
    """Convert the gated recurrent unit; the reset gate acts before or after its product."""
    reader = _Reader(node, 3)
    weights = reader.weights(["Sigmoid", "Tanh"], (5,))
    linear = node.flag("linear_before_reset")
    return reader.results(gru(reader.over, weights, linear_before_reset=linear))
