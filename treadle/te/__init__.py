# SPDX-License-Identifier: Apache-2.0
"""Tensor expressions and schedules: what is computed, and how its loops run.

This package re-exports the language: `from treadle import te` is how users write kernels.
"""

from treadle.te.schedule import Schedule, Stage, create_schedule
from treadle.te.tensor import (
    ComputeOp,
    ExternOp,
    IterVar,
    PlaceholderOp,
    Tensor,
    abs,  # noqa: A004
    acos,
    acosh,
    all,  # noqa: A004
    any,  # noqa: A004
    asin,
    asinh,
    atan,
    atanh,
    ceil,
    comm_reducer,
    compute,
    const,
    cos,
    cosh,
    erf,
    exp,
    expm1,
    extern,
    floor,
    floordiv,
    floormod,
    fma,
    fmod,
    if_then_else,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    max,  # noqa: A004
    max_value,
    min,  # noqa: A004
    min_value,
    placeholder,
    power,
    prod,
    reduce_axis,
    round,  # noqa: A004
    rsqrt,
    sigmoid,
    sin,
    sinh,
    size_var,
    sqrt,
    sum,  # noqa: A004
    tan,
    tanh,
    thread_axis,
    trunc,
    truncdiv,
    truncmod,
    var,
)

__all__ = [
    "ComputeOp", "ExternOp", "IterVar", "PlaceholderOp", "Schedule", "Stage", "Tensor",
    "abs", "acos", "acosh", "all", "any", "asin", "asinh", "atan", "atanh", "ceil",
    "comm_reducer", "compute", "const", "cos", "cosh", "create_schedule", "erf", "exp", "expm1",
    "extern",    "floor", "floordiv", "floormod", "fma", "fmod", "if_then_else", "isinf", "isnan", "log",
    "log1p", "log2", "max", "max_value", "min", "min_value", "placeholder", "power", "prod",
    "reduce_axis", "round", "rsqrt", "sigmoid", "sin", "sinh", "size_var", "sqrt", "sum", "tan",
    "tanh", "thread_axis", "trunc", "truncdiv", "truncmod", "var",
]  # fmt: skip
