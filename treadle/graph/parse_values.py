# SPDX-License-Identifier: Apache-2.0
"""Types, extents and the values of attributes, as the text of a graph writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from treadle import dtype as dt
from treadle.expr import nodes as ex
from treadle.expr.vocabulary import BinaryOp
from treadle.graph.nodes import Function
from treadle.graph.tokens import Token, Tokens
from treadle.graph.types import Dim, TensorType, TupleType, Type

_LITERALS = {
    "None": None,
    "True": True,
    "False": False,
    "inf": float("inf"),
    "nan": float("nan"),
}
_ARITHMETIC: dict[str, BinaryOp] = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "//": "floordiv",
    "%": "floormod",
    "min": "min",
    "max": "max",
    "truncdiv": "truncdiv",
    "truncmod": "truncmod",
    "==": "eq",
}


class Values:
    """Reads types and values; a symbolic size of one name is the same everywhere."""

    def __init__(self, tokens: Tokens, functions: Mapping[str, Function]) -> None:
        self.tokens = tokens
        self._functions = functions
        self._symbols: dict[str, ex.Var] = {}
        self._sizes: dict[int, object] = {}

    def numbered_size(self) -> None:
        """Read a size that values name by its number from here on."""
        self.tokens.take("name", "size")
        number = self.tokens.number()
        self.tokens.take("sign", "=")
        self._sizes[number] = self.value()

    def type(self) -> Type:
        """Read the type of a tensor or a tuple."""
        if self.tokens.has("("):
            return self.tokens.nested(self._tuple_type)
        return self.tensor_type()

    def _tuple_type(self) -> TupleType:
        self.tokens.take("sign", "(")
        return TupleType(tuple(self.tokens.items(self.type, ")")[0]))

    def tensor_type(self) -> TensorType:
        """Read the type of a tensor."""
        name = self.tokens.take("name")
        if name.text not in dt.STORED:
            raise self.tokens.unknown("element type", name, dt.STORED)
        self.tokens.take("sign", "[")
        return TensorType(tuple(self.tokens.items(self._dim, "]")[0]), name.text)

    def _dim(self) -> Dim:
        start = self.tokens.token.start
        value = self.value()
        if isinstance(value, ex.Expr) or (type(value) is int and value >= 0):
            return value
        raise self.tokens.error(f"{value} is not an extent", start)

    def value(self) -> object:
        """Read the value of an attribute, or an extent: literals, tuples, sums of sizes."""
        return self.tokens.nested(lambda: self._chain(("==",), self._sum))

    def _sum(self) -> object:
        return self._chain(("+", "-"), self._product)

    def _product(self) -> object:
        return self._chain(("*", "//", "%"), self._primary)

    def _chain(self, signs: tuple[str, ...], rule: Callable[[], object]) -> object:
        value = rule()
        while self.tokens.token.kind == "sign" and self.tokens.token.text in signs:
            sign = self.tokens.take("sign")
            value = self._arithmetic(sign, value, rule())
        return value

    def _arithmetic(self, sign: Token, a: object, b: object) -> object:
        return ex.binary(_ARITHMETIC[sign.text], self._size(a, sign), self._size(b, sign))

    def _primary(self) -> object:
        token = self.tokens.token
        if self.tokens.accept("-"):
            return self._negated(token)
        if self.tokens.accept("@"):
            return self._body()
        if self.tokens.accept("("):
            items, comma = self.tokens.nested(lambda: self.tokens.items(self.value, ")"))
            return items[0] if len(items) == 1 and not comma else tuple(items)
        self.tokens.position += 1
        if token.kind == "string":
            return self.tokens.string(token, 0)
        if token.kind == "number":
            return int(token.text) if token.text.isdigit() else float(token.text)
        if token.kind != "name":
            raise self.tokens.error(f"expected a value, found {token.text}", token.start)
        if token.text in _LITERALS:
            return _LITERALS[token.text]
        if token.text in _ARITHMETIC and self.tokens.has("("):
            self.tokens.take("sign", "(")
            items, _ = self.tokens.nested(lambda: self.tokens.items(self.value, ")"))
            if len(items) != 2:
                raise self.tokens.error(f"{token.text} takes two values", token.start)
            return self._arithmetic(token, *items)
        if token.text == "select" and self.tokens.accept("("):
            return self._choice(token)
        if token.text == "size" and self.tokens.has("["):
            return self._numbered(token)
        return self._symbols.setdefault(token.text, ex.Var(token.text))

    def _numbered(self, token: Token) -> object:
        number = self.tokens.number()
        if number not in self._sizes:
            raise self.tokens.error(f"size {number} is not listed above", token.start)
        return self._sizes[number]

    def _choice(self, name: Token) -> ex.Expr:
        """Read what follows `select(`: the one condition among sizes is that an extent is 1."""
        items, _ = self.tokens.nested(lambda: self.tokens.items(self.value, ")"))
        if len(items) != 3 or not isinstance(items[0], ex.Expr) or items[0].dtype != "bool":
            raise self.tokens.error("select takes a condition and two sizes", name.start)
        return ex.select(items[0], *(self._size(v, name) for v in items[1:]))

    def _size(self, value: object, at: Token) -> int | ex.Expr:
        if isinstance(value, bool) or not isinstance(value, (int, ex.Expr)):
            raise self.tokens.error(f"{at.text} is for sizes only", at.start)
        return value

    def _body(self) -> Function:
        name = self.tokens.take("name")
        found = self._functions.get(name.text)
        if found is None:
            raise self.tokens.unknown("function", name, list(self._functions))
        return found

    def _negated(self, sign: Token) -> object:
        value = self.tokens.nested(self._primary)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.tokens.error("a minus sign is for numbers only", sign.start)
        return -value
