# SPDX-License-Identifier: Apache-2.0
"""Numbers have their places: facts of a machine in `treadle/target`, what follows from them in
`treadle/cost`, limits of the compiler in `treadle/limits.py`.

Where operators are defined, loops chosen, made and lowered, a constant of a module that is a number
stands in a list here, which says why it has no unit: it is mathematics, a format, or a choice of
what is right and not of what is fast. In other places a constant counts as a fact of a machine when
its name or the text below it speaks of cycles, bytes or latency, or when its value is large.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator

import pytest

from tests.test_architecture import PACKAGE, tree_of

pytestmark = pytest.mark.tiny

FOLDERS = ("ops", "optimize", "loop", "lower")
"""Where no number stands but those listed."""
UNIT_FOLDERS = ("cost", "build")
"""Where numbers may stand that have no unit of a machine."""
APART = ("lower/math",)
"""Coefficients of functions, with the intervals and errors of their polynomials."""
EXPLAINED = ("cost", "ops", "optimize", "loop", "lower", "limits.py")
"""Here every number has a text of its own."""

UNITS = re.compile(r"cycle|byte|latency", re.IGNORECASE)
LARGE = 1000

MATHEMATICS = {
    "lower/transpose_tiles.py": {"SIDES", "_LEAST_SIDE"},
    "ops/activation.py": {"_TANH_GELU"},
    "ops/coupling.py": {"_ROUNDS", "_TOLERANCE"},
    "ops/image.py": {"_SAMPLE"},
    "ops/lowered/conv_winograd_dynamic.py": {"KERNEL"},
    "ops/lowered/winograd_transforms.py": {"TILES", "POINTS"},
    "ops/iterated.py": {"_MOST_DIVISIONS", "_NEAR", "_TINY"},
    "ops/merge_sort.py": {"_MOST_PASSES"},
    "ops/lowered/staged.py": {"STEP"},
    "ops/resize_coordinates.py": {"_TIE"},
    "ops/search.py": {"_MOST_HALVINGS"},
    "ops/summation.py": {"TERMS", "LANES", "CHAINS", "LONG_RUN"},
    "ops/vision.py": {"TAPS", "_CUBIC"},
    "optimize/attention_masks.py": {"_VANISHING"},
    "optimize/blocked.py": {"IMAGES"},
    "optimize/methods/strassen_weights.py": {"MOST_SPREAD"},
    "optimize/quantised.py": {"_MOST_STEPS"},
    "optimize/recognise.py": {"_CLOSE", "_TANH_ARGUMENT"},
    "optimize/subnormals.py": {"_SMALL"},
}
"""Of algorithms: their points, sizes and orders, and what they round."""
FORMATS = {
    "build/artifact.py": {"_LIST_MAGIC", "_ARRAY_MAGIC"},
    "build/kernel_cache.py": {"_SIZE_BYTES"},
    "build/linked.py": {"_SYMBOL_BYTES", "_CONSTANT_BYTES", "_REACH"},
    "build/sources.py": {"_MOST_KERNELS", "_PIPE_BYTES"},
    "build/model_cache.py": {"_CHECKED_BYTES", "_CLOCK_NS", "_ENTRY_BYTES", "_MEGABYTE", "_PIECE"},
    "loop/nodes.py": {"ALIGNMENT"},
    "ops/indexing.py": {"_MOST_SHORT"},
    "ops/fixed_point.py": {"_FRACTION"},
    "ops/low_precision.py": {"_WORDS"},
    "ops/lowered/conv_winograd.py": {"_SIGNAL", "_VOLUME"},
    "ops/lowered/matmul_strassen.py": {"MANTISSA", "NOT_FINITE"},
    "ops/trees.py": {"FEATURE_SHIFT", "MOST_FEATURES"},
    "optimize/arithmetic.py": {"_MANTISSA"},
    "optimize/rule.py": {"TRACED"},
}
"""Of element types, of files, of settings and of the contract of kernels (`treadle.h`)."""
MARKS = {
    "ops/schedules/conv.py": {"DYNAMIC"},
    "ops/schedules/default.py": {"_IMAGE_AXES"},
    "ops/schedules/winograd.py": {"_CHANNELS", "_DEEP"},
    "optimize/channel_order.py": {"PADDING"},
}
"""Values that stand for something else, and numbers of axes."""
POLICY = {
    "optimize/methods/conv_strassen.py": {"_WORTHWHILE"},
    "optimize/methods/conv_winograd.py": {"_WORTHWHILE"},
    "optimize/methods/product_strassen.py": {"_WORTHWHILE", "_WORTHWHILE_AT_RUNTIME"},
}
"""How much time must be gained for larger rounding errors and for more memory: parts of it."""
EXAMPLES = {
    "ops/elementwise_factory.py": {"_PAIRS"},
    "ops/elimination.py": {"_SYSTEM"},
    "ops/image.py": {"_BILINEAR"},
    "ops/norm.py": {"_CHANNELS"},
    "ops/orthogonal.py": {"_ROOT"},
}
"""Of operators."""
LIMITS = {
    "build/c_source.py": {"MOST_WEIGHT_BYTES", "_LINES_PER_PIECE"},
    "build/limits.py": {"LARGEST_VALUE", "LONGEST_NAME"},
    "build/json_lines.py": {"LONGEST_LINE", "_MOST_FIGURES"},
}
"""What a model may ask for, on every machine."""
GROUPS = (MATHEMATICS, FORMATS, MARKS, POLICY, EXAMPLES, LIMITS)


def is_allowed(module: str, name: str) -> bool:
    return any(name in group.get(module, ()) for group in GROUPS)


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
        else:  # of a number and something else: no less a number
            yield from (*left, *right)
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
        "G = {1: 2.0, 2: 2000}\nH = (1, -4000)\nI = 'text'\nlower = 5000\nJ = 10 * 100\nK = 2 * J\n"
    )
    found = list(constants_of(ast.parse(source)))
    assert [name for name, _, _ in found] == [
        "A_CYCLES",
        "B",
        "C",
        "D",
        "E",
        "F",
        "G",
        "H",
        "J",
        "K",
    ]
    marked = [name for name, numbers, text in found if has_unit(name, numbers, text)]
    assert marked == ["A_CYCLES", "B", "C", "G", "H", "J"]


def modules_of(folders: tuple[str, ...]) -> Iterator[str]:
    for folder in folders:
        at = PACKAGE / folder
        for path in [at] if at.is_file() else sorted(at.rglob("*.py")):
            name = path.relative_to(PACKAGE).as_posix()
            if not name.startswith(APART):
                yield name


def test_no_number_stands_where_loops_are_chosen_without_a_reason() -> None:
    found = [
        f"{module}: {name}"
        for module in modules_of(FOLDERS)
        for name, _, _ in constants_of(tree_of(PACKAGE / module))
        if not is_allowed(module, name)
    ]
    assert not found, (
        "facts of a machine belong in treadle/target/machine.py, what follows from them in "
        "treadle/cost, limits of the compiler in treadle/limits.py; list here what has no unit:\n"
        + "\n".join(found)
    )


def test_no_fact_of_a_machine_stands_among_the_formulas() -> None:
    found = [
        f"{module}: {name}"
        for module in modules_of(UNIT_FOLDERS)
        for name, numbers, text in constants_of(tree_of(PACKAGE / module))
        if has_unit(name, numbers, text) and not is_allowed(module, name)
    ]
    assert not found, "\n".join(found)


def test_numbers_say_what_they_are() -> None:
    silent = [
        f"{module}: {name}"
        for module in modules_of(EXPLAINED)
        for name, _, text in constants_of(tree_of(PACKAGE / module))
        if text is None
    ]
    assert not silent, "\n".join(silent)


def test_the_lists_name_what_there_is() -> None:
    listed = {
        (module, name) for group in GROUPS for module, names in group.items() for name in names
    }
    there = {
        (module, name)
        for module in modules_of((*FOLDERS, *UNIT_FOLDERS))
        for name, _, _ in constants_of(tree_of(PACKAGE / module))
    }
    assert not listed - there


def test_formulas_have_no_exception() -> None:
    """What schedules and methods are chosen by holds on every machine."""
    assert not [module for group in GROUPS for module in group if module.startswith("cost/")]
