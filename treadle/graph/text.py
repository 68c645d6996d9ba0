# SPDX-License-Identifier: Apache-2.0
"""A whole graph as text; treadle.graph.parse reads it back.

    const[0]: float32[64, 3, 7, 7] sha 5d0c6f1e20a3  # origin "w"

    fn fused_conv_relu(%p0: float32[n, 3, 224, 224], %p1: float32[64, 3, 7, 7]) [primitive=True] {
      %0 = conv(%p0, %p1, strides=(2, 2)) : float32[n, 64, 109, 109]  # origin "conv1"
      %1 = relu(%0) : float32[n, 64, 109, 109]
      return %1
    }

    fn main(%data: float32[n, 3, 224, 224]) {
      %0 = fused_conv_relu(%data, const[0]) : float32[n, 64, 109, 109]  # origin "conv1"
      return %0
    }

Attributes at their defaults are left out. The bodies of control flow are functions, named @body as
attributes; `bind_size(%x, %n, size=n)` says which value the symbolic size n is the number of.
Long symbolic sizes are numbered: `size[0] = (n - max((n - 7), 0))` above the functions.
Constants of few elements stand where they are used, as `float32[2]{0.5, 1.0}`; larger ones are
numbered and only described. Elements of narrow types are written as their bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields, replace
from typing import Literal

import numpy as np

from treadle import dtype as dt
from treadle.errors import InternalError
from treadle.expr import nodes as ex
from treadle.expr.text import Parts
from treadle.expr.traversal import free_vars, substitute
from treadle.graph.nodes import Call, Constant, Function, Node, Tuple, TupleItem, Var, topological
from treadle.graph.operator import bodies_of
from treadle.graph.types import Dim, TensorType, Type

INLINE_LIMIT = 16
"""Elements: constants up to this size are spelled out."""

HASHED_BYTES = 1 << 20
"""Larger constants are told apart by a hash of this many of their bytes, evenly spread."""

RESERVED = frozenset({"inf", "nan", "None", "True", "False", "min", "max", "truncdiv", "truncmod"})
"""Words that cannot name a symbolic size."""

DEEPEST_SIZE = 15
"""Levels: sizes that nest deeper are numbered; `treadle.graph.parse` reads four times as many."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
ConstantStyle = Literal["elide", "inline"]


def function_text(
    function: Function, constants: ConstantStyle = "elide", *, origins: bool = True
) -> str:
    """Return a function and the functions it calls as text; "inline" spells all constants out."""
    return _Printer(function, constants, origins).text()


def call_text(call: Call) -> str:
    """Return a call by what decides how it is computed: types of its operands, attributes.

    "conv(float32[1, 3, 8, 8], const float32[4, 3, 3, 3], strides=(2, 2))": no values, no names of
    the model's nodes, so that the same call of another model has the same text.
    """
    alone = replace(call, args=tuple(Var("", a.type) for a in call.args))
    printer = _Printer(Function((), alone), "elide", origins=False)
    kinds = ("const " if isinstance(a, Constant) else "" for a in call.args)
    parts = [f"{k}{printer.type_text(a.type)}" for k, a in zip(kinds, call.args, strict=True)]
    text = f"{printer.callee(call)}({', '.join([*parts, *printer.attribute_texts(call)])})"
    sizes = printer.size_texts()
    return f"{text} where {', '.join(sizes)}" if sizes else text


def listed_constants(function: Function) -> list[np.ndarray]:
    """Return the constants the text of `function` numbers: what `parse` needs back."""
    return [c.value for c in _listed(functions_of(function))]


def functions_of(function: Function) -> list[Function]:
    """Return `function` and every function it calls, callees before callers."""
    found: dict[Function, None] = {}
    stack: list[tuple[Function, bool]] = [(function, False)]
    while stack:
        current, ready = stack.pop()
        if current in found:
            continue
        if ready:
            found[current] = None
            continue
        stack.append((current, True))
        callees = [f for n in topological([current.body]) for f in _callees(n)]
        stack.extend((c, False) for c in reversed(callees))
    return list(found)


