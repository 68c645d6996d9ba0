# SPDX-License-Identifier: Apache-2.0
"""The benchmark of open sizes: its encoders at sizes it does not time, and what it reports."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import treadle
from benchmarks.dynamic import Row, in_turns, inputs_of, shapes_at, worst_of
from benchmarks.dynamic_models import MODELS, encoder, grid


@pytest.mark.parametrize("folded", [False, True], ids=["plain", "folded"])
def test_encoders_of_any_length(folded: bool) -> None:
    """Heads that are folded into the batch and back are read where they lie, at any length."""
    model = encoder(32, 2, layers=1, folded=folded)
    oracle = ReferenceEvaluator(model)
    executable = treadle.compile(model, dynamic=True)
    for sizes in ((1, 1), (2, 2), (3, 7), (2, 17), (1, 67)):
        inputs = inputs_of(model, dict(zip(("batch", "length"), sizes, strict=True)), 1)
        (got,), (wanted,) = executable(**inputs), oracle.run(None, inputs)
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-4, atol=1e-4)


def test_no_symbolic_division_is_left_inside_folded_attention() -> None:
    executable = treadle.compile(encoder(32, 2, layers=1, folded=True), dynamic=True)
    (kernel,) = {k for k in executable.kernels if "attend" in k.name}
    text = kernel.loop_text()
    assert "fma(" in text
    assert "// (length * 16)" not in text


def test_models_are_valid() -> None:
    names = [m.name for m in MODELS]
    assert len(set(names)) == len(names)
    for case in MODELS:
        if "768" in case.name:
            continue
        model = case.build()
        onnx.checker.check_model(model)
        assert all(shapes_at(model, sizes) for sizes in case.grid)


def test_rows() -> None:
    assert grid(a=(1, 2), b=(3,)) == [{"a": 1, "b": 3}, {"a": 2, "b": 3}]
    rows = [Row("x", "n 1", 2.0, 1.0, 2.0, 0.0), Row("x", "n 2", 3.0, 1.0, 3.0, 0.0)]
    rows.append(Row("y", "n 1", 4.0, 1.0, 4.0, 0.0))
    assert [(r.model, r.ratio) for r in worst_of(rows)] == [("y", 4.0), ("x", 3.0)]


def test_timers_take_turns() -> None:
    order: list[str] = []

    def timer(name: str, count: int) -> float:
        order.append(name)
        return 1e-3

    times = in_turns({n: lambda c, n=n: timer(n, c) for n in "ab"}, 0.0)  # type: ignore[misc]
    assert len(times["a"]) == len(times["b"]) >= 5
    assert order[-4:] == ["a", "b", "a", "b"]
