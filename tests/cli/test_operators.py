# SPDX-License-Identifier: Apache-2.0
"""Operators of the user's own: one file with attributes of every kind, from model to artifact."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import treadle
from treadle.cli.main import main
from treadle.frontend.onnx.importer import import_onnx
from treadle.graph.parse import parse
from treadle.graph.text import function_text

ROOT = Path(__file__).resolve().parents[2]
OPERATORS = '''
from dataclasses import dataclass

import numpy as np

from treadle import te
from treadle.frontend.onnx.node import converter
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.types import tensor_type


@dataclass(frozen=True, slots=True)
class PolynomialAttrs(Attrs):
    """Every kind of attribute."""

    factors: tuple[float, ...] = (0.0, 1.0)
    signs: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    label: str = ""
    half: bool = False
    power: int = 1
    shift: float = 0.0


def evaluate(attrs, x):
    total = x * 0.0
    for k in reversed(attrs.factors):
        total = total * x + k
    for _ in range(attrs.power - 1):
        total = total * x
    return (total + attrs.shift) * (0.5 if attrs.half else 1.0)


polynomial = register(
    Operator(
        name="tests_polynomial",
        infer=lambda a, x: tensor_type(x),
        compute=lambda a, x: te.compute(x.shape, lambda *i: evaluate(a, x[i]), "polynomial"),
        reference=lambda a, x: evaluate(a, x).astype(x.dtype),
        attrs_type=PolynomialAttrs,
        fusion=Fusion.ELEMENTWISE,
        examples=(Example(((2, 3),)),),
    )
)


@converter("Polynomial", domain="tests.ops", since=(1,))
def convert(node):
    return polynomial(
        node.input(0),
        factors=node.numbers("factors"),
        signs=node.integers("signs") or (),
        names=node.texts("names") or (),
        label=node.text("label", ""),
        half=node.flag("half"),
        power=node.integer("power", 1),
        shift=node.number("shift", 0.0),
    )
'''


def _model(**attributes: object) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Polynomial", ["r"], ["y"], "poly", domain="tests.ops", **attributes),
    ]
    graph = helper.make_graph(
        nodes,
        "own",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("tests.ops", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_one_file_makes_a_model_compile_print_parse_and_deploy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = _model(
        factors=[1.0, -2.0, 0.5],
        signs=[1, -1],
        names=["a", 'b "c"'],
        label='quoted " \\ text',
        half=1,
        power=2,
        shift=0.25,
    )
    onnx.save(model, tmp_path / "m.onnx")
    (tmp_path / "ops.py").write_text(OPERATORS, encoding="utf-8")
    words = ["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.tar")]
    assert main(words) == 2
    assert "tests.ops.Polynomial-1: 1 node, first poly" in capsys.readouterr().err
    assert main([*words, "--operators", str(tmp_path / "ops.py")]) == 0

    text = function_text(import_onnx(model).module.main, "inline")
    assert "power=2" in text
    assert function_text(parse(text), "inline") == text

    x = np.array([[-1, 0, 1], [2, 3, 4]], "float32")
    positive = np.maximum(x, 0)
    wanted = ((1 - 2 * positive + 0.5 * positive**2) * positive + 0.25) * 0.5
    for made in (treadle.load(tmp_path / "m.tar"), treadle.compile(model, opt_level=0)):
        np.testing.assert_allclose(made.run({"x": x})[0].numpy(), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("program", "problem", "place"),
    [
        ("x = 1\nraise ValueError('no')\n", "ValueError('no')", "ops.py, line 2"),
        ("def f(:\n", "SyntaxError", "ops.py, line 1"),
        (
            "import treadle\n"
            "from treadle.ops.elementwise import add\n"
            "from treadle.graph.operator import register\n"
            "register(add)\n",
            "an operator named 'add' is already registered",
            "ops.py, line 4",
        ),
    ],
)
def test_mistakes_in_the_file_are_named(
    program: str, problem: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ops.py"
    path.write_text(program, encoding="utf-8")
    onnx.save(_model(factors=[1.0]), tmp_path / "m.onnx")
    assert main(["run", str(tmp_path / "m.onnx"), "--operators", str(path)]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert place in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("right", "wrong", "problem"),
    [
        ("te.compute(x.shape", "te.computes(x.shape", "has no attribute 'computes'"),
        ("tensor_type(x),", "x.nothing,", "has no attribute 'nothing'"),
        ("node.flag(", "node.flags(", "has no attribute 'flags'"),
    ],
)
def test_a_failing_operator_is_the_users_to_mend(
    right: str, wrong: str, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "ops.py"
    path.write_text(OPERATORS.replace(right, wrong), encoding="utf-8")
    onnx.save(_model(factors=[1.0]), tmp_path / "m.onnx")
    command = "import sys; from treadle.cli.main import main; sys.exit(main(sys.argv[1:]))"
    words = ["compile", "m.onnx", "--operators", str(path)]
    ended = subprocess.run(
        [sys.executable, "-c", command, *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert problem in ended.stderr
    line = path.read_text(encoding="utf-8").split(wrong)[0].count("\n") + 1
    assert f"at    {path}, line {line}" in ended.stderr
    assert "defect" not in ended.stderr


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(_model(factors=[1.0]), tmp_path / "m.onnx")
    assert main(["run", str(tmp_path / "m.onnx"), "--operators", "nowhere.py"]) == 2
    assert "nowhere.py is not a file" in capsys.readouterr().err
