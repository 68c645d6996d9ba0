# SPDX-License-Identifier: Apache-2.0
"""The words of a graph's text: names, numbers, strings and signs; errors show their place."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeVar

from treadle.errors import ModelError

DEPTH_LIMIT = 60
"""How deeply types and attribute values may nest."""

T = TypeVar("T")

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<origin>\#[ ]origin[ ](?=["]))
      | (?P<comment>\#[^\n]*)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<digest>(?<=sha[ ])[0-9a-f]{12}\b)
      | (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<ref>%(?:[A-Za-z_][A-Za-z0-9_.]*|\d+|"(?:[^"\\\n]|\\.)*"))
      | (?P<sign>//|==|[-+*@%()\[\]{}:=,])""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A word: its kind, its text, and where it starts in the whole text."""

    kind: str
    text: str
    start: int


class Tokens:
    """The tokens of a text and the next one of them; spaces and comments are left out."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self._scan())
        self.position = 0
        self._depth = 0

    def _scan(self) -> Iterator[Token]:
        at = 0
        while at < len(self.text):
            found = _TOKEN.match(self.text, at)
            if found is None:
                raise self.error(f"{self.text[at]!r} cannot stand here", at)
            if found.lastgroup not in ("space", "comment"):
                yield Token(str(found.lastgroup), found.group(), at)
            at = found.end()
        yield Token("end", "the end of the text", len(self.text))

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.position]

    def take(self, kind: str, wanted: str = "") -> Token:
        """Return the next token and go past it; it must be of that kind, and `wanted` if given."""
        token = self.token
        if token.kind != kind or (wanted and token.text != wanted):
            raise self.error(f"expected {wanted or kind!r}, found {token.text}", token.start)
        self.position += 1
        return token

    def has(self, text: str, ahead: int = 0) -> bool:
        """True where the token that many further is this sign or name."""
        token = self.tokens[min(self.position + ahead, len(self.tokens) - 1)]
        return token.kind in ("sign", "name") and token.text == text

    def accept(self, text: str) -> bool:
        """Go past this sign or name; False where it does not stand here."""
        if not self.has(text):
            return False
        self.position += 1
        return True

    def error(self, problem: str, start: int, hint: str = "") -> ModelError:
        """Return an error that shows the line, and the place in it."""
        line = self.text.count("\n", 0, start) + 1
        first = self.text.rfind("\n", 0, start) + 1
        shown = self.text[first:].split("\n", 1)[0]
        column = start - first
        low = max(0, column - 70)
        window = shown[low : low + 100]
        caret = " " * (column - low) + "^"
        return ModelError(
            f"{problem}\n    {window}\n    {caret}",
            at=f"line {line}, column {column + 1}",
            hint=hint,
        )

    def unknown(self, what: str, token: Token, known: Sequence[str]) -> ModelError:
        """Return the error for a name that is none of those known."""
        close = get_close_matches(token.text, known, 1)
        hint = f"did you mean {close[0]}?" if close else ""
        return self.error(f"there is no {what} {token.text}", token.start, hint)

    def items(self, item: Callable[[], T], end: str) -> tuple[list[T], bool]:
        """Return items up to the sign `end`, and whether a comma ends them."""
        items: list[T] = []
        comma = False
        while not self.accept(end):
            items.append(item())
            comma = self.accept(",")
            if not comma:
                self.take("sign", end)
                break
        return items, comma

    def integer(self) -> int:
        """Read a whole number."""
        token = self.take("number")
        if not token.text.isdigit():
            raise self.error(f"expected a whole number, found {token.text}", token.start)
        return int(token.text)

    def number(self) -> int:
        """Take the number of a constant, size or field, in brackets."""
        self.take("sign", "[")
        number = self.integer()
        self.take("sign", "]")
        return number

    def origin(self) -> str:
        """Read the comment that names an origin, empty where there is none."""
        if self.token.kind != "origin":
            return ""
        self.position += 1
        return self.string(self.take("string"), 0)

    def string(self, token: Token, skip: int) -> str:
        """Return the text that a token quotes, from its character `skip` on."""
        try:
            return str(json.loads(token.text[skip:]))
        except ValueError:
            raise self.error(f"{token.text} is not a string", token.start) from None

    def nested(self, rule: Callable[[], T]) -> T:
        """Read what may contain itself. Raises: ModelError where it nests too deeply."""
        self._depth += 1
        if self._depth > DEPTH_LIMIT:
            raise self.error("this nests too deeply", self.token.start)
        result = rule()
        self._depth -= 1
        return result
