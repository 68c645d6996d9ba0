# SPDX-License-Identifier: Apache-2.0
"""Scalar expressions to C: one line where it can be read, variables for what is used twice.

Nothing is evaluated that the expression would not evaluate: a lazy `Select` whose branches may
trap becomes an `if` with a block for each of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from treadle.dtype import INDEX, bits, is_float, is_integer, is_signed, is_unsigned
from treadle.errors import InternalError
from treadle.expr.nodes import Apply, Binary, Call, Cast, Const, Expr, Load, Select, Var
from treadle.expr.traversal import walk
from treadle.loop.nodes import Buffer
from treadle.target.c_counters import NARROW, Counters
from treadle.target.c_dialects import C, Dialect
from treadle.target.c_helpers import c_type, short_name, unsigned_type
from treadle.target.llvm_builder import float_bits
from treadle.target.llvm_facts import Facts, buffer_of
from treadle.target.value_facts import is_never_negative
from treadle.te.intrinsics import Intrinsic

_LONGEST_INLINE = 72
"""Characters of a subexpression that still stands inside another one."""

_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "bitand": "&", "bitor": "|", "bitxor": "^",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "&&", "or": "||",
}  # fmt: skip
_BOOL_OPERATORS = {
    "and": "&&", "or": "||", "min": "&&", "max": "||",
    "bitand": "&&", "bitor": "||", "bitxor": "!=", "eq": "==", "ne": "!=",
}  # fmt: skip
_ROUNDING = frozenset({"floor", "ceil", "trunc", "round"})


class Lines:
    """The lines of one C function with their indentation, and names not used in it yet."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self._taken = set(taken)

    def line(self, text: str) -> None:
        """Append one line."""
        self.lines.append("  " * self.depth + text)

    def fresh(self, stem: str) -> str:
        """Return an unused name that begins with `stem`."""
        name, number = stem, 1
        while name in self._taken:
            number += 1
            name = f"{stem}_{number}"
        self._taken.add(name)
        return name

    @contextmanager
    def block(self, head: str, end: str = "}") -> Iterator[None]:
        """Put what is appended inside between `head {` and `end`."""
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line(end)


