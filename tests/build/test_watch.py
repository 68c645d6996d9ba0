# SPDX-License-Identifier: Apache-2.0
"""What is printed and dumped while a model is compiled, and going on with edited dumps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from treadle.build.compile import compile_model
from treadle.errors import UsageError
from treadle.settings import use

X = np.arange(4, dtype=np.float32)


def _model() -> bytes:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"], name="twice")],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4,))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (4,))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return bytes(model.SerializeToString())


WORDS = {
    1: ("ms  read", "ms  optimize", "ms  build", "ms  plan"),
    2: ("ms  kernel fused_add", "(float32[4]) -> float32[4]; from twice"),
    3: ("--- schedule",),
    4: ("--- llvm", "define "),
    5: ("--- graph as read", "--- graph after all passes", "--- loops", "--- lowered"),
}


@pytest.mark.parametrize("level", range(6))
def test_every_level_prints_more(level: int, capsys: pytest.CaptureFixture[str]) -> None:
    with use(debug=level):
        compile_model(_model())
    printed = capsys.readouterr().err
    for least, words in WORDS.items():
        for word in words:
            assert (word in printed) == (level >= least), (word, printed)


def test_an_edited_kernel_is_compiled(tmp_path: Path) -> None:
    with use(dump=tmp_path):
        kernel = compile_model(_model()).kernels[0].name
    place = tmp_path / kernel / "target" / "00_llvm.ll"
    text = place.read_text()
    assert "fadd" in text
    place.write_text(text.replace("fadd", "fmul"))
    for folder in (tmp_path / "main", tmp_path / kernel / "loops"):
        assert folder.is_dir()
    with use(override=tmp_path):
        (y,) = compile_model(_model())(X)
    np.testing.assert_array_equal(np.asarray(y), X * X)
    (y,) = compile_model(_model())(X)
    np.testing.assert_array_equal(np.asarray(y), X + X)


def test_a_mistake_in_an_edited_kernel_is_told(tmp_path: Path) -> None:
    with use(dump=tmp_path):
        kernel = compile_model(_model()).kernels[0].name
    (tmp_path / kernel / "target" / "00_llvm.ll").write_text("nonsense")
    with use(override=tmp_path), pytest.raises(UsageError, match="compiler refuses the edited"):
        compile_model(_model())


def test_edited_texts_that_replace_nothing_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with use(dump=tmp_path / "dumps"):
        kernel = compile_model(_model()).kernels[0].name
    edited = tmp_path / "edited"
    for name in (f"{kernel}/target/00_llvm.ll", "main/optimise/01_canonicalize.txt"):
        source = tmp_path / "dumps" / kernel / "target" / "00_llvm.ll"
        (edited / name).parent.mkdir(parents=True)
        (edited / name).write_text(source.read_text())
    capsys.readouterr()
    with use(override=edited):
        compile_model(_model())
    noted = capsys.readouterr().err.splitlines()
    stray = edited / "main/optimise/01_canonicalize.txt"
    assert noted == [f"note: TREADLE_OVERRIDE: {stray} replaces no stage of this model"]
    (tmp_path / "empty").mkdir()
    with use(override=tmp_path / "empty"):
        compile_model(_model())
    assert "is empty" in capsys.readouterr().err
