# SPDX-License-Identifier: Apache-2.0
"""Facts of a machine stand in `treadle/target`, and nowhere else: no constant with their units.

A constant of a module counts as one when its name or the text below it speaks of cycles, bytes or
latency, or when its value is large: sizes of caches and costs of threads are. A constant that
schedules count by must say what it counts.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator

import pytest

from tests.test_architecture import PACKAGE, tree_of

pytestmark = pytest.mark.tiny

FOLDERS = ("cost", "ops/schedules", "ops/lowered", "optimize", "lower", "loop", "build")
"""Where loops are chosen and made."""
APART = ("lower/math",)
"""Coefficients of functions."""
EXPLAINED = ("cost", "ops/schedules")
"""Here every number has a text of its own."""

UNITS = re.compile(r"cycle|byte|latency", re.IGNORECASE)
LARGE = 1000

SHARES = {
    "ops/schedules/attention.py": {"_UNEVEN"},
    "optimize/methods/conv_strassen.py": {"_WORTHWHILE"},
    "optimize/methods/conv_winograd.py": {"_WORTHWHILE"},
    "optimize/methods/growth.py": {"PART_SAVED"},
    "optimize/methods/product_strassen.py": {"_WORTHWHILE"},
    "optimize/methods/strassen_weights.py": {"MOST_SPREAD"},
}
"""Parts of cycles, and of magnitudes: numbers without a unit."""
COUNTS = {
    "ops/schedules/conv.py": {"_MOST_BANDS"},
    "ops/schedules/rows.py": {"_MOST_LANES"},
    "ops/schedules/stages.py": {"MANY_ELEMENTS"},
    "optimize/quantised.py": {"_MOST_STEPS"},
    "lower/unroll_loops.py": {"MAX_UNROLLED"},
}
"""Of candidates, lanes, elements, terms and statements."""
LIMITS = {
    "build/c_source.py": {"MOST_WEIGHT_BYTES", "_LINES_PER_PIECE"},
    "optimize/affine.py": {"DEFERRED_FROM"},
    "optimize/fold.py": {"GROWTH_LIMIT", "TOTAL_LIMIT", "KEPT_LIMIT", "FLOPS_LIMIT"},
    "optimize/methods/growth.py": {"LEAST_BYTES"},
    "build/limits.py": {"LARGEST_VALUE", "LONGEST_NAME"},
    "build/json_lines.py": {"LONGEST_LINE", "_MOST_FIGURES"},
}
"""What compiling may cost, and a model may ask for, on every machine."""
FORMATS = {
    "build/artifact.py": {"_LIST_MAGIC", "_ARRAY_MAGIC"},
    "build/kernel_cache.py": {"_SIZE_BYTES"},
    "build/linked.py": {"_SYMBOL_BYTES", "_CONSTANT_BYTES", "_REACH"},
    "build/memory_plan.py": {"ALIGN"},
    "lower/plan_workspace.py": {"_ALIGN"},
}
"""What files and the contract of kernels (`treadle.h`) fix."""


def is_allowed(module: str, name: str) -> bool:
    groups = (SHARES, COUNTS, LIMITS, FORMATS)
    return any(name in group.get(module, ()) for group in groups)


OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.LShift: lambda a, b: int(a) << int(b),
}


def numbers_in(node: ast.expr) -> Iterator[float]:
    """Yield the numbers of a constant: written, computed of such, or collected."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield node.value  # type: ignore[misc]  # a number, as has just been said
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = ([*numbers_in(side)] for side in (node.left, node.right))
        if len(left) == len(right) == 1:
            yield OPERATORS[type(node.op)](left[0], right[0])
    elif isinstance(node, ast.UnaryOp):
        yield from numbers_in(node.operand)
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for item in node.elts:
            yield from numbers_in(item)
    elif isinstance(node, ast.Dict):
        for item in node.values:
            yield from numbers_in(item)


def constants_of(tree: ast.Module) -> Iterator[tuple[str, list[float], str | None]]:
    """Yield the name, the numbers and the text of every constant that has numbers."""
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        numbers = [*numbers_in(value)]
        is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        text = str(following.value.value) if is_text else None  # type: ignore[union-attr]
        for name in names:
            if numbers and re.fullmatch(r"_?[A-Z][A-Z0-9_]*", name):
                yield name, numbers, text


def has_unit(name: str, numbers: list[float], text: str | None) -> bool:
    """True for a constant that is a fact of a machine, as far as can be told from its text."""
    return bool(UNITS.search(f"{name} {text or ''}")) or any(abs(n) >= LARGE for n in numbers)


def test_the_search_finds_each_kind_of_constant() -> None:
    source = (
        'A_CYCLES = 3\nB = 4\n"""Bytes of it."""\nC = 1 << 16\nD: int = 5\nE, F = 2.5, 8\n'
        "G = {1: 2.0, 2: 2000}\nH = (1, -4000)\nI = 'text'\nlower = 5000\nJ = 10 * 100\n"
    )
    found = list(constants_of(ast.parse(source)))
    assert [name for name, _, _ in found] == ["A_CYCLES", "B", "C", "D", "E", "F", "G", "H", "J"]
    marked = [name for name, numbers, text in found if has_unit(name, numbers, text)]
    assert marked == ["A_CYCLES", "B", "C", "G", "H", "J"]


def modules_of(folders: tuple[str, ...]) -> Iterator[str]:
    for folder in folders:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            name = path.relative_to(PACKAGE).as_posix()
            if not name.startswith(APART):
                yield name


def test_no_fact_of_a_machine_stands_outside_the_target() -> None:
    found = [
        f"{module}: {name}"
        for module in modules_of(FOLDERS)
        for name, numbers, text in constants_of(tree_of(PACKAGE / module))
        if has_unit(name, numbers, text) and not is_allowed(module, name)
    ]
    assert not found, "\n".join(found)


def test_numbers_that_schedules_count_by_say_what_they_are() -> None:
    silent = [
        f"{module}: {name}"
        for module in modules_of(EXPLAINED)
        for name, _, text in constants_of(tree_of(PACKAGE / module))
        if text is None
    ]
    assert not silent, "\n".join(silent)


def test_formulas_have_no_exception() -> None:
    """What schedules and methods are chosen by holds on every machine."""
    groups = (SHARES, COUNTS, LIMITS, FORMATS)
    assert not [module for group in groups for module in group if module.startswith("cost/")]
