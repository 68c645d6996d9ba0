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
from treadle.settings import use

pytestmark = pytest.mark.tiny

WORDS, WIDTH = 1000, 96
TABLE = np.random.default_rng(0).standard_normal((WORDS, WIDTH)).astype(np.float32)


def tied(
    axis: int = 0, rows: int = 5, words: np.ndarray = TABLE
) -> tuple[Constant, Node, Node, list[Var]]:
    """Return a table, rows of it, its product with values, and the inputs of both."""
    table = Constant.of(words)
    count, width = words.shape
    at = Var("words", TensorType((3, 4), "int64"))
    x = Var("x", TensorType((rows, width), "float32"))
    turned = Constant(table.value.T, TensorType((width, count), "float32"))
    return table, gather(table, at, axis=axis), matmul(x, turned), [at, x]


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


LARGE = np.random.default_rng(0).standard_normal((2080, 1024)).astype(np.float32)
"""The words of a product that Strassen's algorithm computes; its panels are an odd number."""


def large(words: np.ndarray) -> tuple[Counter[str], int]:
    """Return the operators of rows and a product with many rows, and the bytes of all constants."""
    _, rows, product, params = tied(rows=1500, words=words)
    with use(weight_growth=0):
        made = choose_layouts(function(rows, product, params=params), AVX512)
    nodes = list(topological([made.body]))
    found = Counter(n.op.name for n in nodes if isinstance(n, Call) and isinstance(n.op, Operator))
    return found, sum(n.type.nbytes for n in nodes if isinstance(n, Constant))


def test_rows_are_read_from_panels_that_a_run_adds_up() -> None:
    found, size = large(LARGE)
    assert found == {"gather_packed": 1, "strassen_blocks": 1, "dense_strassen": 1}
    assert size < 1.1 * LARGE.nbytes
    _, rows, product, params = tied(rows=1500, words=LARGE)
    before = function(rows, product, params=params)
    assert_same(before, choose_layouts(before, AVX512), rtol=1e-4)


def test_words_of_very_different_sizes_are_held_once_too() -> None:
    """Divided by powers of two the panels would not be the table's: it would be there twice."""
    words = LARGE.copy()
    words[7] *= 1e3
    found, size = large(words)
    assert found == {"gather_packed": 1, "dense_packed": 1}
    assert size < 1.1 * LARGE.nbytes
