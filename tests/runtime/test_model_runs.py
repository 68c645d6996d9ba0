# SPDX-License-Identifier: Apache-2.0
"""One run after another: nothing of an earlier one, which the next is quicker by, shows in it."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import onnx
import pytest

import treadle
from tests.native import models
from treadle.build.executable import Executable
from treadle.errors import InputError
from treadle.runtime.executor import Executor
from treadle.runtime.model_outputs import ModelOutputs
from treadle.runtime.native_executor import TensorInfo

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


class Code:
    """What an executor's machine code lives in, for tests."""


def model_of(text: str) -> Executable:
    return treadle.compile(onnx.parser.parse_model(HEAD + text), dynamic=True)


@pytest.fixture(scope="module")
def sums() -> Executable:
    return model_of("g (float[n, m] x, float[n, m] y) => (float[n, m] z) { z = Add(x, y) }")


def filled(shape: tuple[int, ...], value: float) -> np.ndarray:
    return np.full(shape, value, np.float32)


def test_results_of_equal_shapes_lie_apart(sums: Executable) -> None:
    results = [sums(filled((2, 3), k), filled((2, 3), 1))[0] for k in range(200)]
    for k, result in enumerate(results):
        assert result.is_aligned
        np.testing.assert_array_equal(result.numpy(), filled((2, 3), k + 1))
    assert len({result.pointer for result in results}) == len(results)


def test_sizes_may_change_from_run_to_run(sums: Executable) -> None:
    for shape in [(2, 3), (3, 2), (2, 3), (1, 6), (300, 300), (2, 3), (0, 4), (300, 300)]:
        (z,) = sums(filled(shape, 2), filled(shape, 1))
        np.testing.assert_array_equal(z.numpy(), filled(shape, 3))


def test_more_shapes_than_are_remembered(sums: Executable) -> None:
    for _ in range(2):
        for n in range(1, 100):
            assert sums(filled((n, 1), 1), filled((n, 1), 1))[0].shape == (n, 1)


def test_a_run_that_fails_leaves_nothing(sums: Executable) -> None:
    x = filled((2, 3), 1)
    for _ in range(2):
        with pytest.raises(InputError, match="has 4 elements along axis 1"):
            sums(x, filled((2, 4), 1))
        np.testing.assert_array_equal(sums(x, x)[0].numpy(), 2 * x)


def test_sizes_that_data_decides_differ_for_equal_shapes() -> None:
    model = model_of("g (float[n] x) => (int64[1, k] y) { y = NonZero(x) }")
    for x in ([1, 0, 2], [0, 0, 0], [1, 1, 1], [0, 0, 1]):
        (y,) = model(np.array(x, np.float32))
        np.testing.assert_array_equal(y.numpy()[0], np.flatnonzero(x))


def test_sizes_that_a_branch_decides_differ_for_equal_shapes() -> None:
    model = model_of(
        "g (bool c, float[n] x) => (float[m] y) {"
        " y = If (c) <then_branch = t () => (float[n] a) { a = Neg(x) },"
        " else_branch = e () => (float[k] b) { b = Concat <axis = 0> (x, x) }> }"
    )
    x = filled((3,), 2)
    for condition in (True, False, True, False):
        (y,) = model(np.array(condition), x)
        np.testing.assert_array_equal(y.numpy(), -x if condition else np.concatenate([x, x]))


def test_inputs_that_cannot_be_written_are_read_in_place(sums: Executable) -> None:
    x = filled((4, 4), 3)
    x.flags.writeable = False
    np.testing.assert_array_equal(sums(x, np.broadcast_to(x[:1], (4, 4)))[0].numpy(), 2 * x)


def test_arrays_that_fit_are_run_without_being_looked_at_closer(sums: Executable) -> None:
    x = filled((2, 2), 1)
    (z,) = sums.executor.run_fitting({"x": x, "y": x}) or ()
    np.testing.assert_array_equal(z, 2 * x)
    for other in (x.T, x.astype("float64"), x.tolist(), x[0], treadle.array(x), None):
        assert sums.executor.run_fitting({"x": x, "y": other}) is None  # type: ignore[dict-item]
    assert sums.executor.run_fitting({"x": x}) is None
    assert sums.executor.run_fitting({"x": x, "y": x, "z": x}) is None


def test_small_results_share_a_page_and_no_byte() -> None:
    outputs = ModelOutputs((TensorInfo("y", "float32", (5,), 20),)).known()
    made = [outputs.fresh() for _ in range(300)]
    places = [place for _, (place,) in made]
    assert all(place % 64 == 0 for place in places)
    assert len(set(places)) == len(places)
    assert len({place >> 12 for place in places}) < 20
    for (view,), (place,) in made:
        assert (view.shape, view.dtype, view.ctypes.data) == ((5,), np.float32, place)


def test_runs_by_address_keep_code_and_weights() -> None:
    model = models.static(1)
    handle, kept = model.executor._streams.first.fork(), Code()
    runs, alive = Executor(handle, kept).by_address, weakref.ref(kept)
    del handle, kept
    gc.collect()
    assert alive() is not None
    results = [treadle.empty(o.shape, o.dtype) for o in model.executor.outputs]
    runs.run([x.ctypes.data for x in model.inputs], [r.pointer for r in results])
    model.compare(results)
    del runs
    gc.collect()
    assert alive() is None


def test_runs_by_address_of_sizes_that_each_run_decides(sums: Executable) -> None:
    x = filled((2, 5), 4)
    places = [x.ctypes.data, x.ctypes.data]
    for _ in range(2):
        (z,) = sums.executor.by_address.run_shaped(places, (x.shape, x.shape))
        np.testing.assert_array_equal(z, 2 * x)


def test_runs_into_outputs_that_an_earlier_run_has_shown() -> None:
    runs = model_of("g (float[n] x) => (float[n] y) { y = Add(x, x) }").executor.by_address
    x = filled((7,), 3)
    shapes = (x.shape,)
    assert runs.known_outputs(shapes) is None
    runs.run_shaped([x.ctypes.data], shapes)
    known = runs.known_outputs(shapes)
    assert known is not None
    assert list(known.shapes) == [(7,)]
    results = [filled((7,), 0) for _ in range(2)]
    for k, y in enumerate(results, 1):
        given = filled((7,), k)
        runs.run_known([given.ctypes.data], shapes, [y.ctypes.data], known)
    for k, y in enumerate(results, 1):
        np.testing.assert_array_equal(y, filled((7,), 2 * k))
