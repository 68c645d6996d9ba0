# SPDX-License-Identifier: Apache-2.0
"""Compiles a graph at several levels and holds every output against what the oracles say."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from tests.fuzz.graph import Graph, Value, epsilon
from treadle import dtype as dt
from treadle.build.compile import compile_model
from treadle.errors import InputError, InternalError, ModelError, TreadleError
from treadle.frontend.onnx.importer import import_onnx

LEVELS = (0, 3)
_SHADOWS = 8.0
"""How many times the difference of a value and its shadow a result may depart."""
_UNITS = 32.0
"""What it may depart beside, in half units in the last place of the largest element."""


@dataclass(frozen=True)
class Finding:
    """What went wrong: `kind` is wrong, error, refused (an honest error) or crash."""

    kind: str
    text: str
    level: int = -1

    @property
    def key(self) -> tuple[str, str]:
        """Return what two findings of the same cause share, as far as one can tell."""
        return self.kind, self.text.split(":")[0] if self.kind == "wrong" else self.text[:60]

    def __str__(self) -> str:
        return f"{self.kind} at level {self.level}: {self.text}"


def check_graph(graph: Graph, levels: Sequence[int] = LEVELS) -> Finding | None:
    """Return the first finding, None where every output is right at every level."""
    expected = [graph.values(inputs) for inputs in graph.runs]
    model = graph.model()
    for level in levels:
        results = _results(graph, model, level)
        if isinstance(results, Finding):
            return results
        for values, outputs in zip(expected, results, strict=True):
            for name, output in zip(graph.outputs, outputs, strict=True):
                text = departure(output, values[name])
                if text:
                    return Finding("wrong", f"{_producer(graph, name)}: {name} {text}", level)
    return None


def _results(graph: Graph, model: onnx.ModelProto, level: int) -> list[list[np.ndarray]] | Finding:
    """Return the outputs of every run of the compiled model, or why there are none."""
    try:
        # Imported anew: nothing of one level may reach the other.
        module = import_onnx(model, dynamic=bool(graph.others)).module
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled = compile_model(module, opt_level=level)
            return [[np.asarray(o) for o in compiled.run(inputs)] for inputs in graph.runs]
    except InternalError as error:
        return Finding("error", str(error), level)
    except (ModelError, InputError) as error:  # open sizes may not fit the kernels made for them
        return Finding("refused", error.problem, level)
    except (TreadleError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        return Finding("error", f"{type(error).__name__}: {error}", level)


def _producer(graph: Graph, name: str) -> str:
    return next((n.op_type for n in graph.nodes if name in n.output), "input")


def departure(found: np.ndarray, expected: Value) -> str:
    """Return how a result differs from what is expected, nothing where it does not."""
    array = expected.array
    if found.dtype != array.dtype or found.shape != array.shape:
        return f"is {found.dtype}{list(found.shape)}, not {array.dtype}{list(array.shape)}"
    if expected.is_exact or not dt.is_float(expected.dtype):
        same = (found == array) | ((found != found) & (array != array))
        return "" if np.all(same) else f"differs in {np.sum(~same)} of {same.size} elements"
    wide, given = found.astype(np.float64), array.astype(np.float64)
    drift = np.max(np.abs(given - expected.shadow.astype(np.float64)), initial=0.0)
    most = np.max(np.abs(given), initial=0.0)
    smallest = float(np.finfo(np.float16).tiny) if expected.dtype == "float16" else 1e-30
    bound = _SHADOWS * drift + _UNITS * epsilon(array.dtype) * most + smallest
    worst = np.max(np.abs(wide - given), initial=0.0)
    if worst <= bound:
        return ""
    return f"departs by {worst:.3g}, the bound is {bound:.3g}, the largest element {most:.3g}"