def _callees(node: Node) -> tuple[Function, ...]:
    if not isinstance(node, Call):
        return ()
    return (node.op,) if isinstance(node.op, Function) else bodies_of(node)


def _listed(functions: Iterable[Function]) -> list[Constant]:
    found: dict[Constant, None] = {}
    for function in functions:
        for node in topological([function.body]):
            if isinstance(node, Constant) and node.value.size > INLINE_LIMIT:
                found[node] = None
    return list(found)


def constant_digest(value: np.ndarray) -> str:
    """Return a short hash of an array's elements (of a sample, for a large array)."""
    raw = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    digest = hashlib.sha256(str(raw.size).encode())
    if raw.size <= HASHED_BYTES:
        digest.update(raw.data)
    else:
        blocks, length = 16, HASHED_BYTES // 16
        for start in np.linspace(0, raw.size - length, blocks).astype(np.int64):
            digest.update(raw[start : start + length].data)
    return digest.hexdigest()[:12]


class _Printer:
    def __init__(self, function: Function, style: ConstantStyle, origins: bool = True) -> None:
        self.origins = origins
        self.functions = functions_of(function)
        listed = _listed(self.functions) if style == "elide" else []
        self.constants = {c: k for k, c in enumerate(listed)}
        names = _unique([f.name or "main" for f in self.functions])
        self.function_names = dict(zip(self.functions, names, strict=True))
        self.symbols: dict[ex.Expr, ex.Expr] = {}
        self.symbol_names: set[str] = set(RESERVED)
        self.sizes = Parts("size[{}]", DEEPEST_SIZE)

    def text(self) -> str:
        table = "".join(self._constant_line(c, k) for c, k in self.constants.items())
        bodies = [self._function(f, n) for f, n in self.function_names.items()]
        table += "".join(f"{line}\n" for line in self.size_texts())
        return "\n".join([table, *bodies] if table else bodies)

    def size_texts(self) -> list[str]:
        """Return what the numbers of sizes that were printed so far stand for."""
        return [f"{name} = {value}" for name, value in self.sizes.values]

    def _constant_line(self, constant: Constant, number: int) -> str:
        type_ = self.type_text(constant.type)
        head = f"const[{number}]: {type_} sha {constant_digest(constant.value)}"
        return f"{head}{self._origin(constant.origin)}\n"

    def _function(self, function: Function, name: str) -> str:
        names: dict[Node, str] = {p: f"%{_quoted(p.name)}" for p in function.params}
        params = ", ".join(f"{names[p]}: {self.type_text(p.type)}" for p in function.params)
        attrs = ", ".join(f"{k}={self._value(v)}" for k, v in function.attrs.items())
        lines = [f"fn {name}({params}){f' [{attrs}]' if attrs else ''} {{"]
        number = 0
        for node in topological([function.body]):
            if isinstance(node, Var):
                names.setdefault(node, f"%{_quoted(node.name)}")
            elif isinstance(node, Constant):
                names[node] = self._constant(node)
            elif not (isinstance(node, Tuple) and node is function.body):
                names[node] = f"%{number}"
                number += 1
                lines.append(f"  {names[node]} = {self._statement(node, names)}")
        lines.append(f"  return {self._result(function.body, names)}")
        return "\n".join([*lines, "}", ""])

    def _origin(self, origin: str) -> str:
        return _origin_text(origin) if self.origins else ""

    def _result(self, body: Node, names: dict[Node, str]) -> str:
        return _fields(body, names) if isinstance(body, Tuple) else names[body]

    def _statement(self, node: Node, names: dict[Node, str]) -> str:
        if isinstance(node, Tuple):
            return _fields(node, names) + self._origin(node.origin)
        if isinstance(node, TupleItem):
            return f"{names[node.value]}[{node.index}]{self._origin(node.origin)}"
        if not isinstance(node, Call):
            raise InternalError(f"a {type(node).__name__} is no statement")
        parts = [*(names[a] for a in node.args), *self.attribute_texts(node)]
        call = f"{self.callee(node)}({', '.join(parts)})"
        return f"{call} : {self.type_text(node.type)}{self._origin(node.origin)}"

    def attribute_texts(self, call: Call) -> list[str]:
        """Return the attributes that differ from their defaults (0.0 differs from -0.0)."""
        found = []
        for f in () if call.attrs is None else fields(call.attrs):
            text = self._value(getattr(call.attrs, f.name))
            if f.default is MISSING or text != self._value(f.default):
                found.append(f"{f.name}={text}")
        return found

    def callee(self, call: Call) -> str:
        if isinstance(call.op, Function):
            return self.function_names[call.op]
        return call.op.name

    def _constant(self, node: Constant) -> str:
        if node in self.constants:
            return f"const[{self.constants[node]}]"
        return f"{self.type_text(node.type)}{{{', '.join(map(str, _elements(node.value)))}}}"

    def type_text(self, type_: Type) -> str:
        if isinstance(type_, TensorType):
            return f"{type_.dtype}[{', '.join(map(self._dim, type_.shape))}]"
        return f"({', '.join(map(self.type_text, type_.fields))})"

    def _dim(self, dim: Dim) -> str:
        if not isinstance(dim, ex.Expr):
            return str(dim)
        for symbol in free_vars(dim):
            if symbol not in self.symbols:
                self.symbols[symbol] = self._named(symbol)
        return str(self.sizes.shorten([substitute(dim, self.symbols)], repeated=True)[0])

    def _named(self, symbol: ex.Var) -> ex.Var:
        """Return `symbol`, or a variable with a name that is readable and not taken yet."""
        base = symbol.name if _SYMBOL.match(symbol.name) else "size"
        name, number = base, 0
        while name in self.symbol_names:
            number += 1
            name = f"{base}_{number}"
        self.symbol_names.add(name)
        return symbol if name == symbol.name else ex.Var(name)

    def _value(self, value: object) -> str:
        if isinstance(value, ex.Expr):
            return self._dim(value)
        if isinstance(value, Function):
            return f"@{self.function_names[value]}"
        if isinstance(value, str):
            return json.dumps(value)
        if isinstance(value, (tuple, list)):
            inner = [self._value(v) for v in value]
            return f"({inner[0]},)" if len(inner) == 1 else f"({', '.join(inner)})"
        if value is None or isinstance(value, (bool, int, float)):
            return repr(value)
        raise InternalError(f"an attribute of type {type(value).__name__} cannot be printed")


