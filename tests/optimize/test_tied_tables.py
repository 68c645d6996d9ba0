# SPDX-License-Identifier: Apache-2.0
"""Tables that are looked up in and multiplied with lie in memory once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.optimize.cases import assert_same, function
from tests.targets import AVX512
from treadle.build.compile import compile_model
from treadle.graph.nodes import Call, Constant, Module, Node, Var, topological
from treadle.graph.operator import Operator
from treadle.graph.types import TensorType
from treadle.ops.elementwise import add
from treadle.ops.indexing import gather
from treadle.ops.matmul import matmul
from treadle.optimize.layout import choose_layouts

pytestmark = pytest.mark.tiny

WORDS, WIDTH = 1000, 96
TABLE = np.random.default_rng(0).standard_normal((WORDS, WIDTH)).astype(np.float32)


def tied(axis: int = 0) -> tuple[Constant, Node, Node, list[Var]]:
    """Return a table, rows of it, its product with values, and the inputs of both."""
    table = Constant.of(TABLE)
    words = Var("words", TensorType((3, 4), "int64"))
    x = Var("x", TensorType((5, WIDTH), "float32"))
    turned = Constant(table.value.T, TensorType((WIDTH, WORDS), "float32"))
    return table, gather(table, words, axis=axis), matmul(x, turned), [words, x]


def operators(*outputs: Node, params: list[Var]) -> Counter[str]:
    made = choose_layouts(function(*outputs, params=params), AVX512)
    nodes = [n for n in topological([made.body]) if isinstance(n, Call)]
    return Counter(n.op.name for n in nodes if isinstance(n.op, Operator))


def test_rows_are_read_from_the_panels_of_the_product() -> None:
    _, rows, product, params = tied()
    before = function(rows, product, params=params)
    assert_same(before, choose_layouts(before, AVX512), rtol=1e-4)
    assert operators(rows, product, params=params) == {"gather_packed": 1, "dense_packed": 1}


def test_a_table_that_something_else_reads_stays() -> None:
    table, rows, product, params = tied()
    other = add(table, Constant.of(np.float32(1)))
    found = operators(rows, product, other, params=params)
    assert found["gather"] == 1
    assert found["gather_packed"] == 0


def test_columns_and_tables_without_a_product_stay() -> None:
    _, rows, _, params = tied()
    assert operators(rows, params=params) == {"gather": 1}
    _, columns, product, params = tied(axis=1)
    assert operators(columns, product, params=params)["gather"] == 1


def test_a_compiled_model_holds_the_table_once_and_looks_up_every_row() -> None:
    _, rows, product, params = tied()
    words = np.array([[0, 1, 31, 32], [33, 500, 998, 999], [-1, -1000, 7, 992]])
    x = np.ones((5, WIDTH), np.float32)
    executable = compile_model(Module(function(rows, product, params=params), ("rows", "product")))
    assert executable.weight_bytes < 1.1 * TABLE.nbytes
    found, _ = (np.asarray(output) for output in executable.run([words, x]))
    assert np.array_equal(found, TABLE[words])
