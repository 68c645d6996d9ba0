# SPDX-License-Identifier: Apache-2.0
"""Random element-wise nodes, casts, quantised arithmetic included."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.fuzz.builder import ALL, FLOATS, INTEGERS, NUMBERS, SIGNED, UNSIGNED, Builder, Nothing
from treadle import dtype as dt

_EXACT = ("Relu", "Neg", "Abs", "Identity", "Sign", "Floor", "Ceil", "Round")
_SMOOTH = (
    "Exp", "Log", "Sqrt", "Reciprocal", "Sin", "Cos", "Tanh", "Sigmoid", "Erf", "Softplus",
    "Softsign", "Tan", "Atan", "Sinh", "Cosh", "Asinh", "Asin", "Acos", "Acosh", "Atanh",
)  # fmt: skip
_SHAPED: dict[str, tuple[int, dict[str, tuple[float, ...]]]] = {
    "LeakyRelu": (6, {"alpha": (0.01, 0.2)}),
    "Elu": (6, {"alpha": (1.0, 0.5)}),
    "Selu": (6, {}),
    "Celu": (12, {"alpha": (1.0, 0.5)}),
    "HardSigmoid": (6, {"alpha": (0.2, 0.3), "beta": (0.5, 0.4)}),
    "HardSwish": (14, {}),
    "Mish": (18, {}),
    "ThresholdedRelu": (10, {"alpha": (1.0, 0.25)}),
}


def exact_unary(b: Builder) -> None:
    op = b.random.choice(_EXACT)
    if op in ("Floor", "Ceil", "Round", "Sign"):
        kinds = FLOATS if op != "Sign" else NUMBERS
        b.add(op, [b.operand(kinds, is_exact=True)], is_exact=True)
    elif op == "Neg":
        b.add(op, [b.operand((*FLOATS, *SIGNED))], is_exact=True)
    elif op == "Relu":
        b.add(op, [b.operand((*FLOATS, "int8", "int32") if b.opset >= 14 else FLOATS)],
              is_exact=True)  # fmt: skip
    else:
        b.add(op, [b.operand(NUMBERS if op == "Abs" else ALL)], is_exact=True)


def smooth_unary(b: Builder) -> None:
    op = b.random.choice(_SMOOTH)
    x = b.operand(FLOATS)
    if op in ("Log", "Sqrt", "Reciprocal", "Acosh") and b.chance(0.9):
        x = _positive(b, x, 1.1 if op == "Acosh" else 0.1)
    if op in ("Asin", "Acos", "Atanh") and b.chance(0.9):
        x = b.add("Sin", [x])
    b.add(op, [x])


def _positive(b: Builder, x: str, least: float) -> str:
    kind = b.value(x).array.dtype
    offset = b.given(np.array(least, kind), is_constant=True)
    return b.add("Add", [b.add("Abs", [x], is_exact=True), offset])


def shaped_unary(b: Builder) -> None:
    op = b.random.choice(list(_SHAPED))
    since, choices = _SHAPED[op]
    if b.opset < since:
        raise Nothing
    attributes = {k: b.random.choice(v) for k, v in choices.items() if b.chance(0.7)}
    b.add(op, [b.operand(FLOATS)], **attributes)


def gelu(b: Builder) -> None:
    x = b.operand(FLOATS)
    if b.opset >= 20 and b.chance(0.5):
        b.add("Gelu", [x], approximate=b.random.choice(("none", "tanh", None)))
        return
    kind = b.value(x).array.dtype
    root, one, half = (b.given(np.array(v, kind), is_constant=True) for v in (2**0.5, 1.0, 0.5))
    inner = b.add("Add", [b.add("Erf", [b.add("Div", [x, root])]), one])
    b.add("Mul", [b.add("Mul", [x, inner]), half])


def swish(b: Builder) -> None:
    x = b.operand(FLOATS)
    b.add("Mul", [x, b.add(b.random.choice(("Sigmoid", "HardSigmoid", "Tanh")), [x])])


def arithmetic(b: Builder) -> None:
    op = b.random.choice(("Add", "Add", "Sub", "Mul", "Mul", "Div"))
    x = b.operand(NUMBERS)
    kind = b.value(x).dtype
    if op == "Div":
        y = b.fresh(kind, _part(b, b.value(x).shape), low=0.5, high=2.0)
        if dt.is_integer(kind) and not np.all(b.value(y).array):
            b.value(y).array[b.value(y).array == 0] = 3
    else:
        y = b.broadcast(x)
    pair = [x, y] if op == "Div" or b.chance(0.7) else [y, x]
    b.add(op, pair, is_exact=dt.is_integer(kind))


def _part(b: Builder, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape that broadcasts to `shape`."""
    sizes = [1 if b.chance(0.3) else d for d in shape]
    return tuple(sizes[b.random.randint(0, len(sizes)) if b.chance(0.4) else 0 :])


