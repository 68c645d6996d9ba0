# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers against the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.tflite.models import Graph, model
from tests.frontend.tflite.oracle import check
from treadle.errors import ModelError
from treadle.frontend.tflite.importer import import_tflite

pytestmark = pytest.mark.tflite

RANDOM = np.random.default_rng(0)
STEPS, BATCH, FEATURES, HIDDEN = 5, 2, 4, 3
LSTM = {"fused_activation_function": 4, "cell_clip": 0.0, "proj_clip": 0.0, "time_major": False}


def normal(*shape: int) -> np.ndarray:
    return (RANDOM.normal(size=shape) * 0.5).astype("float32")


def lstm_inputs(g: Graph, *, coupled: bool = False, peepholes: bool = False) -> list[int]:
    """Return the 17 weights of one direction."""
    made = [g.constant(normal(HIDDEN, FEATURES)) for _ in range(4)]
    made += [g.constant(normal(HIDDEN, HIDDEN)) for _ in range(4)]
    made += [g.constant(normal(HIDDEN)) if peepholes else -1 for _ in range(3)]
    made += [g.constant(normal(HIDDEN)) for _ in range(4)]
    if coupled:
        made[0] = made[4] = made[8] = made[11] = -1
    return [*made, -1, -1]


def sequence(g: Graph, time_major: bool) -> int:
    return g.input("x", (STEPS, BATCH, FEATURES) if time_major else (BATCH, STEPS, FEATURES))


@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("kind", [{}, {"coupled": True}, {"peepholes": True}])
def test_lstm(time_major: bool, kind: dict[str, bool]) -> None:
    g = Graph()
    x = sequence(g, time_major)
    states = [g.variable((BATCH, HIDDEN)), g.variable((BATCH, HIDDEN))]
    ins = [x, *lstm_inputs(g, **kind), *states]
    shape = (STEPS, BATCH, HIDDEN) if time_major else (BATCH, STEPS, HIDDEN)
    options = {**LSTM, "time_major": time_major}
    check(g.result(g.op("UNIDIRECTIONAL_SEQUENCE_LSTM", ins, shape, options=options)))


def test_cells_are_bounded() -> None:
    g = Graph()
    x = sequence(g, False)
    states = [g.variable((BATCH, HIDDEN)), g.variable((BATCH, HIDDEN))]
    ins = [x, *lstm_inputs(g), *states]
    options = {**LSTM, "cell_clip": 0.1}
    check(
        g.result(g.op("UNIDIRECTIONAL_SEQUENCE_LSTM", ins, (BATCH, STEPS, HIDDEN), options=options))
    )


@pytest.mark.parametrize("merged", [False, True])
def test_lstm_in_both_directions(merged: bool) -> None:
    """Merged with time first: of batches the reference kernel writes some over others."""
    g = Graph()
    x = sequence(g, merged)
    states = [g.variable((BATCH, HIDDEN)) for _ in range(4)]
    ins = [x, *lstm_inputs(g), *lstm_inputs(g), *states, *[-1] * 9]
    options = {**LSTM, "merge_outputs": merged, "time_major": merged}
    width = 2 * HIDDEN if merged else HIDDEN
    order = (STEPS, BATCH) if merged else (BATCH, STEPS)
    results = [((*order, width), "float32", None)] * (1 if merged else 2)
    check(g.result(*g.multi("BIDIRECTIONAL_SEQUENCE_LSTM", ins, results, options)))


def test_simple_layer() -> None:
    g = Graph()
    x = sequence(g, False)
    parts = [normal(HIDDEN, FEATURES), normal(HIDDEN, HIDDEN), normal(HIDDEN)]
    ins = [x, *map(g.constant, parts), g.variable((BATCH, HIDDEN))]
    options = {"time_major": False, "fused_activation_function": 1}
    check(
        g.result(g.op("UNIDIRECTIONAL_SEQUENCE_RNN", ins, (BATCH, STEPS, HIDDEN), options=options))
    )


def test_a_projection_is_refused() -> None:
    g = Graph()
    x = sequence(g, False)
    weights = lstm_inputs(g)
    weights[15] = g.constant(normal(2, HIDDEN))
    ins = [x, *weights, g.variable((BATCH, 2)), g.variable((BATCH, HIDDEN))]
    g.result(g.op("UNIDIRECTIONAL_SEQUENCE_LSTM", ins, (BATCH, STEPS, 2), options=LSTM))
    with pytest.raises(ModelError, match="with a projection") as caught:
        import_tflite(model(g))
    assert "index 0" in caught.value.at
    assert "projection apart" in caught.value.hint
