# SPDX-License-Identifier: Apache-2.0
"""Models with sizes that each run decides: compiled once, right at every size, saved and loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import treadle
from treadle.build.executable import Executable
from treadle.errors import InputError

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Weights = dict[str, np.ndarray]


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[object]]],
    outputs: list[str],
    weights: Weights,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "dynamic",
        [helper.make_tensor_value_info(n, *t) for n, t in inputs.items()],
        [helper.make_tensor_value_info(n, FLOAT, None) for n in outputs],
        [numpy_helper.from_array(v, n) for n, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def node(op: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], name=output, **attributes)


def attention() -> onnx.ModelProto:
    """Self-attention over [batch, seq, 16] in 2 heads, shapes computed as exporters write it."""
    random = np.random.default_rng(3)
    weights: Weights = {
        "w": random.standard_normal((16, 48)).astype(np.float32) / 4,
        "bias": random.standard_normal(48).astype(np.float32),
        "zero": np.array(0),
        "one": np.array(1),
        "front": np.array([0]),
        "heads": np.array([2]),
        "each": np.array([8]),
        "wide": np.array([16]),
        "fill": np.array(-1e4, np.float32),
    }
    nodes = [
        node("Shape", "x", "dims"),
        node("Gather", "dims zero", "b"),
        node("Gather", "dims one", "t"),
        node("Unsqueeze", "b front", "b1"),
        node("Unsqueeze", "t front", "t1"),
        node("Concat", "b1 t1 heads each", "split_shape", axis=0),
        node("Concat", "b1 t1 wide", "joined_shape", axis=0),
        node("MatMul", "x w", "xw"),
        node("Add", "xw bias", "qkv"),
        helper.make_node("Split", ["qkv"], ["q0", "k0", "v0"], axis=2),
    ]
    for name in "qkv":
        nodes.append(node("Reshape", f"{name}0 split_shape", f"{name}1"))
        perm = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes.append(node("Transpose", f"{name}1", name, perm=perm))
    nodes += [
        node("MatMul", "q k", "scores"),
        node("Range", "zero t one", "places"),
        node("Unsqueeze", "places one", "rows"),
        node("Less", "rows places", "later"),
        node("Where", "later fill scores", "masked"),
        node("Softmax", "masked", "shares", axis=-1),
        node("MatMul", "shares v", "mixed"),
        node("Transpose", "mixed", "back", perm=[0, 2, 1, 3]),
        node("Reshape", "back joined_shape", "joined"),
        node("Add", "joined x", "y"),
    ]
    return model(nodes, {"x": (FLOAT, ["batch", "seq", 16])}, ["y"], weights)


def convolutions() -> onnx.ModelProto:
    """Convolutions, a pool and an upsampling concatenation over images of any size."""
    random = np.random.default_rng(4)
    weights: Weights = {
        "w0": random.standard_normal((24, 3, 3, 3)).astype(np.float32),
        "b0": random.standard_normal(24).astype(np.float32),
        **{
            name: random.uniform(0.5, 1.5, 24).astype(np.float32)
            for name in ("scale", "shift", "mean", "variance")
        },
        "w1": random.standard_normal((24, 1, 3, 3)).astype(np.float32),
        "w2": random.standard_normal((40, 24, 3, 3)).astype(np.float32) / 5,
    }
    nodes = [
        node("Conv", "x w0 b0", "c0", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", "c0 scale shift mean variance", "n0"),
        node("Relu", "n0", "r0"),
        node("Conv", "r0 w1", "c1", pads=[1, 1, 1, 1], group=24),
        node("Add", "c1 r0", "s"),
        node("MaxPool", "s", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p w2", "c2", pads=[1, 1, 1, 1]),
        node("Concat", "c2 p", "y", axis=1),
        node("GlobalAveragePool", "y", "g"),
    ]
    return model(nodes, {"x": (FLOAT, ["n", 3, "h", "w"])}, ["y", "g"], weights)


def cached_keys() -> onnx.ModelProto:
    """A decoder step: new keys behind old ones, a mask cut to their number."""
    weights: Weights = {
        "mask": np.tril(np.ones((1, 1, 64, 64), np.float32)),
        "two": np.array([2]),
        "three": np.array([3]),
        "end": np.array([1 << 62]),
    }
    nodes = [
        node("Concat", "past new", "keys", axis=2),
        node("Shape", "keys", "all_", start=2, end=3),
        node("Shape", "past", "old", start=2, end=3),
        node("Slice", "mask old all_ two", "mask_rows"),
        node("Slice", "mask_rows zero_ all_ three", "mask_cut"),
        node("Transpose", "keys", "turned", perm=[0, 1, 3, 2]),
        node("MatMul", "new turned", "scores"),
        node("Mul", "scores mask_cut", "y"),
        node("Slice", "keys minus end two", "last"),
    ]
    weights |= {"zero_": np.array([0]), "minus": np.array([-1])}
    shape: dict[str, tuple[int, list[object]]] = {
        "past": (FLOAT, ["batch", 2, "past_length", 8]),
        "new": (FLOAT, ["batch", 2, "length", 8]),
    }
    return model(nodes, shape, ["y", "keys", "last"], weights)


def compare(proto: onnx.ModelProto, exe: Executable, feeds: dict[str, np.ndarray]) -> None:
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for made, wanted in zip(exe.run(feeds), session.run(None, feeds), strict=True):
        assert made.shape == wanted.shape
        # Sums of other orders, and Winograd's, depart by a part of the largest, not of each.
        allowed = max(2e-5, 2e-6 * np.abs(wanted).max(initial=0.0))
        np.testing.assert_allclose(made.numpy(), wanted, rtol=1e-4, atol=allowed)


@pytest.mark.parametrize("opt_level", [0, 3])
def test_attention_over_any_batch_and_length(opt_level: int, random: np.random.Generator) -> None:
    proto = attention()
    exe = treadle.compile(proto, dynamic=True, opt_level=opt_level)
    assert exe.plan["version"] == 2
    for shape in [(1, 1, 16), (2, 7, 16), (3, 33, 16), (1, 20, 16)]:
        compare(proto, exe, {"x": random.standard_normal(shape).astype(np.float32)})


def test_images_of_any_size(random: np.random.Generator) -> None:
    proto = convolutions()
    exe = treadle.compile(proto, dynamic=True)
    assert "pack_nchwc" in str(exe.graph)  # channels lie in blocks
    for n, h, w in [(1, 16, 16), (2, 9, 30), (1, 5, 4), (3, 37, 41), (1, 3, 3), (1, 64, 23)]:
        compare(proto, exe, {"x": random.standard_normal((n, 3, h, w)).astype(np.float32)})


def test_a_decoder_with_past_keys(random: np.random.Generator) -> None:
    proto = cached_keys()
    exe = treadle.compile(proto, dynamic=True)
    for batch, past, length in [(1, 0, 5), (2, 5, 1), (1, 30, 3)]:
        new = random.standard_normal((batch, 2, length, 8)).astype(np.float32)
        old = random.standard_normal((batch, 2, past, 8)).astype(np.float32)
        compare(proto, exe, {"past": old, "new": new})


@pytest.mark.parametrize("sizes", [("rows", "keys"), (1, "keys"), (40, "keys"), ("rows", 21)])
def test_attention_over_any_number_of_rows_and_keys(
    random: np.random.Generator, sizes: tuple[int | str, int | str]
) -> None:
    """One row, few rows, many rows, and too many keys for scores that stay in a cache."""
    proto = attention_of(*sizes)
    exe = treadle.compile(proto, dynamic=True)
    assert sum("attend" in k.name for k in exe.kernels) == 1
    cases = [(1, 1), (1, 90), (5, 3000), (16, 8), (17, 9), (40, 2500), (3, 5000), (33, 64)]
    for rows, keys in cases:
        r, k = (a if isinstance(a, int) else b for a, b in zip(sizes, (rows, keys), strict=True))
        shapes = {"q": (2, r, 2, 16), "k": (2, k, 2, 16), "v": (2, k, 2, 6), "m": (1, 1, r, k)}
        inputs = {n: random.standard_normal(d).astype(np.float32) for n, d in shapes.items()}
        compare(proto, exe, inputs)


def attention_of(rows: int | str, keys: int | str) -> onnx.ModelProto:
    """Attention in 2 heads with a mask, over numbers of rows and keys that may be open."""
    nodes = [
        node("Transpose", "q", "qt", perm=[0, 2, 1, 3]),
        node("Transpose", "k", "kt", perm=[0, 2, 3, 1]),
        node("Transpose", "v", "vt", perm=[0, 2, 1, 3]),
        node("MatMul", "qt kt", "products"),
        node("Mul", "products scale", "scores"),
        node("Add", "scores m", "masked"),
        node("Softmax", "masked", "shares", axis=-1),
        node("MatMul", "shares vt", "mixed"),
        node("Transpose", "mixed", "y", perm=[0, 2, 1, 3]),
    ]
    inputs: dict[str, tuple[int, list[object]]] = {
        "q": (FLOAT, ["b", rows, 2, 16]),
        "k": (FLOAT, ["b", keys, 2, 16]),
        "v": (FLOAT, ["b", keys, 2, 6]),
        "m": (FLOAT, [1, 1, rows, keys]),
    }
    return model(nodes, inputs, ["y"], {"scale": np.array(0.25, np.float32)})


def test_memory_stays_flat_and_nothing_is_compiled_again(random: np.random.Generator) -> None:
    exe = treadle.compile(attention(), dynamic=True)
    exe.run([np.zeros((4, 40, 16), np.float32)])
    most = exe.executor.arena_bytes
    for _ in range(300):
        batch, length = random.integers(1, (5, 41))
        exe.run([np.zeros((batch, length, 16), np.float32)])
    assert exe.executor.arena_bytes == most


def test_sizes_that_meet_must_agree() -> None:
    shape: dict[str, tuple[int, list[object]]] = {"a": (FLOAT, ["n", 4]), "b": (FLOAT, ["m", 4])}
    exe = treadle.compile(model([node("Add", "a b", "y")], shape, ["y"], {}), dynamic=True)
    rows = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(exe(rows, rows)[0].numpy(), rows + rows)
    with pytest.raises(InputError, match="y combines tensors of different sizes: 2 and 3"):
        exe(rows, rows[:2])


def test_listed_parts_of_an_open_axis_must_add_up() -> None:
    parts = onnx.numpy_helper.from_array(np.array([2, 3]), "parts")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    outputs = [helper.make_tensor_value_info(y, TensorProto.FLOAT, None) for y in "yz"]
    node = helper.make_node("Split", ["x", "parts"], ["y", "z"], axis=0)
    graph = helper.make_graph([node], "g", [x], outputs, [parts])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    exe = treadle.compile(model, dynamic=True)
    assert [np.asarray(part).shape for part in exe(np.ones((5, 4), np.float32))] == [(2, 4), (3, 4)]
    with pytest.raises(InputError, match="different sizes: 5 and 6"):
        exe(np.ones((6, 4), np.float32))


def test_a_saved_model_runs_at_any_size(tmp_path: Path, random: np.random.Generator) -> None:
    exe = treadle.compile(attention(), dynamic=True)
    exe.save(tmp_path / "model.tar")
    loaded = treadle.load(tmp_path / "model.tar")
    for length in (3, 19):
        x = random.standard_normal((2, length, 16)).astype(np.float32)
        np.testing.assert_array_equal(loaded(x)[0].numpy(), exe(x)[0].numpy())


def test_without_dynamic_the_plan_stays_static() -> None:
    exe = treadle.compile(convolutions(), shapes={"x": (1, 3, 8, 8)}, dynamic=True)
    assert exe.plan["version"] == 1
