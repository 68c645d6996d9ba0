# SPDX-License-Identifier: Apache-2.0
"""The public names: all there, imported when they are used and no sooner."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import treadle

pytestmark = pytest.mark.tiny

DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"
COMPILER = ("llvmlite", "onnx", "treadle.expr", "treadle.graph", "treadle.target", "treadle.te")


def imported_by(program: str) -> set[str]:
    """Return the modules that are loaded after a program."""
    text = f"{program}; import sys; print('modules', *sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True
    )
    return set(result.stdout.rpartition("modules ")[2].split())


def test_all_names_are_there() -> None:
    for name in treadle.__all__:
        assert getattr(treadle, name) is getattr(treadle, name), name
    assert set(treadle.__all__) <= set(dir(treadle))
    with pytest.raises(AttributeError, match="no attribute 'tensor'"):
        treadle.tensor  # type: ignore[attr-defined]  # noqa: B018


def test_type_checkers_see_what_users_get() -> None:
    tree = ast.parse(Path(treadle.__file__).read_text())
    block = next(n for n in tree.body if isinstance(n, ast.If))
    told = {
        (alias.asname or alias.name, node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    found = {(name, f"treadle.{place}") for name, place in treadle._PLACES.items()}
    assert told == found | {(name, "treadle") for name in treadle._PACKAGES}


def test_functions_keep_their_names_when_their_packages_are_imported() -> None:
    program = (
        "import treadle, treadle.build.load, treadle.lower.pipeline, treadle.settings;"
        "assert all(map(callable, (treadle.build, treadle.lower, treadle.settings)))"
    )
    assert "treadle.lower.pipeline" in imported_by(program)


def test_compiling_takes_no_compiler_library_into_the_process() -> None:
    """LLVM is in the workers, its machine code is linked here; examples need no generators."""
    program = (
        f"import treadle, numpy; m = treadle.compile({str(DIGITS)!r});"
        "m.run([numpy.zeros(s, d) for _, d, s in m.inputs])"
    )
    for program_of_a_cold_and_a_warm_process in (program, program):
        loaded = imported_by(program_of_a_cold_and_a_warm_process)
        assert "treadle.build.compile" in loaded
        heavy = ("llvmlite", "numpy.random", "treadle.tune", "treadle.rpc", "treadle.cli")
        assert not [m for m in loaded if m.startswith(heavy)]


def test_modules_are_imported_without_the_garbage_collector() -> None:
    program = (
        "import gc, treadle; before = gc.get_stats()[2]['collections'];"
        "treadle.compile; assert gc.get_stats()[2]['collections'] == before;"
        "assert gc.isenabled(); gc.disable(); treadle.tune_model; assert not gc.isenabled()"
    )
    assert "treadle.build.compile" in imported_by(program)


def test_running_a_saved_model_needs_no_compiler(tmp_path: Path) -> None:
    path = tmp_path / "digits.tar"
    executable = treadle.compile(DIGITS)
    executable.save(path)
    (_, dtype, shape), *_ = executable.inputs
    program = (
        f"import treadle, numpy; m = treadle.load({str(path)!r});"
        f"m.run([numpy.zeros({shape}, {dtype!r})]); m.describe(); m.kernels"
    )
    loaded = imported_by(program)
    assert "treadle.build.loaded" in loaded
    assert not [m for m in loaded if m.startswith(COMPILER)]
    # Each would take a few megabytes of every such process.
    assert not {"_hashlib", "statistics", "difflib", "numpy.random"} & loaded
