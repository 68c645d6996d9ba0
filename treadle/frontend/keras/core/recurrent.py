# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers, and wrappers that call a layer for every step or in both directions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    converted,
    dims_of,
    reshaped,
    transposed,
)
from treadle.frontend.builders.dynamic_operands import AxisRange
from treadle.frontend.builders.elementwise import mean_of
from treadle.frontend.builders.movement import concatenated, cut, sliced
from treadle.frontend.builders.recurrent import (
    DirectionWeights,
    Sequences,
    gru,
    lstm,
    rnn,
    with_gates,
)
from treadle.frontend.keras.archive import Weights
from treadle.frontend.keras.core.activation import function_of
from treadle.frontend.keras.layer import CONVERTERS, Description, KerasLayer, Result, layer, rank
from treadle.graph.nodes import Node
from treadle.graph.types import normal_size
from treadle.ops import elementwise as ew

_FAR = 1 << 40
_LSTM_ORDER = (0, 3, 1, 2)
"""Keras stores input, forget, cell and output gate."""


@dataclass(frozen=True, slots=True)
class _Run:
    """All states of a layer [batch, steps, hidden] as time goes, and the last ones."""

    outputs: Node
    last: list[Node]


def _directed(
    use: KerasLayer, what: Description, weights: Weights, x: Node, backwards: bool
) -> _Run:
    """Return one recurrent layer over [batch, steps, features], from the last step if asked."""
    one = KerasLayer(what, weights.child("cell"), use.args, use.kwargs, use.origin)
    mask = None if use.mask is None else transposed(converted(use.mask, "bool"), (1, 0))
    is_zero = one.flag("zero_output_for_mask")
    over = Sequences(transposed(x, (1, 0, 2)), None, use.origin, mask, is_zero)
    start = tuple(s for s in _initial(use)) or ()
    run: Callable[..., list[Node]]
    if what.class_name == "LSTM":
        run, given = lstm, _lstm_weights(one, start, backwards)
    elif what.class_name == "GRU":
        after = one.flag("reset_after", True)
        given = _gru_weights(one, start, backwards, after)
        made = gru(over, [given], linear_before_reset=after)
        return _arranged(made)
    elif what.class_name == "SimpleRNN":
        run, given = rnn, _simple_weights(one, start, backwards)
    else:
        raise ModelError(f"the recurrent layer {what.class_name} is not supported")
    return _arranged(run(over, [given]))


def _initial(use: KerasLayer) -> list[Node]:
    """Return the first states that a layer is called with."""
    given = use.kwargs.get("initial_state")
    if given is None and len(use.args) > 1:
        given = use.args[1]
    if isinstance(given, Node):
        return [use.cast(given)]
    return [use.cast(v) for v in given] if isinstance(given, list) else []


def _arranged(made: list[Node]) -> _Run:
    whole, *last = made
    steps, _, batch, hidden = dims_of(whole)
    outputs = transposed(reshaped(whole, (steps, batch, hidden)), (1, 0, 2))
    return _Run(outputs, [reshaped(v, dims_of(v)[1:]) for v in last])


def _transposed(x: Node) -> Node:
    return transposed(x, (1, 0))


def _lstm_weights(one: KerasLayer, start: tuple[Node, ...], backwards: bool) -> DirectionWeights:
    gates, states = (function_of(one.setting(n)) for n in ("recurrent_activation", "activation"))
    bias = with_gates(one.weight(2), _LSTM_ORDER) if one.flag("use_bias", True) else None
    return DirectionWeights(
        weights=with_gates(_transposed(one.weight(0)), _LSTM_ORDER),
        recurrence=with_gates(_transposed(one.weight(1)), _LSTM_ORDER),
        bias=bias,
        start=start,
        functions=(gates, states, states),
        backwards=backwards,
    )


def _gru_weights(
    one: KerasLayer, start: tuple[Node, ...], backwards: bool, after: bool
) -> DirectionWeights:
    """Return the weights of a GRU, which has two biases where it resets after the product."""
    gates, states = (function_of(one.setting(n)) for n in ("recurrent_activation", "activation"))
    bias = state_bias = None
    if one.flag("use_bias", True):
        both: Node = one.weight(2)
        width = dims_of(both)[-1]
        if after:
            bias, state_bias = (
                reshaped(cut(both, [(k, k + 1)], (1,), (0,)), (width,)) for k in (0, 1)
            )
        else:
            bias = both
    return DirectionWeights(
        weights=_transposed(one.weight(0)),
        recurrence=_transposed(one.weight(1)),
        bias=bias,
        state_bias=state_bias,
        start=start,
        functions=(gates, states),
        backwards=backwards,
    )


