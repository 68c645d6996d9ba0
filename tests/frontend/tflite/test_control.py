# SPDX-License-Identifier: Apache-2.0
"""Subgraphs that run: branches, loops and calls against the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.tflite.models import Graph
from tests.frontend.tflite.oracle import check

pytestmark = pytest.mark.tflite


def branch(op: str) -> Graph:
    g = Graph(op.lower())
    a, b = g.input("a", (3,)), g.input("b", (3,))
    return g.result(g.op(op, (a, b), (3,), options={}))


@pytest.mark.parametrize("condition", [True, False])
def test_if(condition: bool) -> None:
    g = Graph()
    c, a, b = g.input("c", (1,), "bool"), g.input("a", (3,)), g.input("b", (3,))
    options = {"then_subgraph_index": 1, "else_subgraph_index": 2}
    g.result(g.op("IF", (c, a, b), (3,), options=options))
    values = np.arange(3, dtype="float32")
    given = {"c": np.array([condition]), "a": values, "b": values + 2}
    check(g, branch("ADD"), branch("MUL"), inputs=given)


def test_while() -> None:
    g = Graph()
    count, x = g.input("count", (), "int32"), g.input("x", (2, 3))
    results = [((), "int32", None), ((2, 3), "float32", None)]
    options = {"cond_subgraph_index": 1, "body_subgraph_index": 2}
    g.result(*g.multi("WHILE", (count, x), results, options))
    test = Graph("test")
    number = test.input("number", (), "int32")
    test.input("value", (2, 3))
    test.result(test.op("LESS", (number, test.constant(7, "int32")), (), "bool"))
    body = Graph("body")
    number, value = body.input("number", (), "int32"), body.input("value", (2, 3))
    after = body.op("ADD", (number, body.constant(2, "int32")), (), "int32", options={})
    body.result(after, body.op("MUL", (value, body.constant(1.5, "float32")), (2, 3), options={}))
    given = {"count": np.array(0, "int32"), "x": np.ones((2, 3), "float32")}
    check(g, test, body, inputs=given)