def extremes(b: Builder) -> None:
    x = b.operand(NUMBERS)
    others = [b.broadcast(x) for _ in range(b.random.randint(0, 2))]
    b.add(b.random.choice(("Max", "Min")), [x, *others], is_exact=True)


def sums(b: Builder) -> None:
    x = b.operand(FLOATS)
    others = [b.broadcast(x) for _ in range(b.random.randint(0, 3))]
    b.add(b.random.choice(("Sum", "Mean")), [x, *others])


def power(b: Builder) -> None:
    x = b.operand(FLOATS)
    kind = b.value(x).array.dtype
    exponent = b.random.choice((0.5, 1.0, 2.0, 3.0, -1.0, 1.5, 0.0))
    if exponent not in (1.0, 2.0, 3.0, 0.0):
        x = _positive(b, x, 0.3)
    b.add("Pow", [x, b.given(np.array(exponent, kind), is_constant=b.chance(0.8))])


def integer_power(b: Builder) -> None:
    x = b.operand(("int32", "int64"))
    kind = b.value(x).array.dtype
    b.add("Pow", [x, b.given(np.array(b.random.randint(0, 3), kind))], is_exact=True)


def modulo(b: Builder) -> None:
    is_float = b.chance(0.3)
    x = b.operand(FLOATS if is_float else INTEGERS, is_exact=True)
    kind, shape = b.value(x).dtype, _part(b, b.value(x).shape)
    y = b.array(kind, shape, 0.5, 2.0)
    y[y == 0] = 4
    fmod = 1 if is_float or b.chance(0.3) else None
    b.add("Mod", [x, b.given(y)], is_exact=True, fmod=fmod)


def bits(b: Builder) -> None:
    if b.opset >= 18 and b.chance(0.6):
        x = b.operand(INTEGERS)
        if b.chance(0.2):
            b.add("BitwiseNot", [x], is_exact=True)
            return
        op = b.random.choice(("BitwiseAnd", "BitwiseOr", "BitwiseXor"))
        b.add(op, [x, b.broadcast(x)], is_exact=True)
        return
    x = b.operand(UNSIGNED)
    kind, shape = b.value(x).array.dtype, _part(b, b.value(x).shape)
    by = np.asarray(b.numbers.integers(0, 8, shape)).astype(kind)
    b.add("BitShift", [x, b.given(by)], is_exact=True, direction=b.random.choice(("LEFT", "RIGHT")))


def comparison(b: Builder) -> None:
    op = b.random.choice(("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"))
    if b.opset < 16 and op in ("LessOrEqual", "GreaterOrEqual"):
        raise Nothing
    x = b.operand(NUMBERS, is_exact=True)
    y = b.broadcast(x)
    if not b.value(y).is_exact:
        y = b.fresh(b.value(x).dtype, _part(b, b.value(x).shape))
    b.add(op, [x, y], is_exact=True)


def logic(b: Builder) -> None:
    x = b.operand(("bool",))
    if b.chance(0.25):
        b.add("Not", [x], is_exact=True)
        return
    b.add(b.random.choice(("And", "Or", "Xor")), [x, b.broadcast(x)], is_exact=True)


def where(b: Builder) -> None:
    x = b.operand(ALL)
    y = b.broadcast(x)
    b.add("Where", [b.broadcast(x, dtype="bool"), x, y], is_exact=True)


