# SPDX-License-Identifier: Apache-2.0
"""Expressions of sizes as text, both ways: Python over named sizes and functions of `te`.

Only what sizes are made of: integers, comparisons, te.min, te.max, te.truncdiv, te.truncmod,
te.if_then_else, te.const and .astype(). Reading checks every word of the text; nothing is executed.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable, Iterable, Mapping

from treadle import dtype as dt
from treadle.errors import ScheduleError, TreadleError
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr, ExprLike, Var
from treadle.expr.traversal import free_vars, walk
from treadle.expr.vocabulary import BinaryOp

LONGEST = 2000
"""Characters of an expression; longer ones are neither written nor read."""

_SYMBOLS: dict[BinaryOp, str] = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "floormod": "%",
    "bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>", "and": "&", "or": "|",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
_FUNCTIONS: dict[str, Callable[[ExprLike, ExprLike], Expr]] = {
    "min": ex.minimum, "max": ex.maximum, "truncdiv": ex.truncdiv, "truncmod": ex.truncmod,
}  # fmt: skip
_OPERATORS: dict[type[ast.AST], BinaryOp] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floordiv",
    ast.Mod: "floormod", ast.BitXor: "bitxor", ast.LShift: "shl", ast.RShift: "shr",
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip


def identifier(name: str, taken: Mapping[str, object]) -> str:
    """Return `name` as a Python name that is none of `taken`."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII) or "_"
    if plain[0].isdigit() or keyword.iskeyword(plain) or plain in ("te", "s", "_"):
        plain = f"_{plain}"
    made, count = plain, 1
    while made in taken:
        made, count = f"{plain}_{count}", count + 1
    return made


class Sizes:
    """The sizes of a schedule by name: `s.sizes["n"]`, a name for each as Python takes it."""

    def __init__(self, variables: Iterable[Var]) -> None:
        self.names: dict[Var, str] = {}
        self.by_name: dict[str, Var] = {}
        self.add(variables)
        self.own = frozenset(self.by_name)
        """Those that the tensors of the schedule have; others are a user's."""

    def add(self, variables: Iterable[Var]) -> None:
        """Name further sizes."""
        for v in variables:
            if v not in self.names:
                self.names[v] = identifier(v.name, self.by_name)
                self.by_name[self.names[v]] = v

    def __getitem__(self, name: str) -> Var:
        return _named(name, self.by_name)

    def text(self, e: Expr) -> str:
        """Return an expression as text; sizes that have no name are given one."""
        self.add(v for v in free_vars(e) if type(v) is Var)
        return size_text(e, self.names)

    def parsed(self, text: str) -> Expr:
        """Return the expression that a text stands for."""
        return parse_size(text, self.by_name)


def _named(name: str, names: Mapping[str, Var]) -> Var:
    found = names.get(name)
    if found is None:
        raise ScheduleError(
            f"there is no size {name:.60}; the sizes are {', '.join(names) or 'none'}",
            hint="name it where the steps are replayed: replay(steps, sizes=[...])",
        )
    return found


def size_text(e: Expr, names: Mapping[Var, str]) -> str:
    """Return an expression of variables that all have a name as text.

    Raises: ScheduleError where it holds anything that no size is made of, or is too long.
    """
    texts: dict[Expr, str] = {}
    for n in walk(e):
        texts[n] = _node_text(n, texts, names)
        if len(texts[n]) > LONGEST:
            raise ScheduleError(f"the expression {texts[n][:60]}... is too long to be written down")
    return _bare(e, texts[e])


def _bare(e: Expr, text: str) -> str:
    """Return the text of an expression that stands alone."""
    is_infix = isinstance(e, ex.Binary) and e.op in _SYMBOLS
    return text[1:-1] if is_infix else text


def _node_text(e: Expr, texts: Mapping[Expr, str], names: Mapping[Var, str]) -> str:
    if isinstance(e, Var) and e in names:
        return names[e]
    if isinstance(e, Const) and isinstance(e.value, int):
        is_plain = e.dtype in (dt.INDEX, "bool")
        return str(e.value) if is_plain else f'te.const({e.value}, "{e.dtype}")'
    parts = [texts[c] for c in e.children]
    if isinstance(e, ex.Binary) and e.op in _SYMBOLS:
        return f"({parts[0]} {_SYMBOLS[e.op]} {parts[1]})"
    bare = ", ".join(_bare(c, text) for c, text in zip(e.children, parts, strict=True))
    if isinstance(e, ex.Binary) and e.op in _FUNCTIONS:
        return f"te.{e.op}({bare})"
    if isinstance(e, ex.Select) and e.lazy:
        return f"te.if_then_else({bare})"
    if isinstance(e, ex.Cast):
        return f'{parts[0]}.astype("{e.dtype}")'
    raise ScheduleError(
        f"{e} is no expression of sizes, and cannot be written down",
        hint="use integers, sizes made by te.var, + - * // %, te.min and te.max",
    )


