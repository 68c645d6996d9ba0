# SPDX-License-Identifier: Apache-2.0
"""`treadle compare`: outputs, the first layer that departs, values in other layouts."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from treadle.build.compile import compile_model
from treadle.cli import layers
from treadle.cli.inputs import filled_inputs
from treadle.cli.layers import compare_layers
from treadle.cli.main import main

CHAIN = 4


def _network(path: Path, *, scale_of: int | None = None) -> Path:
    """Convolutions with activations one after the other; one may have doubled weights."""
    random = np.random.default_rng(1)
    nodes, weights, last = [], [], "x"
    for k in range(CHAIN):
        w = random.standard_normal((20, 3 if k == 0 else 20, 3, 3)).astype(np.float32) / 8
        weights.append(numpy_helper.from_array(w * (2 if k == scale_of else 1), f"w{k}"))
        conv = helper.make_node("Conv", [last, f"w{k}"], [f"c{k}"], name=f"conv{k}", pads=[1] * 4)
        nodes += [conv, helper.make_node("Relu", [f"c{k}"], [f"r{k}"], name=f"relu+{k}")]
        last = f"r{k}"
    nodes.append(helper.make_node("ReduceMean", [last], ["y"], name="mean", axes=[2, 3]))
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 9, 9))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 20, 1, 1))],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    return path


@pytest.fixture
def network(tmp_path: Path) -> Path:
    return _network(tmp_path / "net.onnx")


def _artifact(network: Path, path: Path) -> Path:
    assert main(["compile", str(network), "-o", str(path)]) == 0
    return path


def test_outputs_and_layers_agree(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifact = _artifact(network, network.with_suffix(".tar"))
    capsys.readouterr()
    assert main(["compare", str(network), str(artifact)]) == 0
    assert "against onnxruntime" in capsys.readouterr().out
    assert main(["compare", str(network), str(artifact), "--layers"]) == 0
    assert f"compared with their nodes, {CHAIN + 1} agree" in capsys.readouterr().out


def test_the_first_layer_that_departs_is_named(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = _artifact(_network(tmp_path / "other.onnx", scale_of=2), tmp_path / "other.tar")
    assert main(["compare", str(network), str(other)]) == 1
    assert "1 output of 1 departs" in capsys.readouterr().err
    assert main(["compare", str(network), str(other), "--layers"]) == 1
    captured = capsys.readouterr()
    assert "conv2, relu+2 departs first" in captured.err
    assert "2 agree" in captured.out
    assert main(["compare", str(network), str(other), "--layers", "--tolerance", "10"]) == 0


def test_the_reference_serves_where_onnxruntime_refuses(
    network: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(layers, "_by_onnxruntime", lambda *_: None)
    assert main(["compare", str(network), "--layers"]) == 0
    assert f"{CHAIN + 1} agree" in capsys.readouterr().out


def test_values_do_not_pile_up(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = compile_model(str(network))
    held: list[int] = []
    run = layers._run_node

    def counted(node: onnx.NodeProto, *rest: object) -> list[np.ndarray]:
        held.append(len(walks[0].values))
        return run(node, *rest)  # type: ignore[arg-type]

    walks: list[layers._Network] = []
    start = layers._Network.__post_init__

    def started(self: layers._Network) -> None:
        start(self)
        walks.append(self)

    monkeypatch.setattr(layers._Network, "__post_init__", started)
    monkeypatch.setattr(layers, "_run_node", counted)
    compare_layers(network, model, filled_inputs(model, "random"), None)
    assert len(held) == 2 * CHAIN + 1
    assert max(held) <= 3
    assert walks[0].values.keys() == {"x"}


def test_mistakes_are_told(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifact = _artifact(network, network.with_suffix(".tar"))
    assert main(["compare", str(artifact), str(artifact)]) == 2
    assert "holds machine code, not a network" in capsys.readouterr().err
    assert main(["compare", str(network), str(network.with_name("no.tar"))]) == 2
    assert "does not exist" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["compare", str(network), "--tolerance", "-1"])
    assert "is not a number from 0" in capsys.readouterr().err


def test_blocks_of_channels_in_another_order(random: np.random.Generator) -> None:
    value = random.standard_normal((1, 20, 4, 5)).astype(np.float32)
    lanes = np.zeros((1, 32, 4, 5), np.float32)
    order = random.permutation(32)[:20]
    lanes[:, order] = value
    blocked = lanes.reshape(1, 2, 16, 4, 5).transpose(0, 1, 3, 4, 2)
    found = layers._compare(blocked, value, None)
    assert found is not None
    assert found.holds
    wrong = layers._compare(blocked + np.float32(1), value, None)
    assert wrong is not None
    assert not wrong.holds
    padded = np.pad(blocked, ((0, 0), (0, 0), (1, 1), (1, 1), (0, 0)))
    assert layers._compare(padded, value, None) is not None
    assert layers._compare(value[0], value[:, :1], None) is None


def _open_network(path: Path, *, doubled: bool = False) -> Path:
    """Two inputs that share a size, a result whose size data decides, a branch."""
    branches = [
        helper.make_graph(
            [helper.make_node(op, ["s"], [f"{op}_out"], name=op)],
            op,
            [],
            [helper.make_tensor_value_info(f"{op}_out", TensorProto.FLOAT, ("batch", 3))],
        )
        for op in ("Relu", "Neg")
    ]
    factor = np.array(2 if doubled else 1, np.float32)
    nodes = [
        helper.make_node("Add", ["x", "z"], ["sum"], name="sum"),
        helper.make_node("Softmax", ["sum"], ["s"], name="softmax"),
        helper.make_node("Mul", ["s", "factor"], ["m"], name="scale"),
        helper.make_node("NonZero", ["x"], ["places"], name="places"),
        helper.make_node(
            "If",
            ["flag"],
            ["t"],
            name="pick",
            **dict(zip(("then_branch", "else_branch"), branches, strict=True)),
        ),
        helper.make_node("Exp", ["m"], ["e"], name="exp"),
        helper.make_node("Sub", ["e", "t"], ["y"], name="subtract"),
    ]
    graph = helper.make_graph(
        nodes,
        "open",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ("batch", 3)),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, ("batch", 3)),
            helper.make_tensor_value_info("flag", TensorProto.BOOL, ()),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ("batch", 3)),
            helper.make_tensor_value_info("places", TensorProto.INT64, (2, "found")),
        ],
        [numpy_helper.from_array(factor, "factor")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    return path


def test_open_sizes_are_those_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network, tar = _open_network(tmp_path / "open.onnx"), tmp_path / "open.tar"
    given = ["--input-shapes", "x:[5,3]"]
    assert main(["compile", str(network), "-o", str(tar), "--dynamic", "--check"]) == 0
    out = capsys.readouterr().out
    for sizes in ("x:[1,3] z:[1,3]", "x:[3,3] z:[3,3]"):
        assert re.search(rf"sizes +{re.escape(sizes)}\n +check +against", out)
    for model in ([str(network), "--dynamic"], [str(network), str(tar)]):
        assert main(["compare", *model, "--layers", *given]) == 0
        assert " agree" in capsys.readouterr().out
    assert main(["run", str(tar), *given]) == 0
    assert "y: float32[5,3]" in capsys.readouterr().out
    assert main(["bench", str(tar), "--repeat", "1", *given]) == 0
    assert main(["explain", str(network), "--dynamic"]) == 0
    out = capsys.readouterr().out
    assert "runs one of two bodies" in out
    assert "reads sizes" in out


def test_the_first_layer_that_departs_at_open_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, tar = _open_network(tmp_path / "other.onnx", doubled=True), tmp_path / "other.tar"
    network = _open_network(tmp_path / "open.onnx")
    assert main(["compile", str(other), "-o", str(tar), "--dynamic"]) == 0
    given = ["--input-shapes", "x:[5,3]"]
    assert main(["compare", str(network), str(tar), "--layers", *given]) == 1
    assert "subtract departs first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("shapes", "said"),
    {
        "y:[5,3]": "the model has no input 'y'",
        "x:[5,4]": "input 'x' is [batch, 3] in the model, not [5, 4]",
        "x:[5,3] z:[6,3]": "the shapes given say batch = 5",
        "flag:[]": 'for example --input-shapes "x:[1,3]"',
    }.items(),
)
def test_shapes_that_do_not_fit_are_told(
    shapes: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = _open_network(tmp_path / "open.onnx")
    assert main(["run", str(network), "--dynamic", "--input-shapes", shapes]) == 2
    assert said in capsys.readouterr().err
