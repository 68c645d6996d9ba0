# SPDX-License-Identifier: Apache-2.0
"""The house rules that can be read off the sources: layers, cycles, sizes, licence lines, bans."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

pytestmark = pytest.mark.tiny

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "treadle"

LAYERS = (
    ("cli", "integrations"),
    ("auto_scheduler", "autotvm"),
    ("tune",),
    ("build",),
    ("frontend",),
    ("optimize",),
    ("ops",),
    ("graph",),
    ("cost",),
    ("target",),
    ("lower",),
    ("loop",),
    ("te",),
    ("expr", "rpc"),
    ("passes", "runtime"),
    ("dtype", "files", "limits", "settings"),
    ("errors",),
)
"""Each line may import the lines below it; names on one line do not import each other."""

LEVEL = {name: level for level, line in enumerate(LAYERS) for name in line}

HEAVY = {
    "dask", "distributed", "onnx", "onnxruntime", "scipy", "sklearn", "sqlalchemy", "tensorflow",
    "torch", "xgboost",
}  # fmt: skip
"""Packages that `import treadle` must not import: they are imported when they are needed."""

REEXPORTS = {"auto_scheduler", "autotvm", "lowered", "ops", "rpc", "te"}
"""Sub-packages whose __init__ collects names: the operators, those that only passes make, and what
users write: the language, tuning in other projects' words, sessions on devices."""

BANNED_MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle"}
BANNED_CALLS = {"eval", "exec", "__import__"}

MAX_LINES = 600

SOURCE_SUFFIXES = {".py", ".c", ".h", ".sh", ".toml"}
SOURCE_NAMES = {"Makefile", "check", "run", "setup"}
SOURCE_FOLDERS = ("treadle", "native", "tests", "benchmarks", "examples", "scripts", ".ci")


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] in ("__init__", "__main__") else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def known_modules() -> frozenset[str]:
    return frozenset(module_name(path) for path in modules())


def without_typing_blocks(node: ast.AST) -> Iterator[ast.AST]:
    """Walk over `node`, but not into the body of an `if TYPE_CHECKING`."""
    yield node
    children = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        children = iter(node.orelse)
    for child in children:
        yield from without_typing_blocks(child)


