# SPDX-License-Identifier: Apache-2.0
"""Kernels with dynamic sizes, measured at sizes that are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import treadle
from tests.tune.test_tuner import QUICK
from treadle.build.compile import fused_model
from treadle.build.records import Records
from treadle.cli.main import main
from treadle.errors import UsageError
from treadle.te.knobs import DEFAULTS
from treadle.tune.model import tune_model
from treadle.tune.runner import Runner
from treadle.tune.task import extract_tasks

SIZES = {"batch": 2, "seq": 6, "keys": 5}


def model() -> onnx.ModelProto:
    """A product with weights, one of two inputs, and a sum of rows whose number no shape tells."""
    weights = np.random.default_rng(0).normal(size=(16, 24)).astype("float32")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "k"], ["b"], name="second"),
        helper.make_node("Flatten", ["b"], ["f"], name="rows", axis=2),
        helper.make_node("Softmax", ["f"], ["y"], name="softmax"),
    ]
    shapes = {"x": ("batch", "seq", 16), "k": ("batch", 24, "keys")}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(
        nodes, "net", inputs, [output], [numpy_helper.from_array(weights, "w")]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    return made


def test_kernels_become_tasks_where_all_their_sizes_are_named() -> None:
    fused = fused_model(model(), dynamic=True)
    none = extract_tasks(fused)
    assert not none.tasks
    assert none.missing == ("batch", "keys", "seq")
    assert "batch, keys, seq" in none.note
    some = extract_tasks(fused, {"batch": 2, "seq": 6})
    assert some.missing == ("keys",)
    assert len(some.tasks) + len(some.dynamic) == len(fused.kernels)
    whole = extract_tasks(fused, SIZES)
    assert not whole.dynamic
    assert whole.note == ""
    (product,) = (t for t in whole.tasks if "relu" in t.name)
    assert product.sizes == {"batch": 2, "seq": 6}
    assert product.sizes_text == " at batch=2,seq=6"
    assert product.flops >= 2 * (2 * 6) * 16 * 24


def test_they_are_checked_and_timed_at_these_sizes() -> None:
    tasks = extract_tasks(fused_model(model(), dynamic=True), SIZES).tasks
    with Runner(tasks, QUICK.measure) as runner:
        for number, task in enumerate(tasks):
            found = runner.measure(number, task.built(DEFAULTS), float("inf"))
            assert not found.error
            assert all(0 < s < 1 for s in found.seconds)


def test_a_model_is_tuned_at_named_sizes(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    options = replace(QUICK, trials=6, sizes=SIZES)
    tuner = tune_model(model(), path, options=options, dynamic=True).tuner
    assert tuner.trials == 6
    assert not any(s.failures for s in tuner.states)
    assert not any("dynamic" in note for note in tuner.notes)
    kept = [r for r in Records.read(path) if r.is_trial]
    assert {r.options.partition(" at ")[2] for r in kept} <= {
        "batch=2,seq=6", "batch=2,keys=5,seq=6"
    }  # fmt: skip
    compiled = treadle.compile(model(), dynamic=True, records=path)
    assert compiled.coverage is not None
    assert compiled.coverage.tuned >= 1
    other = tune_model(
        model(), path, options=replace(options, trials=1, sizes=SIZES | {"seq": 9}), dynamic=True
    ).tuner
    assert [s.resumed for s in other.states] == [0] * len(other.states)


def test_sizes_that_are_none_of_the_model_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "records.jsonl"
    with pytest.raises(UsageError, match="no kernel of the model has a dynamic size 'bach'"):
        tune_model(model(), path, options=replace(QUICK, sizes={"bach": 2}), dynamic=True)
    with pytest.raises(UsageError, match="there is nothing to tune"):
        tune_model(model(), path, options=replace(QUICK, trials=1), dynamic=True)
    assert not path.exists()
    onnx.save(model(), tmp_path / "net.onnx")
    words = ["tune", str(tmp_path / "net.onnx"), "--dynamic", "--tasks"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "measure batch, keys, seq at" in printed.replace("\n", " ")
    assert printed.startswith("  left  ")  # no empty table before it
    assert main([*words, "--sizes", "batch=2,seq=6,keys=5"]) == 0
    assert "dynamic" not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*words, "--sizes", "batch"])