def parse_size(text: str, names: Mapping[str, Var]) -> Expr:
    """Return the expression that `size_text` has written.

    Raises: ScheduleError for any other text, and for a name that is none of `names`.
    """
    if len(text) > LONGEST:
        raise ScheduleError(f"an expression of {len(text)} characters is too long")
    try:
        tree = ast.parse(text, mode="eval").body
        return ex.convert(_Reader(names).read(tree))
    except ScheduleError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        problem = "nested too deeply" if isinstance(e, (RecursionError, MemoryError)) else str(e)
        raise ScheduleError(f"{text!r:.80} is no expression of sizes: {problem}") from None
    except TreadleError as e:
        raise ScheduleError(f"{text!r:.80} is no expression of sizes: {e.problem}") from None


class _Reader:
    def __init__(self, names: Mapping[str, Var]) -> None:
        self.names = names

    def read(self, tree: ast.expr) -> ExprLike:
        if isinstance(tree, ast.Constant) and type(tree.value) in (int, bool):
            return self._number(tree.value)
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
            operand = self.read(tree.operand)
            return self._number(-operand) if type(operand) is int else 0 - ex.convert(operand)
        if isinstance(tree, ast.Name):
            return _named(tree.id, self.names)
        if isinstance(tree, ast.BinOp):
            return self._binary(tree.op, tree.left, tree.right)
        if isinstance(tree, ast.Compare) and len(tree.ops) == 1:
            return self._binary(tree.ops[0], tree.left, tree.comparators[0])
        if isinstance(tree, ast.Call) and not tree.keywords:
            return self._call(tree.func, tree.args)
        raise ScheduleError(f"an expression of sizes cannot hold {ast.unparse(tree)!r:.60}")

    def _number(self, value: object) -> ExprLike:
        assert isinstance(value, int)
        if not -(1 << 63) <= value < 1 << 63:
            raise ScheduleError("an expression of sizes holds a number of more than 64 bits")
        return value

    def _binary(self, op: ast.AST, left: ast.expr, right: ast.expr) -> Expr:
        a, b = self.read(left), self.read(right)
        if isinstance(op, (ast.BitAnd, ast.BitOr)):
            is_logic = ex.convert(a).dtype == "bool"
            names: tuple[BinaryOp, BinaryOp] = ("and", "or")
            bitwise: tuple[BinaryOp, BinaryOp] = ("bitand", "bitor")
            return ex.binary((names if is_logic else bitwise)[isinstance(op, ast.BitOr)], a, b)
        kind = _OPERATORS.get(type(op))
        if kind is None:
            raise ScheduleError(f"an expression of sizes cannot hold {type(op).__name__}")
        return ex.binary(kind, a, b)

    def _call(self, function: ast.expr, arguments: list[ast.expr]) -> Expr:
        name = function.attr if isinstance(function, ast.Attribute) else ""
        is_te = isinstance(function, ast.Attribute) and _is_name(function.value, "te")
        if is_te and name in _FUNCTIONS and len(arguments) == 2:
            return _FUNCTIONS[name](self.read(arguments[0]), self.read(arguments[1]))
        if is_te and name == "if_then_else" and len(arguments) == 3:
            cond, then, other = map(self.read, arguments)
            return ex.select(cond, then, other, lazy=True)
        last = arguments[-1] if arguments else None
        dtype = last.value if isinstance(last, ast.Constant) else None
        if isinstance(dtype, str) and dtype in _DTYPES:
            if is_te and name == "const" and len(arguments) == 2:
                return ex.convert(self.read(arguments[0]), dtype)
            if isinstance(function, ast.Attribute) and name == "astype" and len(arguments) == 1:
                return ex.cast(self.read(function.value), dtype)
        raise ScheduleError(f"an expression of sizes cannot call {ast.unparse(function)!r:.60}")


def _is_name(tree: ast.expr, name: str) -> bool:
    return isinstance(tree, ast.Name) and tree.id == name