def imported_modules(nodes: Iterator[ast.AST]) -> Iterator[tuple[str, int]]:
    """Yield each module of Treadle that an import among `nodes` names, with its line."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "treadle":
                    yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "treadle":
            assert node.module is not None
            for alias in node.names:
                member = f"{node.module}.{alias.name}"
                yield (member if member in known_modules() else node.module), node.lineno


def layer_violation(importer: str, imported: str) -> str | None:
    """Return what is wrong with `importer` importing `imported`, if anything is."""
    source, target = (name.split(".")[1:2] for name in (importer, imported))
    if not target:
        return "imports the root package, not the defining module"
    if source == target:
        return None
    for name in (*source, *target):
        if name not in LEVEL:
            return f"{name!r} has no place in the layer table"
    if source and LEVEL[source[0]] >= LEVEL[target[0]]:
        return f"layer {source[0]!r} may not import layer {target[0]!r}"
    return None


def test_the_layer_rule_finds_each_kind_of_violation() -> None:
    assert layer_violation("treadle.build.compile", "treadle.graph.nodes") is None
    assert layer_violation("treadle.graph.text", "treadle.graph.nodes") is None
    assert layer_violation("treadle", "treadle.build.compile") is None
    assert "may not import" in str(layer_violation("treadle.runtime.array", "treadle.te.tensor"))
    assert "may not import" in str(layer_violation("treadle.cli.a", "treadle.integrations.b"))
    assert "no place" in str(layer_violation("treadle.utils", "treadle.errors"))
    assert "root package" in str(layer_violation("treadle.te.tensor", "treadle"))


def test_the_documented_layers_are_these() -> None:
    document = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = document.split("```text\n")[1].split("```")[0]
    assert tuple(tuple(line.split()) for line in table.splitlines()) == LAYERS


def test_layers() -> None:
    violations = [
        f"{path.relative_to(ROOT)}:{line}: {problem}"
        for path in modules()
        for imported, line in imported_modules(ast.walk(tree_of(path)))
        if (problem := layer_violation(module_name(path), imported))
    ]
    assert not violations, "\n".join(violations)


FORMATS = {"keras", "onnx", "tensorflow", "tflite", "torch"}
"""Sub-packages of `frontend` that read one format each; what importers share imports none."""


def shared_frontend_violation(importer: str, imported: str) -> bool:
    """True where a module that all importers share would import one of them, or its library."""
    of_format = tuple(f"treadle.frontend.{name}" for name in FORMATS)
    is_shared = importer.startswith("treadle.frontend") and not importer.startswith(of_format)
    return is_shared and (
        imported.split(".")[0] in HEAVY
        or (imported + ".").startswith(tuple(f"{n}." for n in of_format))
    )


def all_imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the name of each imported module, of any package, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def assert_no_import(paths: Iterable[Path], violates: Callable[[str, str], bool]) -> None:
    """Assert that no module imports, anywhere in it, what a rule forbids it."""
    violations = [
        f"{path.relative_to(ROOT)}:{line}: imports {imported}"
        for path in paths
        for imported, line in all_imports(tree_of(path))
        if violates(module_name(path), imported)
    ]
    assert not violations, "\n".join(violations)


def test_what_importers_share_reads_no_format() -> None:
    assert shared_frontend_violation("treadle.frontend.builders.conv", "onnx.helper")
    assert shared_frontend_violation("treadle.frontend.symbolic", "treadle.frontend.onnx.node")
    assert not shared_frontend_violation("treadle.frontend.onnx.node", "onnx")
    assert not shared_frontend_violation("treadle.frontend.builders.conv", "treadle.ops.conv")
    assert_no_import((PACKAGE / "frontend").rglob("*.py"), shared_frontend_violation)


def back_end_violation(importer: str, imported: str) -> bool:
    """True where a module outside target/ would import a back end, or a back end's library."""
    is_back_end = re.match(r"treadle\.target\.(llvm|c_)|llvmlite(\.|$)", imported) is not None
    return is_back_end and not importer.startswith("treadle.target.")


def test_only_target_knows_back_ends() -> None:
    assert back_end_violation("treadle.cli.doctor", "llvmlite.binding")
    assert back_end_violation("treadle.build.kernel", "treadle.target.llvm_ir.emit")
    assert back_end_violation("treadle.build.kernel", "treadle.target.c_backend.BACKEND")
    assert not back_end_violation("treadle.target.jit", "llvmlite.binding")
    assert not back_end_violation("treadle.build.kernel", "treadle.target.cache.kernel_cache")
    assert_no_import(modules(), back_end_violation)


def test_no_module_is_imported_by_a_name_the_root_gives_to_something_else() -> None:
    """`from treadle import settings` gives the function that users call, not the module."""
    taken = {
        alias.asname or alias.name
        for node in tree_of(PACKAGE / "__init__.py").body
        if isinstance(node, ast.ImportFrom) and node.module != "treadle"
        for alias in node.names
    }
    mistaken = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.module == "treadle"
        for alias in node.names
        if alias.name in taken
    ]
    assert not mistaken


def test_no_import_cycles() -> None:
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for path in modules():
        run = without_typing_blocks(tree_of(path))  # what only types need does not run
        sorter.add(module_name(path), *{name for name, _ in imported_modules(run)})
    try:
        sorter.prepare()
    except CycleError as error:
        pytest.fail("import cycle: " + " <- ".join(error.args[1]))


def test_sub_packages_hold_a_docstring_only() -> None:
    for path in PACKAGE.glob("*/**/__init__.py"):
        if path.parent.name in REEXPORTS:
            continue
        body = tree_of(path).body
        assert ast.get_docstring(tree_of(path)), f"{path} has no docstring"
        assert len(body) == 1, f"{path} holds more than its docstring"


