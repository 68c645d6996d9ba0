# SPDX-License-Identifier: Apache-2.0
"""Every code block of the documents does what it says: Python, commands, C; links lead somewhere.

The blocks of one document run in order in one folder, which holds the models and the
picture of the examples.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.frontend.tensorflow.models import Graph, Kind, saved_model
from treadle.settings import TABLE

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("changelog.d/*.md")])
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#]+?)(?:#[^)]*)?\)")
COMMAND = "import sys; from treadle.cli.main import main; sys.exit(main())"
TIMEOUT = 300
NEEDS_TORCH = ("pytorch",)
"""Documents whose code imports torch."""


@dataclass(frozen=True)
class Block:
    language: str
    text: str


def blocks_of(document: Path) -> list[Block]:
    found = BLOCK.finditer(document.read_text(encoding="utf-8"))
    return [Block(m[2], re.sub(f"^{m[1]}", "", m[3], flags=re.MULTILINE)) for m in found]


def ids(document: Path) -> str:
    return str(document.relative_to(ROOT))


def documents_with(language: str) -> list[Path]:
    return [
        document
        for document in DOCUMENTS
        if any(block.language == language for block in blocks_of(document))
    ]


def classifier() -> Graph:
    """Return a graph of a product and a softmax over a batch of any size."""
    g = Graph()
    kind = Kind("float32")
    weights = g.constant([[1, 2], [3, 4], [5, 6]])
    product = g.node("MatMul", g.input("x", (-1, 3)), weights, name="product", T=kind)
    g.node("Softmax", product, name="scores", T=kind)
    return g


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "examples" / "digits" / "digits.onnx", tmp_path)
    shutil.copy(ROOT / "examples" / "deploy" / "seven.pgm", tmp_path)
    shutil.copy(ROOT / "examples" / "keywords" / "keywords.tflite", tmp_path)
    classifier().write(tmp_path, "classifier.pb")
    signature = {"x": ("x", "float32", (-1, 3))}, {"scores": ("scores", "float32")}
    saved_model(tmp_path / "classifier", classifier(), *signature)
    if find_spec("h5py") is not None:
        from tests.frontend.keras.models import dense_model, write

        write(tmp_path, dense_model()).rename(tmp_path / "classifier.keras")
    return tmp_path


def run(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_commands(block: Block, folder: Path) -> None:
    """Run the lines of a console block that call treadle."""
    for line in block.text.splitlines():
        if line.startswith("$ treadle "):
            run([sys.executable, "-c", COMMAND, *shlex.split(line)[2:]], folder)


def with_marks(documents: list[Path]) -> list[Any]:
    """Return documents as parameters; those whose code imports a package need it."""
    no_h5py = pytest.mark.skipif(find_spec("h5py") is None, reason="h5py is not installed")
    needs = {**dict.fromkeys(NEEDS_TORCH, pytest.mark.torch), "keras": no_h5py}
    needs["gpu"] = pytest.mark.opencl
    return [pytest.param(d, marks=needs[d.stem]) if d.stem in needs else d for d in documents]


@pytest.mark.parametrize("document", with_marks(documents_with("python")), ids=ids)
def test_python_blocks_run(document: Path, folder: Path) -> None:
    texts = [block.text for block in blocks_of(document) if block.language == "python"]
    program = folder / "document.py"
    program.write_text("\n".join(texts), encoding="utf-8")
    run([sys.executable, str(program)], folder)


@pytest.mark.parametrize("document", with_marks(documents_with("console")), ids=ids)
def test_commands_run(document: Path, folder: Path) -> None:
    for block in blocks_of(document):
        if block.language == "console":
            run_commands(block, folder)


@pytest.mark.parametrize("document", documents_with("c"), ids=ids)
def test_c_program_runs(document: Path, folder: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    for block in blocks_of(document):
        if block.language == "console":
            run_commands(block, folder)
    (program,) = [block.text for block in blocks_of(document) if block.language == "c"]
    (folder / "main.c").write_text(program, encoding="utf-8")
    library = folder / "libtreadle.so"
    build = [sys.executable, str(ROOT / "scripts" / "build_native.py"), "--output", str(library)]
    run(build, folder)
    include = f"-I{ROOT / 'native' / 'include'}"
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
    link = ["-L.", "-ltreadle", f"-Wl,-rpath,{folder}"]
    run([compiler, *strict, include, "main.c", *link, "-o", "main"], folder)
    scores = [float(line) for line in run(["./main", "digits.tar"], folder).split()]
    assert len(scores) == 10
    assert sum(scores) == pytest.approx(1, abs=1e-4)


@pytest.mark.tiny
@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_links_lead_somewhere(document: Path) -> None:
    for target in LINK.findall(document.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (document.parent / target).exists(), target


@pytest.mark.tiny
def test_every_setting_is_explained() -> None:
    text = (ROOT / "docs" / "how-to" / "debug.md").read_text(encoding="utf-8")
    explained = re.findall(r"^\| `(TREADLE_\w+)` \|", text, re.MULTILINE)
    assert explained == [setting.variable for setting in TABLE]


@pytest.mark.tiny
def test_every_document_is_found() -> None:
    names = {ids(document) for document in DOCUMENTS}
    assert {"README.md", "CHANGELOG.md", "docs/ARCHITECTURE.md"} <= names


@pytest.mark.tiny
def test_blocks_are_found_inside_lists(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text("1. text\n\n   ```python\n   if x:\n       y\n   ```\n", encoding="utf-8")
    assert blocks_of(document) == [Block("python", "if x:\n    y\n")]
