# SPDX-License-Identifier: Apache-2.0
"""Random numbers: of the right distribution, new in each run, the same for a seed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.frontend.onnx.models import make, outputs_of
from treadle.build.compile import compile_model
from treadle.build.load import load
from treadle.build.loaded import Runnable
from treadle.errors import ModelError
from treadle.frontend.onnx.importer import import_onnx

COUNT = 20_000


def _drawn(kind: str, **attributes: object) -> np.ndarray:
    node = helper.make_node(kind, [], ["y"], shape=[COUNT // 100, 100], **attributes)
    model = make([node], {}, ["y"], 22)
    (value,) = outputs_of(model, {})
    return value


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16])
def test_uniform_numbers_fill_their_interval_evenly(dtype: int) -> None:
    values = _drawn("RandomUniform", low=-1.0, high=3.0, dtype=dtype).astype("float64")
    assert values.min() >= -1
    assert values.max() <= 3
    counts, _ = np.histogram(values, 16, (-1, 3))
    expected = COUNT / 16
    assert ((counts - expected) ** 2 / expected).sum() < 45  # chi squared: 1 in 10,000 is above
    flat = values.ravel() - values.mean()
    assert abs((flat[1:] * flat[:-1]).mean() / flat.var()) < 0.03


def test_normal_numbers_have_their_moments() -> None:
    values = (_drawn("RandomNormal", mean=2.0, scale=0.5) - 2) / 0.5
    assert np.isfinite(values).all()
    for power, moment in enumerate((0, 1, 0, 3), 1):
        assert abs((values.astype("float64") ** power).mean() - moment) < 0.2 * max(moment, 0.2)


def test_a_seed_decides() -> None:
    first, again = (_drawn("RandomUniform", seed=1.0) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert (first != _drawn("RandomUniform", seed=2.0)).mean() > 0.99


def test_nodes_draw_other_numbers_at_every_size_and_say_so() -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["a"], name="first"),
        helper.make_node("RandomNormalLike", ["x"], ["b"], name="second"),
    ]
    model = make(nodes, {"x": ["n", 8]}, ["a", "b"], 22)
    (note,) = import_onnx(model, dynamic=True).notes
    assert note.startswith("each run draws other random numbers")
    executable = compile_model(model, dynamic=True)
    for count in (3, 40):
        x = np.zeros((count, 8), np.float32)
        a, b = map(np.asarray, executable(x))
        assert a.shape == (count, 8)
        assert len(np.unique(np.concatenate([a, b]))) > 2 * a.size - 3


def test_a_seed_of_a_node_means_the_same_compiled_and_not() -> None:
    node = helper.make_node("RandomNormalLike", ["x"], ["a"], seed=3.0)
    model = make([node], {"x": [40, 8]}, ["a"], 22)
    x = np.zeros((40, 8), np.float32)
    executable = compile_model(model)
    first, again = (np.asarray(executable(x)[0]) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(first, outputs_of(model, {"x": x})[0], rtol=1e-5, atol=1e-6)


def _draws(executable: Runnable, count: int) -> list[np.ndarray]:
    return [np.asarray(executable.run({})[0]).copy() for _ in range(count)]


def _all_differ(arrays: list[np.ndarray]) -> bool:
    return len({a.tobytes() for a in arrays}) == len(arrays)


@pytest.mark.parametrize("level", [0, 3])
def test_each_run_and_each_executable_draws_anew_unless_seeded(level: int, tmp_path: Path) -> None:
    node = helper.make_node("RandomUniform", [], ["y"], shape=[2, 50])
    model = make([node], {}, ["y"], 22)
    first = compile_model(model, opt_level=level)
    first.save(tmp_path / "net.tar")
    others = [compile_model(model, opt_level=level), load(tmp_path / "net.tar")]
    drawn = [a for e in (first, *others) for a in _draws(e, 3)]
    assert _all_differ(drawn)
    sequences = []
    for executable in (first, *others):
        executable.seed(7)
        sequences.append(np.stack(_draws(executable, 3)))
        assert _all_differ(list(sequences[-1]))
    np.testing.assert_array_equal(sequences[0], sequences[1])
    np.testing.assert_array_equal(sequences[0], sequences[2])
    first.seed(8)
    assert not np.array_equal(_draws(first, 1)[0], sequences[0][0])


def test_equal_nodes_draw_other_numbers() -> None:
    nodes = [helper.make_node("RandomUniform", [], [y], shape=[50]) for y in "ab"]
    a, b = compile_model(make(nodes, {}, ["a", "b"], 22)).run({})
    assert not np.array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("is_known", [True, False])
def test_every_iteration_draws_anew(is_known: bool) -> None:
    """Of a loop that is unrolled, and of one that the run decides."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("RandomUniform", [], ["row"], shape=[20]),
            helper.make_node("Identity", ["c"], ["go_on"]),
        ],
        "body",
        [value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, [])],
        [value("go_on", TensorProto.BOOL, []), value("row", TensorProto.FLOAT, [20])],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["count", ""], ["rows"], body=body)],
        "net",
        [] if is_known else [value("count", TensorProto.INT64, [])],
        [value("rows", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(4), "count")] if is_known else [],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=9)
    executable = compile_model(model)
    inputs = {} if is_known else {"count": np.array(4)}
    rows = [row for _ in range(2) for row in np.asarray(executable.run(inputs)[0]).copy()]
    assert len(rows) == 8
    assert _all_differ(rows)
    for _ in range(2):
        executable.seed(1)
        again = np.asarray(executable.run(inputs)[0]).copy()
        executable.seed(1)
        np.testing.assert_array_equal(again, np.asarray(executable.run(inputs)[0]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_draws_other_numbers() -> None:
    model = make([helper.make_node("RandomUniform", [], ["y"], shape=[8])], {}, ["y"], 22)
    executable = compile_model(model)
    executable.executor.num_threads = 1
    _draws(executable, 1)
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(into, _draws(executable, 1)[0].tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = np.frombuffer(os.read(out, 32), np.float32)
    assert len(theirs) == 8
    assert not np.array_equal(theirs, _draws(executable, 1)[0])


@pytest.mark.parametrize("seed", [None, 5])
def test_dropout_in_training_drops_its_share_and_scales_the_rest(seed: int | None) -> None:
    given = {} if seed is None else {"seed": seed}
    node = helper.make_node("Dropout", ["x", "ratio", "training"], ["y", "mask"], **given)
    constants = {"ratio": np.array(0.25, np.float32), "training": np.array(True)}
    model = make([node], {"x": [200, 100]}, ["y"], 22, constants)
    model.graph.output.append(helper.make_tensor_value_info("mask", TensorProto.BOOL, [200, 100]))
    executable = compile_model(model)
    x = np.full((200, 100), 3, np.float32)
    runs = [[np.asarray(o).copy() for o in executable(x)] for _ in range(2)]
    for y, mask in runs:
        assert abs(mask.mean() - 0.75) < 0.02
        np.testing.assert_allclose(y, np.where(mask, 4, 0), rtol=1e-6)
    assert np.array_equal(runs[0][1], runs[1][1]) == (seed is not None)


def test_classes_are_drawn_by_their_weights() -> None:
    weights = np.array([[0.1, 0.6, 0.3], [1.0, 0.0, 0.0]], "float32")
    node = helper.make_node("Multinomial", ["x"], ["y"], sample_size=4000)
    model = make([node], {"x": [2, 3]}, [], 22)
    model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.INT32, [2, 4000]))
    with np.errstate(divide="ignore"):
        (drawn,) = outputs_of(model, {"x": np.log(weights)})
    for row, wanted in zip(drawn, weights, strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / 4000, wanted, atol=0.03)


def test_bernoulli_draws_with_the_probability_of_each_element() -> None:
    x = np.repeat(np.array([0.0, 0.25, 1.0], "float32"), 5000)
    model = make([helper.make_node("Bernoulli", ["x"], ["y"])], {"x": [15000]}, ["y"], 22)
    (drawn,) = outputs_of(model, {"x": x})
    shares = drawn.reshape(3, -1).mean(1)
    np.testing.assert_allclose(shares, [0, 0.25, 1], atol=0.03)


def test_a_negative_shape_is_told() -> None:
    node = helper.make_node("RandomNormal", [], ["y"], shape=[-1])
    with pytest.raises(ModelError, match="is no shape of a tensor"):
        import_onnx(make([node], {}, ["y"], 22))
