# SPDX-License-Identifier: Apache-2.0
"""Converters of recurrent layers, of any number of layers and one or two directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from treadle.errors import ModelError
from treadle.frontend.builders import recurrent
from treadle.frontend.builders.activations import activation
from treadle.frontend.builders.basic import transposed
from treadle.frontend.builders.movement import concatenated
from treadle.frontend.builders.recurrent import DirectionWeights, Sequences
from treadle.frontend.builders.shapes import flattened
from treadle.frontend.torch.node import AtenNode, aten
from treadle.graph.nodes import Node

Layer = Callable[[Sequences, Sequence[DirectionWeights]], list[Node]]
"""One layer of `treadle.frontend.builders.recurrent`: all states, then the last ones."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A layer and the order in which torch lists its gates, as `with_gates` takes it."""

    layer: Layer
    gates: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Stack:
    """The arguments of a recurrent operator of torch from `params` on."""

    params: Sequence[Node]
    has_biases: bool
    num_layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    def weights(self, kind: _Kind, number: int, states: Sequence[Node]) -> list[DirectionWeights]:
        """Return the weights of layer `number`: torch lists w_ih, w_hh, b_ih, b_hh of each."""
        width = 4 if self.has_biases else 2
        made = []
        for d in range(self.directions):
            at = number * self.directions + d
            given = self.params[at * width : (at + 1) * width]
            parts = [recurrent.with_gates(w, kind.gates) for w in given]
            by_input, by_state = parts[:2]
            bias, state_bias = parts[2:] or (None, None)
            start = tuple(recurrent.row_of(s, at, 0) for s in states)
            one = DirectionWeights(
                by_input, by_state, bias, state_bias, start=start, backwards=d == 1
            )
            made.append(one)
        return made


def _run(node: AtenNode, x: Node, states: Sequence[Node], kind: _Kind, stack: _Stack) -> list[Node]:
    """Return the states of the last layer in order of time, then the last states of all."""
    if len(stack.params) != stack.num_layers * stack.directions * (4 if stack.has_biases else 2):
        raise ModelError("a recurrent layer with projected states is not supported")
    if stack.train and stack.dropout:
        raise ModelError("a recurrent layer with dropout is for training")
    data = transposed(x, (1, 0, 2)) if stack.batch_first else x
    last: list[list[Node]] = []
    for number in range(stack.num_layers):
        over = Sequences(data, name=f"{node.origin}_{number}")
        made, *finals = kind.layer(over, stack.weights(kind, number, states))
        data = flattened(transposed(made, (0, 2, 1, 3)), 2, 4)
        last.append(finals)
    joined = [concatenated(layers, 0) for layers in zip(*last, strict=True)]
    return [transposed(data, (1, 0, 2)) if stack.batch_first else data, *joined]


def _gru(over: Sequences, directions: Sequence[DirectionWeights]) -> list[Node]:
    return recurrent.gru(over, directions, linear_before_reset=True)


def _rectified(over: Sequences, directions: Sequence[DirectionWeights]) -> list[Node]:
    relu = (activation("relu"),)
    return recurrent.rnn(over, [replace(one, functions=relu) for one in directions])


_LSTM = _Kind(recurrent.lstm, (0, 3, 1, 2))
_ONE_STATE = {
    "gru": _Kind(_gru, (1, 0, 2)),
    "rnn_tanh": _Kind(recurrent.rnn, (0,)),
    "rnn_relu": _Kind(_rectified, (0,)),
}


@aten("lstm.input")
def lstm(node: AtenNode, x: Node, states: Sequence[Node], *stack: object) -> list[Node]:
    """Convert long short-term memories."""
    return _run(node, x, states, _LSTM, _Stack(*stack))  # type: ignore[arg-type]  # by the schema


@aten("gru.input", "rnn_tanh.input", "rnn_relu.input")
def one_state(node: AtenNode, x: Node, state: Node, *stack: object) -> list[Node]:
    """Convert layers with one state."""
    kind = _ONE_STATE[node.op.split(".")[1]]
    return _run(node, x, [state], kind, _Stack(*stack))  # type: ignore[arg-type]  # by the schema
