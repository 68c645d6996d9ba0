# SPDX-License-Identifier: Apache-2.0
"""Leaves sizes of a finished graph open: the same model, run at other sizes too."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np

from tests.fuzz.graph import Graph
from tests.fuzz.oracles import Refused

_SIZES = (0, 1, 1, 2, 3, 5, 6, 8, 17)
_RUNS = 3
_ATTEMPTS = 4
Place = tuple[str, int]
"""An axis of an input."""


def opened(graph: Graph, seed: int) -> Graph | None:
    """Return the graph with open sizes, None where other sizes do not fit what it does.

    Open is one axis of one input, or all axes of the same size, of which some may be 1 where the
    others are not: the oracles say what is possible.
    """
    choices = random.Random(seed)
    places = [(n, k) for n, a in graph.inputs.items() for k in range(a.ndim) if a.shape[k]]
    for _ in range(_ATTEMPTS if places else 0):
        name, axis = choices.choice(places)
        size = graph.inputs[name].shape[axis]
        alike = [(n, k) for n, k in places if graph.inputs[n].shape[k] == size]
        chosen = alike if choices.random() < 0.7 else [(name, axis)]
        others = []
        for wanted in choices.sample([s for s in _SIZES if s != size], 5):
            inputs = _resized(graph.inputs, chosen, wanted, choices)
            if len(chosen) > 1 and choices.random() < 0.5:
                few = choices.sample(chosen, choices.randint(1, len(chosen) - 1))
                inputs = _resized(inputs, few, 1, choices) if wanted else inputs
            if len(others) < _RUNS and _is_valid(graph, inputs):
                others.append(inputs)
        if others:
            return graph.copy(others=others)
    return None


def _resized(
    inputs: Mapping[str, np.ndarray], places: list[Place], size: int, choices: random.Random
) -> dict[str, np.ndarray]:
    """Return inputs with axes of another size; their elements are some of those there were."""
    found = dict(inputs)
    for name, axis in places:
        rows = [choices.randrange(found[name].shape[axis]) for _ in range(size)]
        found[name] = np.take(found[name], rows, axis)
    return found


def _is_valid(graph: Graph, inputs: Mapping[str, np.ndarray]) -> bool:
    """Tell whether the oracles know what a graph gives for inputs of other sizes.

    What a loop that never runs collects has the sizes that its body declares, by onnxruntime:
    those of the first inputs.
    """
    try:
        values = graph.values(inputs)
    except Refused:
        return False
    rows = [n.output[1] for n in graph.nodes if n.op_type == "Loop" and len(n.output) > 1]
    return all(values[row].shape[0] for row in rows)
