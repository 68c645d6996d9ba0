# SPDX-License-Identifier: Apache-2.0
"""Who is off where two engines differ: the one farther from the model computed with float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from treadle.build.agreement import agreement
from treadle.cli import compare
from treadle.cli.exact import Verdict, exact_outputs, verdicts
from treadle.cli.main import main
from treadle.runtime.array import array


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """Return a model whose sum of large and small numbers float32 cannot hold."""
    weights = np.random.default_rng(0).standard_normal((6, 5)).astype("float32")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "big"], ["q"]),
        helper.make_node("Sub", ["q", "big"], ["y"]),
        helper.make_node("ArgMax", ["p"], ["place"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 6])],
        [
            helper.make_tensor_value_info("p", TensorProto.FLOAT, [3, 5]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 5]),
            helper.make_tensor_value_info("place", TensorProto.INT64, [3, 1]),
        ],
        [
            numpy_helper.from_array(weights, "w"),
            numpy_helper.from_array(np.array(1e6, "float32"), "big"),
        ],
    )
    opsets = [helper.make_opsetid("", 17)]
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def test_the_copy_computes_with_float64(network: Path) -> None:
    x = np.random.default_rng(1).standard_normal((3, 6)).astype("float32")
    weights = numpy_helper.to_array(onnx.load(network).graph.initializer[0]).astype("float64")
    product, difference, place = exact_outputs(network, {"x": array(x)})
    assert product.dtype == difference.dtype == np.float64
    np.testing.assert_allclose(product, x.astype("float64") @ weights, rtol=1e-14)
    np.testing.assert_allclose(difference, product, rtol=1e-8)
    np.testing.assert_array_equal(place[:, 0], product.argmax(1))


def _shifted(monkeypatch: pytest.MonkeyPatch, by: float) -> None:
    """Let the other engine be off in its first output."""
    honest = compare.expected_outputs

    def expected(*given: object) -> tuple[list[np.ndarray], str]:
        outputs, source = honest(*given)
        return [outputs[0] + np.float32(by), *outputs[1:]], source

    monkeypatch.setattr(compare, "expected_outputs", expected)


def test_the_engine_that_is_off_is_named(
    network: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _shifted(monkeypatch, 0.25)
    assert main(["compare", str(network)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "the other 2.5e-01: the other departs" in out
    assert "← departs" not in out


def test_treadle_is_named_where_it_is_off(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = onnx.load(network)
    doubled = 2 * numpy_helper.to_array(other.graph.initializer[0])
    other.graph.initializer[0].CopyFrom(numpy_helper.from_array(doubled, "w"))
    onnx.save(other, tmp_path / "other.onnx")
    artifact = str(tmp_path / "other.tar")
    assert main(["compile", str(tmp_path / "other.onnx"), "-o", artifact]) == 0
    capsys.readouterr()
    assert main(["compare", str(network), artifact]) == 1
    captured = capsys.readouterr()
    assert "treadle departs" in " ".join(captured.out.split())
    assert "departs" in captured.err


@pytest.mark.parametrize(
    ("ours", "theirs", "holds", "text"),
    [
        (1e-6, 0.4, True, "the other departs"),
        (0.4, 1e-6, False, "treadle departs"),
        (0.01, 0.07, True, "float32 does not tell"),
        (0.07, 0.01, False, "treadle departs"),
    ],
)
def test_verdicts(ours: float, theirs: float, holds: bool, text: str) -> None:
    verdict = Verdict(ours, theirs, 1e-3)
    assert verdict.holds is holds
    assert text in str(verdict)


def _judged(path: Path, nodes: list[onnx.NodeProto], off: float) -> Verdict | None:
    """Judge a result y of x that is off by so much in every element; the other engine's is not."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [64])
    large = numpy_helper.from_array(np.array(1e7, "float32"), "large")
    graph = helper.make_graph(nodes, "test", [x], [y], [large])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    given = {"x": array(np.linspace(0.5, 0.9, 64, dtype="float32"))}
    (truth,) = exact_outputs(path, given)
    other, ours = truth.astype("float32"), (truth + off).astype("float32")
    (verdict,) = verdicts(path, given, [ours], [other], [agreement(ours, other, 1e-9)])
    return verdict


def test_a_result_that_a_rounding_of_the_inputs_moves_as_far(tmp_path: Path) -> None:
    steps = [
        helper.make_node("Mul", ["x", "large"], ["scaled"]),
        helper.make_node("Round", ["scaled"], ["whole"]),
        helper.make_node("Mod", ["whole", "large"], ["y"], fmod=1),
    ]
    verdict = _judged(tmp_path / "steps.onnx", steps, 1.0)
    assert verdict is not None
    assert verdict.holds
    assert "where inputs change by a rounding" in str(verdict)
    verdict = _judged(tmp_path / "steps.onnx", steps, 5.0)
    assert verdict is not None
    assert not verdict.holds


def test_a_smooth_result_is_not_moved_by_a_rounding(tmp_path: Path) -> None:
    verdict = _judged(tmp_path / "smooth.onnx", [helper.make_node("Sqrt", ["x"], ["y"])], 1e-5)
    assert verdict is not None
    assert not verdict.holds
    assert "treadle departs" in str(verdict)


def test_inputs_changed_by_a_rounding_that_the_model_does_not_take(tmp_path: Path) -> None:
    lookup = [
        helper.make_node("Mul", ["x", "large"], ["scaled"]),
        helper.make_node("Round", ["scaled"], ["whole"]),
        helper.make_node("Sub", ["whole", "whole_of_x"], ["zero"]),
        helper.make_node("Cast", ["zero"], ["places"], to=TensorProto.INT64),
        helper.make_node("Gather", ["one", "places"], ["y"]),
    ]
    values = np.linspace(0.5, 0.9, 64, dtype="float32")
    whole = np.round(values.astype("float64") * 1e7).astype("float32")
    constants = {"whole_of_x": whole, "one": np.ones(1, "float32")}
    lookup += [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))
        for name, value in constants.items()
    ]
    verdict = _judged(tmp_path / "lookup.onnx", lookup[-2:] + lookup[:-2], 1.0)
    assert verdict is not None
    assert not verdict.holds
