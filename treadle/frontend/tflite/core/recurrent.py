# SPDX-License-Identifier: Apache-2.0
"""Converters of recurrent layers; quantised ones are computed as real numbers."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.errors import ModelError
from treadle.frontend.builders.activations import Activation, activation
from treadle.frontend.builders.basic import dims_of, reshaped, transposed
from treadle.frontend.builders.recurrent import DirectionWeights, Sequences, lstm, rnn
from treadle.frontend.tflite.node import Result, TfliteNode, activated, converter
from treadle.graph.nodes import Node
from treadle.ops import elementwise, movement

_GATES = ("input", "forget", "cell", "output")
"""The order of the gates among the inputs of an LSTM."""


def _parts(node: TfliteNode, first: int) -> list[Node | None]:
    return [node.optional_real(first + k) for k in range(len(_GATES))]


def _joined(parts: Sequence[Node | None], what: str) -> Node:
    """Return the parts of input, output, forget gate and cell as one.

    Where the input gate is left out it is 1 - the forget gate: sigmoid(-x) = 1 - sigmoid(x).
    """
    into, forget, cell, out = parts
    if forget is None or cell is None or out is None:
        raise ModelError(f"an LSTM lacks {what}")
    return movement.concat(elementwise.negative(forget) if into is None else into, out, forget,
                           cell, axis=0)  # fmt: skip


def _peepholes(node: TfliteNode, first: int, coupled: bool) -> Node | None:
    """Return the weights of the cell in the input, output and forget gate."""
    into, forget, out = (node.optional_real(first + k) for k in range(3))
    if forget is None or out is None:
        return None
    if into is None and not coupled:
        return None
    return movement.concat(elementwise.negative(forget) if into is None else into, out, forget,
                           axis=0)  # fmt: skip


def _direction(
    node: TfliteNode, first: int, states: tuple[int, int], backwards: bool
) -> DirectionWeights:
    """Return the weights of one direction, whose inputs begin at `first`."""
    if node.has_input(first + 15) or node.has_input(first + 16):
        raise ModelError(
            "an LSTM with a projection is not supported",
            hint="convert the model with the layer and its projection apart",
        )
    weights, biases = _parts(node, first), _parts(node, first + 11)
    coupled = weights[0] is None
    return DirectionWeights(
        weights=_joined(weights, "weights of its inputs"),
        recurrence=_joined(_parts(node, first + 4), "weights of its state"),
        bias=_joined(biases, "biases"),
        start=tuple(node.optional_real(k) for k in states),
        functions=(activation("sigmoid"), _state_function(node), _state_function(node)),
        backwards=backwards,
        peepholes=_peepholes(node, first + 8, coupled),
    )


def _state_function(node: TfliteNode) -> Activation:
    name = node.activation
    return lambda x: activated(x, name)


def _sequences(node: TfliteNode) -> Sequences:
    """Return the input as [steps, batch, features]."""
    x = node.real(0)
    if len(dims_of(x)) != 3:
        raise ModelError(f"{node.op} takes sequences of rank 3, not {node.type(0)}")
    return Sequences(x if _is_time_major(node) else transposed(x, (1, 0, 2)), name=node.origin)


def _is_time_major(node: TfliteNode) -> bool:
    return node.options.flag("time_major")


def _outputs(node: TfliteNode, states: Node) -> list[Node]:
    """Return states [steps, directions, batch, hidden] as the results of each direction."""
    steps, count, batch, hidden = dims_of(states)
    made = []
    for k in range(int(str(count))):
        one = movement.slice_(states, begin=(k,), end=(k + 1,), axes=(1,)) if count != 1 else states
        rows = reshaped(one, (steps, batch, hidden))
        made.append(rows if _is_time_major(node) else transposed(rows, (1, 0, 2)))
    return made


def _merged(node: TfliteNode, states: Node) -> Result:
    """Return both directions side by side, or one behind the other."""
    made = _outputs(node, states)
    if node.options.flag("merge_outputs"):
        return node.stored(movement.concat(*made, axis=2))
    return [node.stored(x, k) for k, x in enumerate(made)]


@converter("UNIDIRECTIONAL_SEQUENCE_LSTM")
def unidirectional_lstm(node: TfliteNode) -> Node:
    """Convert a long short-term memory over sequences."""
    _refuse_others(node, range(20, 24), "with layer normalisation")
    if node.options.flag("diagonal_recurrent_tensors"):
        raise ModelError("an LSTM with diagonal weights of its state is not supported")
    weights = _direction(node, 1, (18, 19), False)
    states, *_ = lstm(_sequences(node), [weights], cell_clip=node.options.number("cell_clip"))
    return node.stored(_outputs(node, states)[0])


@converter("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_lstm(node: TfliteNode) -> Result:
    """Convert a long short-term memory in both directions."""
    _refuse_others(node, range(39, 48), "with a second input")
    both = [_direction(node, 1, (35, 36), False), _direction(node, 18, (37, 38), True)]
    states, *_ = lstm(_sequences(node), both, cell_clip=node.options.number("cell_clip"))
    return _merged(node, states)


def _refuse_others(node: TfliteNode, inputs: Sequence[int], what: str) -> None:
    if any(node.has_input(k) for k in inputs):
        raise ModelError(
            f"{node.op} {what} is not supported",
            hint="convert the model without it, or with the layer unrolled",
        )


def _simple(node: TfliteNode, first: int, backwards: bool) -> DirectionWeights:
    return DirectionWeights(
        weights=node.real(first),
        recurrence=node.real(first + 1),
        bias=node.real(first + 2),
        start=(node.optional_real(first + 3),),
        functions=(_state_function(node),),
        backwards=backwards,
    )


@converter("UNIDIRECTIONAL_SEQUENCE_RNN")
def unidirectional_rnn(node: TfliteNode) -> Node:
    """Convert a simple recurrent layer over sequences."""
    states, *_ = rnn(_sequences(node), [_simple(node, 1, False)])
    return node.stored(_outputs(node, states)[0])


@converter("BIDIRECTIONAL_SEQUENCE_RNN")
def bidirectional_rnn(node: TfliteNode) -> Result:
    """Convert a simple recurrent layer in both directions."""
    _refuse_others(node, range(9, 12), "with a second input")
    states, *_ = rnn(_sequences(node), [_simple(node, 1, False), _simple(node, 5, True)])
    return _merged(node, states)
