# SPDX-License-Identifier: Apache-2.0
"""Results take over the memory of results that were given up, and no other."""

from __future__ import annotations

import gc
import threading

import numpy as np
import onnx
import pytest

import treadle
from tests.processes import PATIENCE
from treadle.build.executable import Executable


@pytest.fixture(scope="module")
def model() -> Executable:
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\n'
        "g (float[n, m] x) => (float[n, m] y, float[m, n] z) { y = Add(x, x) z = Transpose(x) }"
    )
    return treadle.compile(graph, dynamic=True)


def x_of(rows: int, columns: int, first: int = 0) -> np.ndarray:
    return np.arange(first, first + rows * columns, dtype=np.float32).reshape(rows, columns)


def test_large_memory_that_was_given_up_is_used_again(model: Executable) -> None:
    places = {model(x_of(256, 256))[0].pointer for _ in range(4)}
    assert len(places) == 1  # the model gives up the results of the last run before the next
    y, _ = model(x_of(128, 256))
    assert y.pointer in places
    np.testing.assert_array_equal(np.asarray(y), 2 * x_of(128, 256))


def test_the_last_result_may_be_an_input(model: Executable) -> None:
    y, _ = model(x_of(256, 256))
    del y
    for _ in range(3):
        model(model.executor.get_output(0))
    np.testing.assert_array_equal(model.executor.get_output(0).numpy(), 16 * x_of(256, 256))


def test_known_sizes_take_the_same_memory() -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\n'
        "g (float[256, 256] x) => (float[256, 256] y) { y = Neg(x) }"
    )
    known = treadle.compile(graph)
    assert len({known(x_of(256, 256))[0].pointer for _ in range(4)}) == 1


def test_results_that_are_held_stay_as_they_are(model: Executable) -> None:
    held, expected = [], []
    for rows, columns in ((3, 5), (64, 64), (1, 1), (17, 2), (0, 4), (64, 64), (3, 5)):
        x = x_of(rows, columns, rows)
        y, z = model(x)
        held += [y, z] if rows % 2 else [y]
        expected += [2 * x, x.T] if rows % 2 else [2 * x]
        del y, z
    for result, values in zip(held, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(result), values)


def test_results_outlive_the_model() -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\ng (float[n] x) => (float[n] y) { y = Neg(x) }'
    )
    model = treadle.compile(graph, dynamic=True)
    (y,) = model(np.ones(1000, np.float32))
    model.executor.close()
    del model
    gc.collect()
    np.testing.assert_array_equal(np.asarray(y), -np.ones(1000, np.float32))
    del y  # its memory goes nowhere else


def test_threads_share_leftovers(model: Executable) -> None:
    wrong: list[int] = []

    def run(seed: int) -> None:
        for k in range(100):
            x = x_of(1 + (seed + k) % 7, 3 + k % 5, seed)
            y, z = model(x)
            if not np.array_equal(y, 2 * x) or not np.array_equal(z, x.T):
                wrong.append(seed)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not wrong
