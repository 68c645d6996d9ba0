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

from collections.abc import Sequence
from math import prod

import numpy as np

from treadle import dtype as dt
from treadle.errors import TypeMismatch
from treadle.graph.nodes import Call, Constant, Function, Node, Tuple, TupleItem, Var
from treadle.graph.operator import OPERATORS, OperatorTable
from treadle.graph.parse_values import Values
from treadle.graph.text import constant_digest
from treadle.graph.tokens import Token, Tokens
from treadle.graph.types import TupleType


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


class _Parser:
    """Reads constants, functions and their nodes."""

    def __init__(self, text: str, operators: OperatorTable, arrays: Sequence[np.ndarray]) -> None:
        self.operators = operators
        self.arrays = arrays
        self.tokens = Tokens(text)
        self.constants: dict[int, Constant] = {}
        self.functions: dict[str, Function] = {}
        self.types = Values(self.tokens, self.functions)
        self.values: dict[str, Node] = {}

    def module(self) -> Function:
        while self.tokens.has("const"):
            self._listed_constant()
        while self.tokens.has("size"):
            self.types.numbered_size()
        function = self._function()
        while self.tokens.token.kind != "end":
            function = self._function()
        return function

    def _listed_constant(self) -> None:
        start = self.tokens.take("name", "const").start
        number = self.tokens.number()
        self.tokens.take("sign", ":")
        type_ = self.types.tensor_type()
        self.tokens.take("name", "sha")
        digest = self.tokens.take("digest").text
        origin = self.tokens.origin()
        if number >= len(self.arrays):
            raise self.tokens.error(
                f"constant {number} is not given ({len(self.arrays)} are)",
                start,
                "pass the constants the text numbers, treadle.graph.text.listed_constants(...)",
            )
        constant = Constant.of(self.arrays[number], origin=origin)
        if constant.type != type_ or constant_digest(constant.value) != digest:
            raise self.tokens.error(f"constant {number} is another one: {constant.type}", start)
        self.constants[number] = constant

    def _function(self) -> Function:
        self.tokens.take("name", "fn")
        name = self.tokens.take("name")
        if name.text in self.functions:
            raise self.tokens.error(f"there are two functions {name.text}", name.start)
        self.values = {}
        self.tokens.take("sign", "(")
        params, _ = self.tokens.items(self._param, ")")
        attrs = dict(self.tokens.items(self._attribute, "]")[0]) if self.tokens.accept("[") else {}
        self.tokens.take("sign", "{")
        while self.tokens.token.kind == "ref":
            self._statement()
        self.tokens.take("name", "return")
        body = self._fields() if self.tokens.has("(") else self._operand()
        self.tokens.take("sign", "}")
        function = Function(tuple(params), body, name.text, attrs)
        self.functions[name.text] = function
        return function

    def _param(self) -> Var:
        token = self.tokens.take("ref")
        self.tokens.take("sign", ":")
        var = Var(self._ref_name(token), self.types.type())
        self._define(token, var)
        return var

    def _ref_name(self, token: Token) -> str:
        return self.tokens.string(token, 1) if token.text[1] == '"' else token.text[1:]

    def _define(self, token: Token, node: Node) -> None:
        if token.text in self.values:
            raise self.tokens.error(f"{token.text} is defined twice", token.start)
        self.values[token.text] = node

    def _statement(self) -> None:
        token = self.tokens.take("ref")
        self.tokens.take("sign", "=")
        if self.tokens.has("("):
            fields = self._fields()
            node: Node = Tuple.of(fields.fields, self.tokens.origin())
        elif self.tokens.token.kind == "ref":
            node = self._item()
            node.origin = self.tokens.origin()
        else:
            node = self._call()
        self._define(token, node)

    def _item(self) -> TupleItem:
        start = self.tokens.token.start
        value = self._operand()
        index = self.tokens.number()
        if not isinstance(value.type, TupleType) or index >= len(value.type.fields):
            raise self.tokens.error(f"a value of type {value.type} has no field {index}", start)
        return TupleItem(value, index, value.type.fields[index])

    def _fields(self) -> Tuple:
        self.tokens.take("sign", "(")
        return Tuple.of(self.tokens.items(self._operand, ")")[0])

    def _call(self) -> Call:
        name = self.tokens.take("name")
        self.tokens.take("sign", "(")
        items, _ = self.tokens.items(self._argument, ")")
        self.tokens.take("sign", ":")
        at = self.tokens.token.start
        type_ = self.types.type()
        origin = self.tokens.origin()
        args = tuple(i for i in items if not isinstance(i, tuple))
        attrs = dict(i for i in items if isinstance(i, tuple))
        call = self._make_call(name, args, attrs, origin)
        if call.type != type_:
            raise self.tokens.error(f"the operands give {call.type}, not {type_}", at)
        return call

    def _make_call(
        self, name: Token, args: tuple[Node, ...], attrs: dict[str, object], origin: str
    ) -> Call:
        function = self.functions.get(name.text)
        if function is not None:
            given, wanted = [a.type for a in args], [p.type for p in function.params]
            if given != wanted or attrs:
                raise self.tokens.error(
                    f"{name.text} takes {TupleType(tuple(wanted))}, called with"
                    f" {TupleType(tuple(given))}",
                    name.start,
                )
            return Call(function, args, None, function.type, origin)
        operator = self.operators.get(name.text)
        if operator is None:
            known = [*self.functions, *(o.name for o in self.operators.all())]
            raise self.tokens.unknown("operator or function", name, known)
        try:
            return operator.call(operator.make_attrs(attrs), args, origin=origin)
        except TypeMismatch as e:
            line = self.tokens.text.count("\n", 0, name.start) + 1
            raise e.located(f"line {line}") from None

    def _argument(self) -> Node | tuple[str, object]:
        if self.tokens.token.kind == "name" and self.tokens.has("=", 1):
            return self._attribute()
        return self._operand()

    def _attribute(self) -> tuple[str, object]:
        name = self.tokens.take("name").text
        self.tokens.take("sign", "=")
        return name, self.types.value()

    def _operand(self) -> Node:
        token = self.tokens.token
        if token.kind == "ref":
            self.tokens.position += 1
            found = self.values.get(token.text)
            if found is None:
                raise self.tokens.unknown("value", token, list(self.values))
            return found
        if self.tokens.accept("const"):
            return self._constant_reference(token)
        return self._inline_constant()

    def _constant_reference(self, token: Token) -> Constant:
        number = self.tokens.number()
        found = self.constants.get(number)
        if found is None:
            raise self.tokens.error(f"constant {number} is not listed above", token.start)
        return found

    def _inline_constant(self) -> Constant:
        start = self.tokens.token.start
        type_ = self.types.tensor_type()
        self.tokens.take("sign", "{")
        elements, _ = self.tokens.items(self.types.value, "}")
        shape = type_.static_shape if type_.is_static else None
        if shape is None or prod(shape) != len(elements):
            raise self.tokens.error(f"{len(elements)} elements given for {type_}", start)
        if not all(isinstance(e, (bool, int, float)) for e in elements):
            raise self.tokens.error("a constant consists of numbers", start)
        if not dt.is_float(type_.dtype) and any(isinstance(e, float) for e in elements):
            raise self.tokens.error(f"the elements of a {type_.dtype} constant are whole", start)
        try:
            array = _array(elements, type_.dtype).reshape(shape)
        except (OverflowError, ValueError) as e:
            raise self.tokens.error(f"not a {type_.dtype}: {e}", start) from None
        return Constant(array, type_)


def _array(elements: Sequence[object], dtype: str) -> np.ndarray:
    """Return numbers as an array; those of narrow types are their bytes."""
    if dt.is_narrow(dtype):
        return np.array(elements, "uint8").view(dt.to_numpy(dtype))
    return np.array(elements, dt.to_numpy(dtype))
