# SPDX-License-Identifier: Apache-2.0
"""Read the text of a graph back (treadle.graph.text prints it).

module    = {constant} {size} function {function}         the last function is the result
constant  = "const" "[" int "]" ":" type "sha" digest [origin]
size      = "size" "[" int "]" "=" value                  in values, size[k] stands for it
function  = "fn" name "(" [%x ":" type {"," %x ":" type}] ")" ["[" attributes "]"] "{" body "}"
body      = {%x "=" right [origin]} "return" (operand | fields)
right     = fields | %x "[" int "]" | name "(" {operand | name "=" value} ")" ":" type
fields    = "(" [operand {"," operand}] ")"
operand   = %x | "const" "[" int "]" | type "{" elements "}"
(an attribute's value may be "@" name: a function above, the body of control flow)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import prod
from typing import TypeVar

import numpy as np

from treadle import dtype as dt
from treadle.errors import ModelError, TypeMismatch
from treadle.expr import nodes as ex
from treadle.expr.vocabulary import BinaryOp
from treadle.graph.nodes import Call, Constant, Function, Node, Tuple, TupleItem, Var
from treadle.graph.operator import OPERATORS, OperatorTable
from treadle.graph.text import constant_digest
from treadle.graph.types import Dim, TensorType, TupleType, Type

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


def parse(
    text: str,
    operators: OperatorTable = OPERATORS,
    constants: Sequence[np.ndarray] | None = None,
) -> Function:
    """Return the last function of `text`; `constants` are the arrays it numbers, in order.

    Raises:
        ModelError: the text breaks the grammar, uses an unknown name, or numbers a constant that
            is missing or differs; the error shows line and column.
        TypeMismatch: an operator's operands do not fit, or a type differs from the one inferred.
    """
    return _Parser(text, operators, constants or ()).module()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int


class _Parser:
    def __init__(self, text: str, operators: OperatorTable, arrays: Sequence[np.ndarray]) -> None:
        self.text = text
        self.operators = operators
        self.arrays = arrays
        self.tokens = list(self._scan())
        self.position = 0
        self.depth = 0
        self.constants: dict[int, Constant] = {}
        self.functions: dict[str, Function] = {}
        self.symbols: dict[str, ex.Var] = {}
        self.sizes: dict[int, object] = {}
        self.values: dict[str, Node] = {}

    # tokens

    def _scan(self) -> Iterator[_Token]:
        at = 0
        while at < len(self.text):
            found = _TOKEN.match(self.text, at)
            if found is None:
                raise self._error(f"{self.text[at]!r} cannot stand here", at)
            if found.lastgroup not in ("space", "comment"):
                yield _Token(str(found.lastgroup), found.group(), at)
            at = found.end()
        yield _Token("end", "the end of the text", len(self.text))

    @property
    def token(self) -> _Token:
        return self.tokens[self.position]

    def _take(self, kind: str, wanted: str = "") -> _Token:
        token = self.token
        if token.kind != kind or (wanted and token.text != wanted):
            raise self._error(f"expected {wanted or kind!r}, found {token.text}", token.start)
        self.position += 1
        return token

    def _has(self, text: str, ahead: int = 0) -> bool:
        token = self.tokens[min(self.position + ahead, len(self.tokens) - 1)]
        return token.kind in ("sign", "name") and token.text == text

    def _accept(self, text: str) -> bool:
        if not self._has(text):
            return False
        self.position += 1
        return True

    def _error(self, problem: str, start: int, hint: str = "") -> ModelError:
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

    def _unknown(self, what: str, token: _Token, known: Sequence[str]) -> ModelError:
        close = get_close_matches(token.text, known, 1)
        hint = f"did you mean {close[0]}?" if close else ""
        return self._error(f"there is no {what} {token.text}", token.start, hint)

    def _list(self, item: Callable[[], T], end: str) -> tuple[list[T], bool]:
        """Return items up to the sign `end`, and whether a comma ends them."""
        items: list[T] = []
        comma = False
        while not self._accept(end):
            items.append(item())
            comma = self._accept(",")
            if not comma:
                self._take("sign", end)
                break
        return items, comma

    def _integer(self) -> int:
        token = self._take("number")
        if not token.text.isdigit():
            raise self._error(f"expected a whole number, found {token.text}", token.start)
        return int(token.text)

    def _origin(self) -> str:
        if self.token.kind != "origin":
            return ""
        self.position += 1
        return self._string(self._take("string"), 0)

    def _string(self, token: _Token, skip: int) -> str:
        try:
            return str(json.loads(token.text[skip:]))
        except ValueError:
            raise self._error(f"{token.text} is not a string", token.start) from None

    # functions

    def module(self) -> Function:
        while self._has("const"):
            self._listed_constant()
        while self._has("size"):
            self._numbered_size()
        function = self._function()
        while self.token.kind != "end":
            function = self._function()
        return function

    def _numbered_size(self) -> None:
        self._take("name", "size")
        number = self._number()
        self._take("sign", "=")
        self.sizes[number] = self._value()

    def _number(self) -> int:
        """Read the number of a constant or size, in brackets."""
        self._take("sign", "[")
        number = self._integer()
        self._take("sign", "]")
        return number

    def _listed_constant(self) -> None:
        start = self._take("name", "const").start
        number = self._number()
        self._take("sign", ":")
        type_ = self._tensor_type()
        self._take("name", "sha")
        digest = self._take("digest").text
        origin = self._origin()
        if number >= len(self.arrays):
            raise self._error(
                f"constant {number} is not given ({len(self.arrays)} are)",
                start,
                "pass the constants the text numbers, treadle.graph.text.listed_constants(...)",
            )
        constant = Constant.of(self.arrays[number], origin=origin)
        if constant.type != type_ or constant_digest(constant.value) != digest:
            raise self._error(f"constant {number} is another one: {constant.type}", start)
        self.constants[number] = constant

    def _function(self) -> Function:
        self._take("name", "fn")
        name = self._take("name")
        if name.text in self.functions:
            raise self._error(f"there are two functions {name.text}", name.start)
        self.values = {}
        self._take("sign", "(")
        params, _ = self._list(self._param, ")")
        attrs = dict(self._list(self._attribute, "]")[0]) if self._accept("[") else {}
        self._take("sign", "{")
        while self.token.kind == "ref":
            self._statement()
        self._take("name", "return")
        body = self._fields() if self._has("(") else self._operand()
        self._take("sign", "}")
        function = Function(tuple(params), body, name.text, attrs)
        self.functions[name.text] = function
        return function

    def _param(self) -> Var:
        token = self._take("ref")
        self._take("sign", ":")
        var = Var(self._ref_name(token), self._type())
        self._define(token, var)
        return var

    def _ref_name(self, token: _Token) -> str:
        return self._string(token, 1) if token.text[1] == '"' else token.text[1:]

    def _define(self, token: _Token, node: Node) -> None:
        if token.text in self.values:
            raise self._error(f"{token.text} is defined twice", token.start)
        self.values[token.text] = node

    def _statement(self) -> None:
        token = self._take("ref")
        self._take("sign", "=")
        if self._has("("):
            fields = self._fields()
            node: Node = Tuple.of(fields.fields, self._origin())
        elif self.token.kind == "ref":
            node = self._item()
            node.origin = self._origin()
        else:
            node = self._call()
        self._define(token, node)

    def _item(self) -> TupleItem:
        start = self.token.start
        value = self._operand()
        index = self._number()
        if not isinstance(value.type, TupleType) or index >= len(value.type.fields):
            raise self._error(f"a value of type {value.type} has no field {index}", start)
        return TupleItem(value, index, value.type.fields[index])

    def _fields(self) -> Tuple:
        self._take("sign", "(")
        return Tuple.of(self._list(self._operand, ")")[0])

    def _call(self) -> Call:
        name = self._take("name")
        self._take("sign", "(")
        items, _ = self._list(self._argument, ")")
        self._take("sign", ":")
        at = self.token.start
        type_ = self._type()
        origin = self._origin()
        args = tuple(i for i in items if not isinstance(i, tuple))
        attrs = dict(i for i in items if isinstance(i, tuple))
        call = self._make_call(name, args, attrs, origin)
        if call.type != type_:
            raise self._error(f"the operands give {call.type}, not {type_}", at)
        return call

    def _make_call(
        self, name: _Token, args: tuple[Node, ...], attrs: dict[str, object], origin: str
    ) -> Call:
        function = self.functions.get(name.text)
        if function is not None:
            given, wanted = [a.type for a in args], [p.type for p in function.params]
            if given != wanted or attrs:
                raise self._error(
                    f"{name.text} takes {TupleType(tuple(wanted))}, called with"
                    f" {TupleType(tuple(given))}",
                    name.start,
                )
            return Call(function, args, None, function.type, origin)
        operator = self.operators.get(name.text)
        if operator is None:
            known = [*self.functions, *(o.name for o in self.operators.all())]
            raise self._unknown("operator or function", name, known)
        try:
            return operator.call(operator.make_attrs(attrs), args, origin=origin)
        except TypeMismatch as e:
            line = self.text.count("\n", 0, name.start) + 1
            raise e.located(f"line {line}") from None

    def _argument(self) -> Node | tuple[str, object]:
        if self.token.kind == "name" and self._has("=", 1):
            return self._attribute()
        return self._operand()

    def _attribute(self) -> tuple[str, object]:
        name = self._take("name").text
        self._take("sign", "=")
        return name, self._value()

    def _operand(self) -> Node:
        token = self.token
        if token.kind == "ref":
            self.position += 1
            found = self.values.get(token.text)
            if found is None:
                raise self._unknown("value", token, list(self.values))
            return found
        if self._accept("const"):
            return self._constant_reference(token)
        return self._inline_constant()

    def _constant_reference(self, token: _Token) -> Constant:
        number = self._number()
        found = self.constants.get(number)
        if found is None:
            raise self._error(f"constant {number} is not listed above", token.start)
        return found

    def _inline_constant(self) -> Constant:
        start = self.token.start
        type_ = self._tensor_type()
        self._take("sign", "{")
        elements, _ = self._list(self._value, "}")
        shape = type_.static_shape if type_.is_static else None
        if shape is None or prod(shape) != len(elements):
            raise self._error(f"{len(elements)} elements given for {type_}", start)
        if not all(isinstance(e, (bool, int, float)) for e in elements):
            raise self._error("a constant consists of numbers", start)
        if not dt.is_float(type_.dtype) and any(isinstance(e, float) for e in elements):
            raise self._error(f"the elements of a {type_.dtype} constant are whole", start)
        try:
            array = _array(elements, type_.dtype).reshape(shape)
        except (OverflowError, ValueError) as e:
            raise self._error(f"not a {type_.dtype}: {e}", start) from None
        return Constant(array, type_)

    # types and values

    def _type(self) -> Type:
        if self._has("("):
            return self._nested(self._tuple_type)
        return self._tensor_type()

    def _tuple_type(self) -> TupleType:
        self._take("sign", "(")
        return TupleType(tuple(self._list(self._type, ")")[0]))

    def _tensor_type(self) -> TensorType:
        name = self._take("name")
        if name.text not in dt.STORED:
            raise self._unknown("element type", name, dt.STORED)
        self._take("sign", "[")
        return TensorType(tuple(self._list(self._dim, "]")[0]), name.text)

    def _dim(self) -> Dim:
        start = self.token.start
        value = self._value()
        if isinstance(value, ex.Expr) or (isinstance(value, int) and value >= 0):
            return value
        raise self._error(f"{value} is not an extent", start)

    def _nested(self, rule: Callable[[], T]) -> T:
        self.depth += 1
        if self.depth > DEPTH_LIMIT:
            raise self._error("this nests too deeply", self.token.start)
        result = rule()
        self.depth -= 1
        return result

    def _value(self) -> object:
        return self._nested(lambda: self._chain(("==",), self._sum))

    def _sum(self) -> object:
        return self._chain(("+", "-"), self._product)

    def _product(self) -> object:
        return self._chain(("*", "//", "%"), self._primary)

    def _chain(self, signs: tuple[str, ...], rule: Callable[[], object]) -> object:
        value = rule()
        while self.token.kind == "sign" and self.token.text in signs:
            sign = self._take("sign")
            value = self._arithmetic(sign, value, rule())
        return value

    def _arithmetic(self, sign: _Token, a: object, b: object) -> object:
        return ex.binary(_ARITHMETIC[sign.text], self._size(a, sign), self._size(b, sign))

    def _primary(self) -> object:
        token = self.token
        if self._accept("-"):
            return self._negated(token)
        if self._accept("@"):
            return self._body()
        if self._accept("("):
            items, comma = self._nested(lambda: self._list(self._value, ")"))
            return items[0] if len(items) == 1 and not comma else tuple(items)
        self.position += 1
        if token.kind == "string":
            return self._string(token, 0)
        if token.kind == "number":
            return int(token.text) if token.text.isdigit() else float(token.text)
        if token.kind != "name":
            raise self._error(f"expected a value, found {token.text}", token.start)
        if token.text in _LITERALS:
            return _LITERALS[token.text]
        if token.text in _ARITHMETIC and self._has("("):
            self._take("sign", "(")
            items, _ = self._nested(lambda: self._list(self._value, ")"))
            if len(items) != 2:
                raise self._error(f"{token.text} takes two values", token.start)
            return self._arithmetic(token, *items)
        if token.text == "select" and self._accept("("):
            return self._choice(token)
        if token.text == "size" and self._has("["):
            return self._size_reference(token)
        return self.symbols.setdefault(token.text, ex.Var(token.text))

    def _size_reference(self, token: _Token) -> object:
        number = self._number()
        if number not in self.sizes:
            raise self._error(f"size {number} is not listed above", token.start)
        return self.sizes[number]

    def _choice(self, name: _Token) -> ex.Expr:
        """Read what follows `select(`: the one condition among sizes is that an extent is 1."""
        items, _ = self._nested(lambda: self._list(self._value, ")"))
        if len(items) != 3 or not isinstance(items[0], ex.Expr) or items[0].dtype != "bool":
            raise self._error("select takes a condition and two sizes", name.start)
        return ex.select(items[0], *(self._size(v, name) for v in items[1:]))

    def _size(self, value: object, at: _Token) -> int | ex.Expr:
        if isinstance(value, bool) or not isinstance(value, (int, ex.Expr)):
            raise self._error(f"{at.text} is for sizes only", at.start)
        return value

    def _body(self) -> Function:
        name = self._take("name")
        found = self.functions.get(name.text)
        if found is None:
            raise self._unknown("function", name, list(self.functions))
        return found

    def _negated(self, sign: _Token) -> object:
        value = self._nested(self._primary)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._error("a minus sign is for numbers only", sign.start)
        return -value


def _array(elements: Sequence[object], dtype: str) -> np.ndarray:
    """Return numbers as an array; those of narrow types are their bytes."""
    if dt.is_narrow(dtype):
        return np.array(elements, "uint8").view(dt.to_numpy(dtype))
    return np.array(elements, dt.to_numpy(dtype))