def _simple_weights(one: KerasLayer, start: tuple[Node, ...], backwards: bool) -> DirectionWeights:
    return DirectionWeights(
        weights=_transposed(one.weight(0)),
        recurrence=_transposed(one.weight(1)),
        bias=one.weight(2) if one.flag("use_bias", True) else None,
        start=start,
        functions=(function_of(one.setting("activation")),),
        backwards=backwards,
    )


def _in_order_made(run: _Run, backwards: bool) -> Node:
    """Return the outputs in the order that they were made in."""
    return sliced(run.outputs, [AxisRange(1, -1, -_FAR, -1)]) if backwards else run.outputs


def _last_output(run: _Run) -> Node:
    return run.last[0]


def _check(use: KerasLayer, what: Description, x: Node) -> None:
    if what.config.get("stateful"):
        raise ModelError(
            "a stateful recurrent layer is not supported",
            hint="save it with stateful=False, and its states as inputs and outputs",
        )
    if rank(x) != 3:
        raise ModelError(f"{use.class_name} takes [batch, steps, features], not {x.type}")


@layer("LSTM", "GRU", "SimpleRNN")
def recurrent(use: KerasLayer) -> Result:
    """Convert a recurrent layer: all of its outputs or the last, and its states where wanted."""
    x, what = use.input(), use.what
    _check(use, what, x)
    backwards = use.flag("go_backwards")
    run = _directed(use, what, use.weights, x, backwards)
    if use.flag("return_sequences"):
        made = _in_order_made(run, backwards)
        use.made_mask = None if backwards else use.mask
    else:
        made = _masked_last(use, run, backwards)
    return [made, *run.last] if use.flag("return_state") else made


def _masked_last(use: KerasLayer, run: _Run, backwards: bool) -> Node:
    """Return the output of the last step: the last state, unless masked outputs are zero."""
    if use.mask is None or not use.flag("zero_output_for_mask"):
        return _last_output(run)
    batch, _, hidden = dims_of(run.outputs)
    begin, end = (0, 1) if backwards else (-1, _FAR)
    return reshaped(sliced(run.outputs, [AxisRange(1, begin, end)]), (batch, hidden))


_MERGES: dict[str, Callable[[list[Node]], Node]] = {
    "concat": lambda v: concatenated(v, rank(v[0]) - 1),
    "sum": lambda v: reduce(ew.add, v),
    "mul": lambda v: reduce(ew.multiply, v),
    "ave": mean_of,
}


@layer("Bidirectional")
def bidirectional(use: KerasLayer) -> Result:
    """Convert a layer from the first step on and one from the last, merged."""
    x, forward = use.input(), use.what.part("layer")
    _check(use, forward, x)
    backward = use.what.part("backward_layer") if use.setting("backward_layer") else forward
    if _initial(use):
        raise ModelError("first states of a bidirectional layer are not supported")
    one = _directed(use, forward, use.weights.child("forward_layer"), x, False)
    other = _directed(use, backward, use.weights.child("backward_layer"), x, True)
    if forward.config.get("return_sequences"):
        parts = [one.outputs, other.outputs]
        use.made_mask = use.mask
    else:
        parts = [_last_output(one), _last_output(other)]
        if use.mask is not None and forward.config.get("zero_output_for_mask"):
            inner = [KerasLayer(w, use.weights, (), {}, use.origin, use.mask)
                     for w in (forward, backward)]  # fmt: skip
            parts = [_masked_last(inner[0], one, False), _masked_last(inner[1], other, True)]
    mode = use.setting("merge_mode", "concat")
    if mode is not None and mode not in _MERGES:
        raise ModelError(f"the merge mode {mode!r} of a bidirectional layer is not known")
    made = parts if mode is None else [_MERGES[mode](parts)]
    states = [*one.last, *other.last] if forward.config.get("return_state") else []
    return [*made, *states]


@layer("TimeDistributed")
def time_distributed(use: KerasLayer) -> Node:
    """Convert a layer that is called for every step: for all of them as one batch."""
    x, what = use.input(), use.what.part("layer")
    convert = CONVERTERS.find(what.domain, what.class_name, 1, exact=False)
    if convert is None:
        raise ModelError(f"the layer {what.class_name} for every step is not supported")
    batch, steps, *rest = dims_of(x)
    rows = reshaped(x, (normal_size(batch * steps), *rest))
    inner = KerasLayer(what, use.weights.child("layer"), (rows,), {}, use.origin)
    made = convert(inner)
    if not isinstance(made, Node):
        raise ModelError(f"the layer {what.class_name} for every step gives several values")
    use.made_mask = use.mask
    return reshaped(made, (batch, steps, *dims_of(made)[1:]))