class Values:
    """Prints expressions into `lines`; `names` maps variables and buffers (by id) to C names."""

    def __init__(
        self,
        lines: Lines,
        facts: Facts,
        helpers: set[str],
        counters: Counters,
        *,
        has_fma: bool,
        dialect: Dialect = C,
    ) -> None:
        self.lines = lines
        self.facts = facts
        self.counters = counters
        self.helpers = helpers
        self.has_fma = has_fma
        self.dialect = dialect
        self.vars: dict[Var, str] = {}
        self.buffers: dict[int, str] = {}
        self._uses: Counter[Expr] = Counter()
        self._known: dict[Expr, str] = {}

    def statement(self, *roots: Expr) -> list[str]:
        """Return C expressions for the operands of one statement; appends what they need first."""
        self._uses = Counter(roots)
        seen: set[Expr] = set()
        for node in (n for root in roots for n in walk(root)):
            if node not in seen:
                seen.add(node)
                self._uses.update(node.children)
        self._known = {}
        return [self._value(root) for root in roots]

    # -- order of evaluation

    def _value(self, root: Expr) -> str:
        stack = [root]
        while stack:
            e = stack[-1]
            waiting = [c for c in self._operands(e) if self._find(c) is None]
            if self._find(e) is not None:
                stack.pop()
            elif waiting:
                stack.extend(reversed(waiting))
            else:
                stack.pop()
                self._known[e] = self._named(e, self._text(e))
        found = self._find(root)
        if found is None:
            raise InternalError(f"code generation lost the value of {root}")
        return found

    def _find(self, e: Expr) -> str | None:
        if isinstance(e, Const):
            return self._constant(e)
        if isinstance(e, Var):
            if e not in self.vars:
                raise InternalError(f"variable {e.name} has no value in generated code")
            return self.vars[e]
        return self._known.get(e)

    def _operands(self, e: Expr) -> tuple[Expr, ...]:
        """Return what must be printed before `e`."""
        return (e.cond,) if isinstance(e, Select) and self._branches(e) else e.children

    def _branches(self, e: Select) -> bool:
        return e.lazy and (self.facts.has_hazard(e.then) or self.facts.has_hazard(e.other))

    def _named(self, e: Expr, text: str) -> str:
        """Give an expression a variable where it is used again or too long to stand inline."""
        if text.isidentifier() or (self._uses[e] < 2 and len(text) <= _LONGEST_INLINE):
            return text
        name = self.lines.fresh("t")
        self.lines.line(f"const {self.counters.c_type(e)} {name} = {bare(text)};")
        return name

    def _select(self, e: Select) -> str:
        cond = self._value(e.cond)
        if not self._branches(e):
            return f"({cond} ? {self._value(e.then)} : {self._value(e.other)})"
        name = self.lines.fresh("t")
        self.lines.line(f"{self.counters.c_type(e)} {name};")
        for head, end, branch in ((f"if ({bare(cond)})", "} else {", e.then), ("", "}", e.other)):
            if head:
                self.lines.line(f"{head} {{")
            self.lines.depth += 1
            known = dict(self._known)
            self.lines.line(f"{name} = {bare(self._value(branch))};")
            self._known = known
            self.lines.depth -= 1
            self.lines.line(end)
        return name

    # -- one node, its operands printed

    def _text(self, e: Expr) -> str:
        if isinstance(e, Select):
            return self._select(e)
        args = [self._value(c) for c in e.children]
        if isinstance(e, Load):
            return self._load(e, args[0])
        if isinstance(e, Binary):
            return self._index(e, *args) if e.dtype == INDEX else self._binary(e, *args)
        if isinstance(e, Cast):
            wanted = NARROW if self.counters.is_narrow(e) else e.dtype
            return self.convert(args[0], e.value.dtype, wanted)
        if isinstance(e, Call):
            return self._call(e, args)
        if isinstance(e, Apply) and isinstance(e.instruction, Intrinsic):
            return f"({e.instruction.c_text(args)})"
        raise InternalError(f"a vector reaches the C back end: {e}")

    def _load(self, e: Load, index: str) -> str:
        element = f"{self.buffer(buffer_of(e.source))}[{bare(index)}]"
        return f"({element} != 0)" if e.dtype == "bool" else element

    def buffer(self, buffer: Buffer) -> str:
        """Return the name of a buffer's pointer or array."""
        found = self.buffers.get(id(buffer))
        if found is None:
            raise InternalError(f"buffer {buffer.name} has no address in generated code")
        return found

    def helper(self, name: str, *args: str) -> str:
        """Return a call of a helper, which is then defined above the kernel."""
        self.helpers.add(name)
        return f"{name}({', '.join(map(bare, args))})"

    def _constant(self, e: Const) -> str:
        value, dtype = e.value, e.dtype
        if dtype == "bool":
            return "true" if value else "false"
        if dtype in ("float16", "bfloat16"):
            return f"{float_bits(float(value), dtype):#06x}"
        if is_float(dtype):
            return _float_text(float(value), dtype)
        return _integer_text(int(value), dtype)

    # -- operators

    def _index(self, e: Binary, a: str, b: str) -> str:
        """Print an operation on indices in as many bits as operands and result need."""
        is_narrow = [self.counters.is_narrow(x) for x in (e, e.a, e.b)]
        if all(is_narrow) and e.op not in ("shl", "shr"):
            return self._integer_binary(e, NARROW, a, b)
        wide = f"({c_type(INDEX)}){a}" if is_narrow[1] else a
        text = self._integer_binary(e, INDEX, wide, b)
        return f"({c_type(NARROW)}){text}" if is_narrow[0] else text

    def _binary(self, e: Binary, a: str, b: str) -> str:
        dtype = e.a.dtype
        if dtype == "bool":
            if e.op not in _BOOL_OPERATORS:
                raise InternalError(f"'{e.op}' of bool operands reaches code generation: {e}")
            return f"({a} {_BOOL_OPERATORS[e.op]} {b})"
        if bits(dtype) == 16 and is_float(dtype):
            wide = [self.convert(x, dtype, "float32") for x in (a, b)]
            result = self._float_binary(e, "float32", *wide)
            return result if e.dtype == "bool" else self.convert(result, "float32", dtype)
        if is_float(dtype):
            return self._float_binary(e, dtype, a, b)
        return self._integer_binary(e, dtype, a, b)

    def _float_binary(self, e: Binary, dtype: str, a: str, b: str) -> str:
        if e.op in ("min", "max"):
            return self.helper(f"td_{e.op}_{short_name(dtype)}", a, b)
        if e.op not in _OPERATORS:
            raise InternalError(f"'{e.op}' of {dtype} operands reaches code generation: {e}")
        return f"({a} {_OPERATORS[e.op]} {b})"

    def _integer_binary(self, e: Binary, dtype: str, a: str, b: str) -> str:
        if e.op in ("floordiv", "floormod", "truncdiv", "truncmod", "div"):
            return self._division(e, dtype, a, b)
        if e.op in ("shl", "shr") and isinstance(e.b, Const) and 0 <= e.b.value < bits(dtype):
            return f"({c_type(dtype)})({a} {'<<' if e.op == 'shl' else '>>'} {b})"
        if e.op in ("min", "max", "shl", "shr"):
            return self.helper(f"td_{e.op}_{short_name(dtype)}", a, b)
        text = f"({a} {_OPERATORS[e.op]} {b})"
        if e.dtype == "bool" or (bits(dtype) >= 32 and not self._may_wrap(e)):
            return text
        if bits(dtype) >= 32:
            u = unsigned_type(dtype)
            text = f"(({u}){a} {_OPERATORS[e.op]} ({u}){b})"
        return f"({c_type(dtype)}){text}"

    def _may_wrap(self, e: Binary) -> bool:
        """True where the language leaves open what a sum of signed numbers is, and data decides.

        Indices stay inside of their type.
        """
        if self.dialect.wraps or e.op not in ("add", "sub", "mul") or not is_signed(e.dtype):
            return False
        return e.dtype != INDEX or any(not isinstance(leaf, Var) for leaf in e.leaves)

    def _division(self, e: Binary, dtype: str, a: str, b: str) -> str:
        wants_quotient = e.op in ("floordiv", "truncdiv", "div")
        if isinstance(e.b, Const) and e.b.value == 0:
            return a  # undefined by the law of expressions
        if is_unsigned(dtype) or (is_never_negative(e.a) and is_never_negative(e.b)):
            return f"({a} {'/' if wants_quotient else '%'} {b})"
        name = "truncdiv" if e.op == "div" else e.op
        return self.helper(f"td_{name}_{short_name(dtype)}", a, b)

    # -- conversions

    def convert(self, value: str, source: str, target: str) -> str:
        """Return a value converted as `Cast` says."""
        if source == target:
            return value
        if bits(source) == 16 and is_float(source):
            return self.convert(
                self.helper(f"td_{short_name(source)}_to_f32", value), "float32", target
            )
        if target == "bool":
            return f"({value} != 0)"
        if is_float(target) and bits(target) == 16:
            if source == "float64":
                value = self.helper("td_f64_to_odd", value)
            elif source != "float32":
                value = f"(float){value}"
            return self.helper(f"td_f32_to_{short_name(target)}", value)
        if is_float(source) and is_integer(target):
            return self.helper(f"td_{short_name(source)}_to_{short_name(target)}", value)
        return f"({c_type(target)}){value}"

    # -- functions

    def _call(self, e: Call, args: list[str]) -> str:
        dtype = e.args[0].dtype
        if e.name == "bitcast":
            return self._bitcast(dtype, e.dtype, args[0])
        if e.name == "not":
            return f"!{args[0]}"
        if e.name in ("popcount", "clz") or (e.name == "abs" and is_integer(dtype)):
            is_plain = e.name == "abs" and is_unsigned(dtype)
            return args[0] if is_plain else self.helper(f"td_{e.name}_{short_name(dtype)}", args[0])
        if e.name in _ROUNDING and is_integer(dtype):
            return args[0]
        if not is_float(dtype):
            raise InternalError(f"'{e.name}' of {dtype} reaches code generation: {e}")
        if bits(dtype) == 16:
            wide = [self.convert(a, dtype, "float32") for a in args]
            result = self._float_call(e, "float32", wide)
            return result if e.dtype == "bool" else self.convert(result, "float32", dtype)
        return self._float_call(e, dtype, args)

    def _bitcast(self, source: str, target: str, value: str) -> str:
        if c_type(source) == c_type(target):
            return value
        if is_integer(source) and is_integer(target):
            return f"({c_type(target)}){value}"
        return self.helper(f"td_bits_{short_name(source)}_as_{short_name(target)}", value)

    def _float_call(self, e: Call, dtype: str, args: list[str]) -> str:
        if e.name in ("isnan", "isinf"):
            x = args[0] if args[0].isidentifier() else self._variable(dtype, args[0])
            fabs = self.dialect.function("fabs", dtype)
            return f"({x} != {x})" if e.name == "isnan" else f"({fabs}({x}) == INFINITY)"
        if e.name in _ROUNDING:
            return self.helper(f"td_{e.name}_{short_name(dtype)}", args[0])
        if e.name == "fma":
            return self._fma(dtype, args)
        builtin = {"sqrt": "sqrt", "abs": "fabs", "copysign": "copysign"}.get(e.name)
        if builtin is None:
            raise InternalError(
                f"{e.name!r} reaches code generation: {e}",
                hint="the lowering pass expand_math runs before the target",
            )
        return f"{self.dialect.function(builtin, dtype)}({', '.join(map(bare, args))})"

    def _variable(self, dtype: str, text: str) -> str:
        name = self.lines.fresh("t")
        self.lines.line(f"const {c_type(dtype)} {name} = {bare(text)};")
        return name

    def _fma(self, dtype: str, args: list[str]) -> str:
        if self.has_fma:
            return f"{self.dialect.function('fma', dtype)}({', '.join(map(bare, args))})"
        return f"({args[0]} * {args[1]} + {args[2]})"


def bare(text: str) -> str:
    """Return an expression without the parentheses around all of it."""
    if not text.startswith("(") or not text.endswith(")"):
        return text
    depth = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and place < len(text) - 1:
            return text
    return text[1:-1]


def _float_text(value: float, dtype: str) -> str:
    """Return a literal that reads back as exactly this value."""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = str(np.float32(value)) if dtype == "float32" else repr(value)
    text = text if any(c in text for c in ".e") else f"{text}.0"
    text = f"{text}f" if dtype == "float32" else text
    return f"({text})" if text.startswith("-") else text


def _integer_text(value: int, dtype: str) -> str:
    if value == -(2**63):
        return "INT64_MIN"
    if value == -(2**31) and dtype == "int32":
        return "INT32_MIN"
    suffix = {"uint32": "u", "uint64": "ull"}.get(dtype, "")
    if dtype == INDEX and abs(value) >= 2**31:
        suffix = "ll"
    return f"({value}{suffix})" if value < 0 else f"{value}{suffix}"
