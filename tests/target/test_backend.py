# SPDX-License-Identifier: Apache-2.0
"""The contract of back ends: the table, what is registered, and that no stage goes around it."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
import pytest

import treadle
from treadle.build.kernel_cache import kernel_key
from treadle.errors import InternalError, TargetError, ToolchainError, UsageError
from treadle.graph.nodes import Function, Var
from treadle.graph.types import TensorType
from treadle.ops import elementwise as ew
from treadle.target import backend as table
from treadle.target.backend import (
    Backend,
    OnDone,
    backend_kinds,
    backend_of,
    register_backend,
)
from treadle.target.base import Target
from treadle.target.parse import parse_target

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> tuple[Backend, list[str]]:
    """A back end of the user's own: C, and a note of every kernel that it compiled."""
    monkeypatch.setattr(table, "_registered", {})
    compiled: list[str] = []
    c = backend_of("c")

    def compile_noted(
        jobs: Iterable[tuple[str, str]], target: Target, on_done: OnDone | None
    ) -> dict[str, bytes]:
        found = c.compile(jobs, target, on_done)
        compiled.extend(found)
        return found

    made = dataclasses.replace(c, kind="mine", compile=compile_noted)
    register_backend(made)
    return made, compiled


def small_model() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\n'
        "g (float[2, 3] x) => (float[2, 3] y) { r = Relu(x) y = Exp(r) }"
    )


def test_every_kind_has_a_back_end_of_that_kind() -> None:
    for kind in backend_kinds():
        assert backend_of(kind).kind == kind
        assert parse_target(kind).kind == kind


def test_an_unknown_kind() -> None:
    with pytest.raises(InternalError, match="no back end for targets of kind 'abacus'"):
        backend_of("abacus")
    with pytest.raises(TargetError, match="'abacus' is not a kind of target"):
        parse_target("abacus")


def test_a_kind_is_registered_once(mine: tuple[Backend, list[str]]) -> None:
    with pytest.raises(UsageError, match="a back end for targets of kind 'mine' already"):
        register_backend(mine[0])
    with pytest.raises(UsageError, match="a back end for targets of kind 'llvm' already"):
        register_backend(dataclasses.replace(mine[0], kind="llvm"))


@needs_cc
def test_a_model_is_compiled_by_a_back_end_of_the_users(mine: tuple[Backend, list[str]]) -> None:
    executable = treadle.compile(small_model(), target="mine")
    x = np.array([[-1, 0, 1], [2, 3, 4]], np.float32)
    (y,) = executable(x)
    np.testing.assert_allclose(np.asarray(y), np.exp(np.maximum(x, 0)), rtol=1e-6)
    assert str(executable.target).startswith("mine ")
    assert [k.source().startswith("/* ") for k in executable.kernels] == [True]


def test_code_of_one_back_end_is_not_taken_for_anothers() -> None:
    x = Var("x", TensorType((4,), "float32"))
    function = Function((x,), ew.relu(x))
    keys = {kernel_key("k", "text", function, parse_target(kind)) for kind in ("llvm", "c")}
    assert len(keys) == 2


@needs_cc
def test_an_edited_c_source_is_compiled(tmp_path: Path) -> None:
    """TREADLE_DUMP and TREADLE_OVERRIDE work on every back end's text."""
    x = np.full((2, 3), 2, np.float32)
    with treadle.settings(dump=tmp_path / "dump"):
        treadle.compile(small_model(), target="c")
    (source,) = (tmp_path / "dump").glob("**/target/00_c.c")
    edited = tmp_path / "mine" / source.relative_to(tmp_path / "dump")
    edited.parent.mkdir(parents=True)
    text = source.read_text()
    edited.write_text(text.replace("  return 0;\n}\n", "  exp[0] = 7.0f;\n  return 0;\n}\n"))
    assert "exp[0] = 7.0f" in edited.read_text(), text
    with treadle.settings(override=tmp_path / "mine"):
        (y,) = treadle.compile(small_model(), target="c")(x)
        assert np.asarray(y)[0, 0] == 7.0
        edited.write_text("int main( {")
        with pytest.raises(UsageError, match="the compiler refuses the edited kernel") as caught:
            treadle.compile(small_model(), target="c")
    assert "00_c.c" in str(caught.value)


def test_every_back_end_says_which_compiler_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "llvmlite" in backend_of("llvm").describe()
    monkeypatch.setattr("treadle.target.c_backend.find_compiler", lambda _: None)
    monkeypatch.setattr("treadle.target.c_backend.zig_command", lambda: None)
    with pytest.raises(ToolchainError, match="no C compiler is found"):
        backend_of("c").describe()
