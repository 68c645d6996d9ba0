# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers with all their options against onnxruntime, and loops against worked values."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import treadle
from tests.frontend.onnx.models import Arrays, check_with_onnxruntime, make, outputs_of

STEPS, BATCH, FEATURES, HIDDEN = 5, 3, 4, 6
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _random(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.uniform(-1, 1, shape).astype("float32")


def _layer(kind: str, directions: int, given: set[str], **attributes: object) -> onnx.ModelProto:
    rng = np.random.default_rng([len(kind), directions])
    rows = GATES[kind] * HIDDEN
    constants: dict[str, np.ndarray] = {
        "w": _random(rng, directions, rows, FEATURES),
        "r": _random(rng, directions, rows, HIDDEN),
        "b": _random(rng, directions, 2 * rows),
        "lens": np.array([5, 2, 3], "int32"),
        "h": _random(rng, directions, BATCH, HIDDEN),
        "c": _random(rng, directions, BATCH, HIDDEN),
        "p": _random(rng, directions, 3 * HIDDEN),
    }
    names = ["x", "w", "r", *(n if n in given else "" for n in ("b", "lens", "h", "c", "p"))]
    names = names[:6] if kind != "LSTM" else names
    outputs = ["y", "y_h", "y_c"][: 3 if kind == "LSTM" else 2]
    node = helper.make_node(kind, names, outputs, hidden_size=HIDDEN, **attributes)
    used = {n: a for n, a in constants.items() if n in names}
    return make([node], {"x": (STEPS, BATCH, FEATURES)}, outputs, 14, used)


X: Arrays = {"x": _random(np.random.default_rng(3), STEPS, BATCH, FEATURES)}


@pytest.mark.parametrize(
    ("kind", "direction"), list(itertools.product(GATES, ["forward", "reverse", "bidirectional"]))
)
def test_layers_in_every_direction(kind: str, direction: str) -> None:
    count = 2 if direction == "bidirectional" else 1
    everything = {"b", "lens", "h", "c", "p"}
    for given in (set[str](), {"b"}, everything):
        check_with_onnxruntime(_layer(kind, count, given, direction=direction), X)


def test_gru_that_resets_after_its_product() -> None:
    for given in (set[str](), {"b", "h"}):
        check_with_onnxruntime(_layer("GRU", 1, given, linear_before_reset=1), X)


def test_lstm_with_coupled_gates_and_clipped_sums() -> None:
    check_with_onnxruntime(_layer("LSTM", 1, {"b"}, input_forget=1), X)
    check_with_onnxruntime(_layer("LSTM", 1, {"b", "c"}, clip=0.4), X)


@pytest.mark.parametrize(
    ("name", "alpha", "beta"),
    [
        ("Relu", None, None),
        ("Softsign", None, None),
        ("Softplus", None, None),
        ("LeakyRelu", 0.3, None),
        ("Elu", 0.7, None),
        ("HardSigmoid", 0.3, 0.4),
        ("ScaledTanh", 0.8, 0.6),
        ("Affine", 0.5, 0.1),
    ],
)
def test_activations(name: str, alpha: float | None, beta: float | None) -> None:
    numbers: dict[str, object] = {"activations": [name]}
    if alpha is not None:
        numbers["activation_alpha"] = [alpha]
    if beta is not None:
        numbers["activation_beta"] = [beta]
    check_with_onnxruntime(_layer("RNN", 1, {"b"}, **numbers), X)


def test_batch_first_is_a_transposition() -> None:
    model = _layer("LSTM", 1, {"b"}, layout=1)
    model.graph.input[0].CopyFrom(
        helper.make_tensor_value_info("x", TensorProto.FLOAT, (BATCH, STEPS, FEATURES))
    )
    got = outputs_of(model, {"x": X["x"].swapaxes(0, 1).copy()})
    want = outputs_of(_layer("LSTM", 1, {"b"}), X)
    np.testing.assert_array_equal(got[0], want[0].transpose(2, 0, 1, 3))
    np.testing.assert_array_equal(got[1], want[1].transpose(1, 0, 2))


def _open_layer(kind: str, direction: str, **attributes: object) -> tuple[onnx.ModelProto, int]:
    """Return a layer with all its inputs whose length and batch each run decides."""
    count = 2 if direction == "bidirectional" else 1
    given = {"b", "lens", "h", "c", "p"}
    model = _layer(kind, count, given, direction=direction, **attributes)
    shapes: dict[str, tuple[int | str, ...]] = {
        "x": ("length", "batch", FEATURES),
        "lens": ("batch",),
        "h": (count, "batch", HIDDEN),
        "c": (count, "batch", HIDDEN),
    }
    shapes = {n: s for n, s in shapes.items() if n in model.graph.node[0].input}
    kept = [t for t in model.graph.initializer if t.name not in shapes]
    del model.graph.initializer[:], model.graph.input[:]
    model.graph.initializer.extend(kept)
    for name, shape in shapes.items():
        type_ = TensorProto.INT32 if name == "lens" else TensorProto.FLOAT
        model.graph.input.append(helper.make_tensor_value_info(name, type_, shape))
    return model, count


def _open_inputs(model: onnx.ModelProto, steps: int, batch: int, count: int) -> Arrays:
    rng = np.random.default_rng([steps, batch])
    arrays: Arrays = {
        "x": _random(rng, steps, batch, FEATURES),
        "lens": rng.integers(1, steps + 1, batch).astype("int32"),
        "h": _random(rng, count, batch, HIDDEN),
        "c": _random(rng, count, batch, HIDDEN),
    }
    return {i.name: arrays[i.name] for i in model.graph.input}


OPEN_SIZES = ((1, 1), (4, 3), (2, 5))
"""Steps and batch of runs of one executable."""


@pytest.mark.parametrize(
    ("kind", "direction"), list(itertools.product(GATES, ["forward", "reverse", "bidirectional"]))
)
def test_length_and_batch_may_be_decided_by_each_run(kind: str, direction: str) -> None:
    model, count = _open_layer(kind, direction)
    executable = treadle.compile(model, dynamic=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for steps, batch in OPEN_SIZES:
        inputs = _open_inputs(model, steps, batch, count)
        for got, want in zip(executable.run(inputs), session.run(None, inputs), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_batch_first_with_open_sizes() -> None:
    model, count = _open_layer("GRU", "bidirectional", linear_before_reset=1)
    want = treadle.compile(model, dynamic=True)
    turned, _ = _open_layer("GRU", "bidirectional", linear_before_reset=1, layout=1)
    shapes = {"x": ("batch", "length", FEATURES), "h": ("batch", count, HIDDEN)}
    for value in turned.graph.input:
        if value.name in shapes:
            shape = shapes[value.name]
            value.CopyFrom(helper.make_tensor_value_info(value.name, TensorProto.FLOAT, shape))
    got = treadle.compile(turned, dynamic=True)
    for steps, batch in OPEN_SIZES:
        inputs = _open_inputs(model, steps, batch, count)
        swapped = {n: a if n == "lens" else a.swapaxes(0, 1).copy() for n, a in inputs.items()}
        (y, last), (turned_y, turned_last) = want.run(inputs), got.run(swapped)
        np.testing.assert_array_equal(turned_y, np.asarray(y).transpose(2, 0, 1, 3))
        np.testing.assert_array_equal(turned_last, np.asarray(last).transpose(1, 0, 2))


def test_an_open_batch_of_a_known_length() -> None:
    model, count = _open_layer("LSTM", "bidirectional")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3
    executable = treadle.compile(model, dynamic=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for batch in (1, 4):
        inputs = _open_inputs(model, 3, batch, count)
        for got, want in zip(executable.run(inputs), session.run(None, inputs), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("steps", "hidden"), [(40, 128), (200, 8)])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_long_steps_and_long_sequences_are_loops(kind: str, steps: int, hidden: int) -> None:
    rng = np.random.default_rng(steps)
    rows = GATES[kind] * hidden
    constants = {
        "w": _random(rng, 2, rows, FEATURES) / 4,
        "r": _random(rng, 2, rows, hidden) / 16,
        "b": _random(rng, 2, 2 * rows),
    }
    node = helper.make_node(
        kind, ["x", *constants], ["y", "h"], hidden_size=hidden, direction="bidirectional"
    )
    model = make([node], {"x": [steps, 2, FEATURES]}, ["y", "h"], 14, constants)
    executable = treadle.compile(model)
    assert len(executable.plan["instructions"]) < 40
    x = _random(rng, steps, 2, FEATURES)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for got, want in zip(executable.run({"x": x}), session.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=2e-5, atol=2e-6)


def test_short_steps_of_a_short_sequence_are_unrolled() -> None:
    model = _layer("LSTM", 1, {"b"})
    assert "plans" not in treadle.compile(model).plan


def test_a_very_long_sequence() -> None:
    model = _layer("RNN", 2, {"b"}, direction="bidirectional")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 5000
    x = _random(np.random.default_rng(5), 5000, BATCH, FEATURES)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for got, want in zip(outputs_of(model, {"x": x}), session.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-3)


def _loop(trips: int | None, body: onnx.GraphProto, states: list[str]) -> onnx.NodeProto:
    first = "" if trips is None else "trips"
    return helper.make_node("Loop", [first, "", *states], ["y", "rows"], body=body)


def _doubling(limit: float) -> onnx.GraphProto:
    """Return a body that doubles its state while the iteration number is below a limit."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Add", ["s", "s"], ["out"]),
        helper.make_node("Identity", ["out"], ["row"]),
        helper.make_node("Cast", ["i"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Less", ["number", "limit"], ["goes_on"]),
    ]
    limit_value = helper.make_tensor("limit", TensorProto.FLOAT, [], [limit])
    return helper.make_graph(
        nodes,
        "body",
        [
            value("i", TensorProto.INT64, []),
            value("goes", TensorProto.BOOL, []),
            value("s", TensorProto.FLOAT, [2]),
        ],
        [
            value("goes_on", TensorProto.BOOL, []),
            value("out", TensorProto.FLOAT, [2]),
            value("row", TensorProto.FLOAT, [2]),
        ],
        [limit_value],
    )


@pytest.mark.parametrize(
    ("trips", "limit", "runs"), [(3, 99, 3), (9, 2, 3), (None, 1, 2), (0, 9, 0)]
)
def test_a_loop_ends_by_count_or_condition(trips: int | None, limit: float, runs: int) -> None:
    constants = {} if trips is None else {"trips": np.array(trips, "int64")}
    model = make([_loop(trips, _doubling(limit), ["x"])], {"x": (2,)}, ["y", "rows"], 16, constants)
    x = np.array([1, 3], "float32")
    y, rows = outputs_of(model, {"x": x})
    np.testing.assert_array_equal(y, x * 2**runs)
    np.testing.assert_array_equal(
        rows, np.array([x * 2 ** (k + 1) for k in range(runs)]).reshape(-1, 2)
    )


def test_a_scan_may_run_backwards_along_any_axis() -> None:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "x_t"], ["s_out"]),
            helper.make_node("Mul", ["s_out", "x_t"], ["row"]),
        ],
        "body",
        [value("s", TensorProto.FLOAT, [2]), value("x_t", TensorProto.FLOAT, [2])],
        [value("s_out", TensorProto.FLOAT, [2]), value("row", TensorProto.FLOAT, [2])],
    )
    scan = helper.make_node(
        "Scan",
        ["s0", "x"],
        ["s1", "rows"],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_input_directions=[1],
        scan_output_axes=[1],
        scan_output_directions=[1],
    )
    model = make([scan], {"s0": (2,), "x": (2, 4)}, ["s1", "rows"], 16)
    rng = np.random.default_rng(0)
    check_with_onnxruntime(model, {"s0": _random(rng, 2), "x": _random(rng, 2, 4)})