def test_only_packages_that_collect_names_list_them() -> None:
    """`__all__` is what lets a module give names it does not define: import the defining module."""
    lists = [
        str(path.relative_to(ROOT))
        for path in modules()
        if path.name != "__init__.py"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Name) and node.id == "__all__"
    ]
    assert not lists


def test_imports_are_absolute() -> None:
    relative = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not relative


def test_star_imports_stand_in_ops_only() -> None:
    stars = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules()
        if path != PACKAGE / "ops" / "__init__.py"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
    ]
    assert not stars


def test_modules_have_a_docstring_and_bearable_length() -> None:
    for path in modules():
        assert ast.get_docstring(tree_of(path)), f"{path} has no docstring"
        lines = path.read_text(encoding="utf-8").count("\n")
        assert lines <= MAX_LINES, f"{path} has {lines} lines"


def environment_reads(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os":
            names = {node.attr}
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            names = {alias.name for alias in node.names}
        else:
            continue
        if names & {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}:
            yield node.lineno


def test_the_search_for_environment_reads_finds_each_kind() -> None:
    source = "os.environ['A']\nos.getenv('A')\nfrom os import environ\nos.path\nimport os\n"
    assert sorted(environment_reads(ast.parse(source))) == [1, 2, 3]


def test_settings_alone_reads_the_environment() -> None:
    reads = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in modules()
        if path != PACKAGE / "settings.py"
        for line in environment_reads(tree_of(path))
    ]
    assert not reads


def unsafe_constructs(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield what could run code out of data, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            roots = {name.split(".")[0] for name in [*names, getattr(node, "module", None) or ""]}
            for banned in roots & BANNED_MODULES:
                yield node.lineno, f"imports {banned}"
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in BANNED_CALLS:
                yield node.lineno, f"calls {node.func.id}"
            if isinstance(node.func, ast.Attribute) and ast.unparse(node.func) == "os.system":
                yield node.lineno, "calls os.system"
            for keyword in node.keywords:
                if keyword.arg in {"shell", "allow_pickle"} and not is_false(keyword.value):
                    yield node.lineno, f"passes {keyword.arg}"
        elif isinstance(node, ast.ExceptHandler) and node.type is None:
            yield node.lineno, "has a bare except"


def is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def test_the_search_for_unsafe_constructs_finds_each_kind() -> None:
    source = (
        "import pickle\nfrom marshal import loads\neval('1')\nos.system('ls')\n"
        "run(a, shell=True)\nnp.load(f, allow_pickle=x)\nnp.load(f, allow_pickle=False)\n"
        "try:\n    pass\nexcept:\n    pass\n"
    )
    assert sorted(line for line, _ in unsafe_constructs(ast.parse(source))) == [
        1,
        2,
        3,
        4,
        5,
        6,
        10,
    ]


def test_nothing_runs_code_out_of_data() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in modules()
        for line, what in unsafe_constructs(tree_of(path))
    ]
    assert not found


def source_files() -> list[Path]:
    inside = (path for folder in SOURCE_FOLDERS for path in (ROOT / folder).rglob("*"))
    return [
        path
        for path in (*inside, *ROOT.glob("*"))
        if "_native" not in path.parts  # build output
        and path.is_file()
        and (path.suffix in SOURCE_SUFFIXES or path.name in SOURCE_NAMES)
    ]


def test_every_source_file_names_its_licence() -> None:
    files = source_files()
    assert Path(__file__) in files
    for path in files:
        head = path.read_text(encoding="utf-8").splitlines()[:2]
        assert any("SPDX-License-Identifier: Apache-2.0" in line for line in head), path


def test_importing_the_package_imports_nothing_heavy() -> None:
    program = "import sys, treadle; print(*{name.split('.')[0] for name in sys.modules})"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert not HEAVY & set(result.stdout.split())
