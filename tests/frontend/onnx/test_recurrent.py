# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers with all their options against onnxruntime, and loops against worked values."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.frontend.onnx.models import Arrays, check_with_onnxruntime, make, outputs_of
from treadle.errors import ModelError
from treadle.frontend.onnx.importer import import_onnx

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


def test_a_very_long_sequence_is_refused_with_advice() -> None:
    model = _layer("RNN", 1, {"b"})
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 5000
    with pytest.raises(ModelError, match="over 5000 steps is not supported") as caught:
        import_onnx(model)
    assert "cut the sequence" in caught.value.hint


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
