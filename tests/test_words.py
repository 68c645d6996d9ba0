# SPDX-License-Identifier: Apache-2.0
"""Names and docstrings speak the language of compilers, not one of their own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.test_architecture import PACKAGE, ROOT, modules, tree_of

pytestmark = pytest.mark.tiny

WORDS = {
    "beside": "adjacent, sibling, in addition to",
    "dealt": "distributed",
    "turn": "iteration, transpose, rotate, round",
    "turned": "transposed, rotated, flipped",
    "turns": "iterations",
    "weave": "interleave",
    "woven": "interleaved",
}
"""Words that no name has as a part, and what the field says."""

PROSE = {
    r"beside": "next to, in addition to, compared with, other than",
    r"dealt out": "distributed",
    r"(in|take|taking|took) turns": "alternately, alternate",
    r"woven|weaves?": "interleaved, interleave",
}
"""What no docstring says, and what the field does."""

ANY_PHRASE = re.compile(rf"\b({'|'.join(PROSE)})\b", re.IGNORECASE)

IDIOMS = re.compile(r"in_turn")
"""One after the other, as everybody says it."""

MODULES = {
    "axes", "computed", "from_scalar", "moves", "narrow", "repeat", "rows", "running", "suppress",
    "weave",
}  # fmt: skip
"""Names of modules that did not say what is in them."""
SCHEDULED = {"ops/schedules/rows.py"}
"""Rows are what these schedules are for."""


def parts(name: str) -> list[str]:
    """Return the words of a name, in small letters."""
    plain = IDIOMS.sub("", name)
    return [w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", plain)]


def names_in(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield every name that a tree gives to something, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr, node.lineno


def test_names_are_taken_apart() -> None:
    assert parts("_turned_axis") == ["turned", "axis"]
    assert parts("TurnOfLoop") == ["turn", "of", "loop"]
    assert parts("RUNS_PER_TURN") == ["runs", "per", "turn"]
    assert parts("return_value") == ["return", "value"]
    assert parts("next_in_turn") == ["next"]


def test_the_search_finds_each_kind_of_name() -> None:
    source = "class A:\n  def b(self, c, *d):\n    self.e = f = 1\nfor g in h: pass\n"
    assert {name for name, _ in names_in(ast.parse(source))} == {*"Abcdefg", "self"}


def test_names_use_the_words_of_the_field() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name} (say {WORDS[word]})"
        for path in modules()
        for name, line in names_in(tree_of(path))
        for word in parts(name)
        if word in WORDS
    ]
    assert not found, "\n".join(found)


def docstrings_in(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield every string that stands as a statement, with its line."""
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Expr) else None
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            yield text.value, text.lineno


def dialect(text: str) -> list[str]:
    """Return the phrases of a text that the field has other words for."""
    if not ANY_PHRASE.search(text):
        return []
    return [p for p in PROSE if re.search(rf"\b({p})\b", text, re.IGNORECASE)]


def test_the_search_finds_each_phrase_in_each_kind_of_docstring() -> None:
    source = '"""A."""\nclass B:\n  """C."""\n  def d():\n    """E."""\nf = 1\n"""G."""\nh = "I"\n'
    assert {text for text, _ in docstrings_in(ast.parse(source))} == {"A.", "C.", "E.", "G."}
    assert len(dialect("Woven lanes, dealt out\nin turns beside others")) == len(PROSE)
    assert not dialect("each in turn, that turns out to be dealt with besides")


def test_docstrings_use_the_words_of_the_field() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {phrase} (say {PROSE[phrase]})"
        for path in modules()
        for text, line in docstrings_in(tree_of(path))
        for phrase in dialect(text)
    ]
    assert not found, "\n".join(found)


def test_modules_say_what_is_in_them() -> None:
    names = {path.relative_to(PACKAGE).as_posix() for path in modules()} - SCHEDULED
    vague = [name for name in names if name.rpartition("/")[2].removesuffix(".py") in MODULES]
    assert not vague