def _elements(value: np.ndarray) -> list[object]:
    """Return the elements of an array as objects whose str() is exact."""
    dtype = dt.from_numpy(value.dtype)
    if dt.is_float(dtype):
        return list(value.reshape(-1))
    if dt.is_narrow(dtype):
        value = value.view(np.uint8)
    elements: list[object] = value.reshape(-1).tolist()
    return elements


def _fields(node: Tuple, names: dict[Node, str]) -> str:
    inner = [names[f] for f in node.fields]
    return f"({inner[0]},)" if len(inner) == 1 else f"({', '.join(inner)})"


def _origin_text(origin: str) -> str:
    return f"  # origin {json.dumps(origin)}" if origin else ""


def _quoted(name: str) -> str:
    return name if _NAME.match(name) else json.dumps(name)


def _unique(names: Sequence[str]) -> list[str]:
    """Return `names` with a number added where one is taken or is not an identifier."""
    taken: set[str] = set()
    result: list[str] = []
    for name in names:
        base = re.sub(r"[^A-Za-z0-9_]", "_", name)
        base = base if _SYMBOL.match(base) else f"f{base}"
        fresh, number = base, 0
        while fresh in taken:
            number += 1
            fresh = f"{base}_{number}"
        taken.add(fresh)
        result.append(fresh)
    return result
