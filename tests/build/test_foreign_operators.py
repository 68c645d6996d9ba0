# SPDX-License-Identifier: Apache-2.0
"""Operators that stand in no file, and kernels of them: never an earlier one from the cache."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import treadle
from treadle import te
from treadle.build import compiler_digest, kernel_cache
from treadle.errors import TypeMismatch
from treadle.graph.nodes import Function, Module, Node, Tuple, Var
from treadle.graph.operator import OPERATORS, Fusion, Operator, register
from treadle.graph.types import TensorType, TupleType, tensor_type
from treadle.ops import elementwise
from treadle.ops.matmul import matmul
from treadle.ops.schedules.default import schedule_default
from treadle.settings import use

TARGET = treadle.parse_target("llvm")
X = np.array([1, 2, 3], np.float32)
CELL = """
from treadle import te
from treadle.graph.operator import Fusion, Operator, register
from treadle.graph.types import tensor_type

scaled = register(
    Operator(
        name="tests_cell_scaled",
        infer=lambda a, x: tensor_type(x),
        compute=lambda a, x: te.compute(x.shape, lambda *i: x[i] * FACTOR, "scaled"),
        reference=lambda a, x: x * FACTOR,
        fusion=Fusion.ELEMENTWISE,
    )
)
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path) -> Iterator[None]:
    with use(cache=tmp_path / "cache"):
        yield


def scale_by(factor: Callable[[], float], name: str = "scaled") -> Operator[Any]:
    return Operator(
        name=name,
        infer=lambda a, x: tensor_type(x),
        compute=lambda a, x: te.compute(x.shape, lambda *i: x[i] * factor(), name),
        reference=lambda a, x: x * factor(),
        fusion=Fusion.ELEMENTWISE,
    )


def run(build: Callable[[Node], Node]) -> np.ndarray:
    x = Var("x", TensorType((3,), "float32"))
    main = Function((x,), build(x), "main")
    (y,) = treadle.compile(Module(main, ("y",), "net"))(X)
    return np.asarray(y)


def run_cell(factor: float, filename: str) -> Operator[Any]:
    """Register the operator of CELL as an interpreter does that has no file for it."""
    scope: dict[str, Any] = {"__name__": "__main__", "FACTOR": factor}
    exec(compile(CELL, filename, "exec"), scope)
    operator: Operator[Any] = scope["scaled"]
    return operator


def test_what_an_operator_reads_may_change_between_compilations() -> None:
    """Its file does not: a module it imports does, a global, the environment."""
    factors = iter((2.0, 9.0))
    current = [0.0]
    operator = scale_by(lambda: current[0])
    for current[0] in factors:
        assert np.array_equal(run(lambda x: elementwise.relu(operator(x))), X * current[0])


def test_a_changed_schedule_of_a_built_in_operator_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def schedule(group: Any, target: Any, knobs: Any) -> None:
        seen.append("mine")
        built_in(group, target, knobs)

    built_in = matmul.schedule.get("cpu", schedule_default)
    a = Var("a", TensorType((4, 4), "float32"))
    module = Module(Function((a,), matmul(a, a), "main"), ("y",), "net")
    treadle.compile(module, opt_level=0)
    monkeypatch.setitem(matmul.schedule, "cpu", schedule)  # type: ignore[arg-type]
    treadle.compile(module, opt_level=0)
    assert seen


@pytest.mark.parametrize("filename", ["<stdin>", "<string>", "/nowhere/ipykernel_1/2.py"])
def test_an_operator_without_a_file_compiles_and_may_be_defined_again(
    filename: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))  # a prompt has no file
    try:
        for factor in (2.0, 9.0):  # the cell is run again
            operator = run_cell(factor, filename)
            assert OPERATORS.get("tests_cell_scaled") is operator
            assert np.array_equal(run(lambda x, op=operator: op(x)), X * factor)  # type: ignore[misc]
    finally:
        OPERATORS._by_name.pop("tests_cell_scaled", None)


def test_a_name_of_another_module_or_of_the_package_stays_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = ModuleType("__main__")
    script.__file__ = "script.py"
    monkeypatch.setitem(sys.modules, "__main__", script)
    try:
        run_cell(1.0, "<stdin>")
        for name in ("tests_cell_scaled", "relu"):
            with pytest.raises(TypeMismatch, match="is already registered"):
                register(scale_by(lambda: 2.0, name))
        with pytest.raises(TypeMismatch, match="is already registered"):
            run_cell(1.0, "script.py")  # the main module is a file here
    finally:
        OPERATORS._by_name.pop("tests_cell_scaled", None)


def test_two_operators_of_one_name_in_one_model_are_two() -> None:
    double, triple = scale_by(lambda: 2.0), scale_by(lambda: 3.0)
    x = Var("x", TensorType((3,), "float32"))
    y = elementwise.tanh(double(x)), elementwise.tanh(triple(x))
    module = Module(
        Function((x,), Tuple(y, TupleType(tuple(v.type for v in y))), "main"), ("a", "b"), "net"
    )
    for level in (0, 3):
        a, b = treadle.compile(module, opt_level=level)(X)
        assert np.allclose(np.asarray(a), np.tanh(2 * X))
        assert np.allclose(np.asarray(b), np.tanh(3 * X))


def test_kernels_of_the_package_alone_are_kept() -> None:
    x = Var("x", TensorType((3,), "float32"))
    assert kernel_cache.kernel_key("k", "text", Function((x,), elementwise.relu(x), "f"), TARGET)
    mine = Function((x,), scale_by(lambda: 2.0)(x), "f")
    assert kernel_cache.kernel_key("k", "text", mine, TARGET) is None


@pytest.mark.parametrize("state", ["none", "edited", "unreadable"])
def test_a_compiler_whose_source_is_not_what_runs_keeps_no_kernels(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from an archive, or with a file edited after it was imported."""
    monkeypatch.setattr(compiler_digest, "_PACKAGE", tmp_path)
    compiler_digest.compiler_digest.cache_clear()
    try:
        if state == "edited":
            (tmp_path / "module.py").write_text("")
        elif state == "unreadable":
            (tmp_path / "module.py").mkdir()
            monkeypatch.setattr(compiler_digest, "_LOADED_NS", 1 << 62)
        assert compiler_digest.compiler_digest() is None
        x = Var("x", TensorType((3,), "float32"))
        function = Function((x,), elementwise.relu(x), "f")
        assert kernel_cache.kernel_key("k", "text", function, TARGET) is None
    finally:
        compiler_digest.compiler_digest.cache_clear()
