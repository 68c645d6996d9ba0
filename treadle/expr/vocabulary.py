# SPDX-License-Identifier: Apache-2.0
"""The operators and intrinsic functions that expressions may name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

ArithmeticOp = Literal[
    "add", "sub", "mul", "div", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max",
    "bitand", "bitor", "bitxor", "shl", "shr",
]  # fmt: skip
CompareOp = Literal["eq", "ne", "lt", "le", "gt", "ge"]
LogicOp = Literal["and", "or"]
BinaryOp: TypeAlias = ArithmeticOp | CompareOp | LogicOp

COMPARE_OPS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
LOGIC_OPS = frozenset({"and", "or"})
DIVISIONS = frozenset({"floordiv", "floormod", "truncdiv", "truncmod"})

HAS_LAZY, HAS_CALL, HAS_LOAD, HAS_DIVISION, HAS_VECTOR = 1, 2, 4, 8, 16
"""What `Expr.traits` says of a node and all below it, as bits: a `Select` that is lazy, a function
or an instruction, a `Load`, a quotient or remainder, a vector."""

INTRINSICS: Mapping[str, int] = {
    "exp": 1, "log": 1, "log2": 1, "log1p": 1, "expm1": 1, "sqrt": 1, "rsqrt": 1, "erf": 1,
    "sin": 1, "cos": 1, "tan": 1, "sinh": 1, "cosh": 1, "tanh": 1,
    "asin": 1, "acos": 1, "atan": 1, "asinh": 1, "acosh": 1, "atanh": 1, "sigmoid": 1,
    "normal_cdf": 1, "softplus": 1, "exp_weight": 1,
    "pow": 2, "atan2": 2, "fmod": 2, "copysign": 2,
    "abs": 1, "floor": 1, "ceil": 1, "trunc": 1, "round": 1, "isnan": 1, "isinf": 1,
    "fma": 3, "popcount": 1, "clz": 1, "bitcast": 1, "not": 1,
}  # fmt: skip
"""Pure functions a `Call` may name, with their arity. `round` is half to even, `not` is logical,
`bitcast` reinterprets equal-sized types, `abs` of the smallest integer is itself. `exp_weight` is
`exp` of what is at most 0, and may be 0 where that is nothing next to 1. Instructions that not
every machine has are no such functions: an `Apply` holds one."""