def clip(b: Builder) -> None:
    x = b.operand(NUMBERS)
    kind = b.value(x).array.dtype
    low, high = (0, 6) if b.chance(0.4) or kind.kind == "u" else (-1, 1)
    if b.opset < 11:
        b.add("Clip", [x], is_exact=True, min=float(low), max=float(high))
        return
    bounds = [b.given(np.array(v, kind)) for v in (low, high)]
    if b.chance(0.3):
        bounds[b.random.randrange(2)] = ""
    while bounds and not bounds[-1]:
        bounds.pop()
    b.add("Clip", [x, *bounds], is_exact=True)


def prelu(b: Builder) -> None:
    x = b.operand(FLOATS)
    slope = b.fresh(b.value(x).dtype, _part(b, b.value(x).shape))
    b.add("PRelu", [x, slope])


def cast(b: Builder) -> None:
    """Cast; to fewer bits only what every correct program rounds alike."""
    x = b.operand(ALL)
    value = b.value(x)
    wanted = b.random.choice(ALL)
    narrow = not (dt.is_float(wanted) and dt.is_float(value.dtype))
    if narrow and not value.is_exact:
        raise Nothing
    if dt.is_unsigned(wanted) and np.min(value.array.astype(np.float64), initial=0) < 0:
        raise Nothing  # what a negative float becomes is not defined
    if b.chance(0.15):
        like = b.fresh(wanted, b.shape(1), is_constant=False)
        if b.opset >= 15:
            b.add("CastLike", [x, like], is_exact=True)
            return
    to = helper.np_dtype_to_tensor_dtype(dt.to_numpy(wanted))
    b.add("Cast", [x], is_exact=True, to=to)


def special(b: Builder) -> None:
    x = b.operand(("float32", "float64"), is_exact=True)
    y = b.add(b.random.choice(("IsNaN", "IsInf")), [x], is_exact=True)
    b.add("Not", [y], is_exact=True)


def quantize(b: Builder) -> None:
    """Quantise and come back, per tensor or per axis."""
    x = b.operand(("float32",), is_exact=True)
    value = b.value(x)
    axis = b.random.randrange(value.array.ndim) if value.array.ndim and b.chance(0.4) else None
    shape = () if axis is None else (value.shape[axis],)
    kind = b.random.choice((np.int8, np.uint8, *((np.int16, np.uint16) * (b.opset >= 21))))
    if b.opset < 13:
        axis, shape = None, ()
    if b.opset >= 21 and b.chance(0.3):
        _quantize_blocks(b, x, kind)
        return
    scale = b.given(np.asarray(b.numbers.choice([0.0625, 0.03, 0.11], shape), np.float32))
    zero = b.given(np.asarray(b.numbers.integers(0, 9, shape), kind))
    q = b.add("QuantizeLinear", [x, scale, zero], is_exact=True, axis=axis)
    if b.chance(0.7):
        b.add("DequantizeLinear", [q, scale, zero], axis=axis)


def _quantize_blocks(b: Builder, x: str, kind: type[np.integer]) -> None:
    """Quantise with a scale for every block of neighbours along the last axis, and come back."""
    shape = b.value(x).shape
    if not shape or not all(shape):
        raise Nothing
    block = b.random.choice([s for s in (1, 2, 3, 4, 8) if shape[-1] % s == 0])
    rows = (*shape[:-1], shape[-1] // block)
    scale = b.given(np.asarray(b.numbers.choice([0.0625, 0.03, 0.11], rows), np.float32))
    zero = b.given(np.asarray(b.numbers.integers(0, 9, rows), kind))
    how = {"axis": -1, "block_size": block}
    q = b.add("QuantizeLinear", [x, scale, zero], is_exact=True, **how)
    b.add("DequantizeLinear", [q, scale, zero], **how)


def dynamic_quantize(b: Builder) -> None:
    x = b.operand(("float32",), is_exact=True)
    if not b.value(x).array.size:
        raise Nothing  # the range of nothing is not defined
    b.add("DynamicQuantizeLinear", [x], outputs=3, is_exact=True)
