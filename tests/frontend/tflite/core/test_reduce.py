# SPDX-License-Identifier: Apache-2.0
"""Reductions against the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.tflite.models import Graph, Scale
from tests.frontend.tflite.oracle import check

pytestmark = pytest.mark.tflite


@pytest.mark.parametrize("op", ["MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN"])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("axes", [(1, 2), (-1,), (0, 3)])
def test_reductions(op: str, keep: bool, axes: tuple[int, ...]) -> None:
    g = Graph()
    shape = (2, 3, 4, 5)
    gone = {a % 4 for a in axes}
    kept = [1 if k in gone else d for k, d in enumerate(shape) if keep or k not in gone]
    x = g.input("x", shape)
    check(g.result(g.op(op, (x, g.constant(axes, "int32")), kept, options={"keep_dims": keep})))


@pytest.mark.parametrize("op", ["REDUCE_ANY", "REDUCE_ALL"])
def test_truth_values(op: str) -> None:
    g = Graph()
    x = g.input("x", (30, 2), "bool")
    check(g.result(g.op(op, (x, g.constant([1], "int32")), (30,), "bool", options={})))


@pytest.mark.parametrize("op", ["MEAN", "REDUCE_MAX"])
def test_quantised_reductions(op: str) -> None:
    g = Graph()
    x = g.input("x", (1, 6, 6, 5), "int8", Scale(0.05, -3))
    spread = {"MEAN": Scale(0.03, 2), "REDUCE_MAX": Scale(0.05, -3)}[op]
    axes = g.constant([1, 2], "int32")
    check(g.result(g.op(op, (x, axes), (1, 5), "int8", spread, {"keep_dims": False})))


@pytest.mark.parametrize(("op", "name"), [("ARG_MAX", 2), ("ARG_MIN", 4)])
def test_places_of_extremes(op: str, name: int) -> None:
    g = Graph()
    x = g.input("x", (3, 9))
    dtype = "int32" if name == 2 else "int64"
    check(
        g.result(
            g.op(op, (x, g.constant([1], "int32")), (3,), dtype, options={"output_type": name})
        )
    )


def test_top_of_equal_elements() -> None:
    g = Graph()
    x = g.input("x", (3, 9))
    both = g.multi(
        "TOPK_V2", (x, g.constant(4, "int32")), [((3, 4), "float32", None), ((3, 4), "int32", None)]
    )
    given = np.random.default_rng(0).integers(0, 4, (3, 9)).astype("float32")
    check(g.result(*both), inputs={"x": given})


@pytest.mark.parametrize(("exclusive", "reverse"), [(False, False), (True, False), (False, True)])
def test_running_sum(exclusive: bool, reverse: bool) -> None:
    g = Graph()
    options = {"exclusive": exclusive, "reverse": reverse}
    made = g.op("CUMSUM", (g.input("x", (3, 6)), g.constant(1, "int32")), (3, 6), options=options)
    check(g.result(made))
