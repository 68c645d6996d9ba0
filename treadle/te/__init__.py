# SPDX-License-Identifier: Apache-2.0
"""Tensor expressions and schedules: what is computed, and how its loops run.

This package re-exports the language: `from treadle import te` is how users write kernels, and
Treadle its operators.
"""

from treadle.te.operations import KEPT, ComputeOp, ExternOp, IterVar, PlaceholderOp, Reduce, Tensor
from treadle.te.reductions import comm_reducer, max, min, prod, sum
from treadle.te.schedule import Schedule, create_schedule
from treadle.te.stage import Stage
from treadle.te.steps import Step, steps_from_json
from treadle.te.tensor import (
    abs,
    acos,
    acosh,
    all,
    any,
    asin,
    asinh,
    atan,
    atanh,
    ceil,
    compute,
    compute_one,
    const,
    cos,
    cosh,
    erf,
    exp,
    exp_weight,
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
    max_value,
    min_value,
    normal_cdf,
    placeholder,
    power,
    reduce_axis,
    round,
    rsqrt,
    sigmoid,
    sin,
    sinh,
    size_var,
    softplus,
    sqrt,
    tan,
    tanh,
    thread_axis,
    trunc,
    truncdiv,
    truncmod,
    var,
)

__all__ = [
    "KEPT", "ComputeOp", "ExternOp", "IterVar", "PlaceholderOp", "Reduce", "Schedule", "Stage",
    "Step", "Tensor", "abs", "acos", "acosh", "all", "any", "asin", "asinh", "atan", "atanh",
    "ceil", "comm_reducer", "compute", "compute_one", "const", "cos", "cosh", "create_schedule",
    "erf", "exp", "exp_weight", "expm1", "extern", "floor", "floordiv", "floormod", "fma", "fmod",
    "if_then_else", "isinf", "isnan", "log", "log1p", "log2", "max", "max_value", "min",
    "min_value", "normal_cdf", "placeholder", "power", "prod", "reduce_axis", "round", "rsqrt",
    "sigmoid", "sin", "sinh", "size_var", "softplus", "sqrt", "steps_from_json", "sum", "tan",
    "tanh", "thread_axis", "trunc", "truncdiv", "truncmod", "var",
]  # fmt: skip
