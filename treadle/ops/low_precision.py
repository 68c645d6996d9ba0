# SPDX-License-Identifier: Apache-2.0
"""Conversion between the narrow element types (8 bits and fewer) and those arithmetic is done in.

The formats are those of the OCP specifications for 8-bit floats and for microscaling, and of
"8-bit Numerical Formats for Deep Neural Networks" (the `uz` ones, with one zero and one NaN).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Expr, call, cast, select
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.types import Type
from treadle.ops.elementwise_factory import broadcast_size
from treadle.ops.numeric import SPECIAL_FLOATS, check_elements
from treadle.te.operations import Tensor


class _Format(NamedTuple):
    """A float format of a sign, an exponent and a mantissa; codes are without the sign."""

    bias: int
    mantissa: int  # bits
    largest: int  # the code of the largest finite value
    infinity: int | None
    nan: int  # with the sign; for a format without NaN what it becomes
    signed_zero: bool = True

    @property
    def sign(self) -> int:
        """The bit of the sign."""
        return 8 if self.largest < 8 else 128


FORMATS: Mapping[str, _Format] = {
    "float8_e4m3fn": _Format(7, 3, 0x7E, None, 0x7F),
    "float8_e4m3fnuz": _Format(8, 3, 0x7F, None, 0x80, signed_zero=False),
    "float8_e5m2": _Format(15, 2, 0x7B, 0x7C, 0x7E),
    "float8_e5m2fnuz": _Format(16, 2, 0x7F, None, 0x80, signed_zero=False),
    "float4_e2m1fn": _Format(1, 1, 0x7, None, 0x8),
}
SCALE = "float8_e8m0fnu"
"""The type of a power of two without sign, mantissa and zero."""

NARROW_FLOATS = (*FORMATS, SCALE)
NARROW_INTEGERS = ("int4", "uint4", "int2", "uint2")
_WORDS = {"float32": ("int32", 23, 127), "float64": ("int64", 52, 1023)}
"""Integer of the same size, bits of the mantissa and bias of the exponent."""


# widen: every value of a narrow type, exactly.


def _wide_type(name: str) -> str:
    if name in NARROW_FLOATS:
        return "float32"
    return "int8" if name.startswith("int") else "uint8"


def _infer_widen(a: Attrs, x: Type) -> Type:
    source = check_elements(x, dt.NARROW)
    return source.with_dtype(_wide_type(source.dtype))


def _widened(x: Expr) -> Expr:
    code = call("bitcast", x, dtype="uint8")
    if x.dtype in NARROW_INTEGERS:
        return _widened_integer(code, dt.NARROW_BITS[x.dtype], _wide_type(x.dtype))
    word = cast(code, "int32")
    if x.dtype == SCALE:
        bits = select(word == 0, 0x00400000, word << 23)
        return select(word == 255, float("nan"), call("bitcast", bits, dtype="float32"))
    return _widened_float(word, FORMATS[x.dtype])


def _widened_integer(code: Expr, width: int, dtype: str) -> Expr:
    low = code & ((1 << width) - 1)
    if dtype == "uint8":
        return low
    sign = 1 << (width - 1)
    return cast(low ^ sign, "int8") - sign


def _widened_float(word: Expr, form: _Format) -> Expr:
    """Place exponent and mantissa in a float32 and scale by the difference of the biases."""
    size = word & (form.sign - 1)
    small = call("bitcast", size << (23 - form.mantissa), dtype="float32")
    value = small * 2.0 ** (127 - form.bias)
    if form.infinity is not None:
        value = select(size == form.infinity, float("inf"), value)
        value = select(size > form.infinity, float("nan"), value)
    elif form.nan == 0x7F:
        value = select(size == form.nan, float("nan"), value)
    signed = select((word & form.sign) != 0, -value, value)
    return signed if form.signed_zero else select(word == form.nan, float("nan"), signed)


def _widen_array(array: np.ndarray, dtype: str) -> np.ndarray:
    return np.asarray(array).astype(dt.to_numpy(dtype))


widen: Operator[Attrs] = register(
    Operator(
        name="widen",
        infer=_infer_widen,
        reference=lambda a, x: _widen_array(x, _wide_type(dt.from_numpy(x.dtype))),
        compute=lambda a, x: te.compute_one(x.shape, lambda *i: _widened(x[i]), name="widen"),
        fusion=Fusion.ELEMENTWISE,
        examples=tuple(
            Example(
                ((1 << width,),),
                {},
                (name,),
                inputs={0: np.arange(1 << width, dtype="uint8").view(dt.to_numpy(name))},
            )
            for name, width in dt.NARROW_BITS.items()
        ),
        flops=broadcast_size,
    )
)
"""float32 for floats, 8-bit integers for integers: every narrow value has an equal there."""


# narrow: rounding to a narrow type.


@dataclass(frozen=True, slots=True)
class NarrowAttrs(Attrs):
    """The narrow type; what becomes of values too large for it; how exponents are rounded.

    `saturate` gives the largest value for larger ones (infinity too), else infinity or NaN.
    `round_mode` ("up", "down" or "nearest", ties up) is for float8_e8m0fnu alone; other floats
    round to the nearest, ties to even. Integers keep their lowest bits.
    """

    dtype: str = "float8_e4m3fn"
    saturate: bool = True
    round_mode: str = "up"


def _infer_narrow(a: NarrowAttrs, x: Type) -> Type:
    if not dt.is_narrow(a.dtype):
        raise TypeMismatch(
            f"{a.dtype!r} is not a narrow type", hint=f"they are {', '.join(dt.NARROW)}"
        )
    if a.round_mode not in ("up", "down", "nearest"):
        raise TypeMismatch(f"the round_mode {a.round_mode!r} is not up, down or nearest")
    allowed = tuple(_WORDS) if a.dtype in NARROW_FLOATS else ("int32",)
    return check_elements(x, allowed).with_dtype(a.dtype)


def _narrowed(a: NarrowAttrs, x: Expr) -> Expr:
    if a.dtype in NARROW_INTEGERS:
        code = x & ((1 << dt.NARROW_BITS[a.dtype]) - 1)
    elif a.dtype == SCALE:
        code = _scale_code(a, x)
    else:
        code = _float_code(a, x, FORMATS[a.dtype])
    return call("bitcast", cast(code, "uint8"), dtype=a.dtype)


def _float_code(a: NarrowAttrs, x: Expr, form: _Format) -> Expr:
    """Count quanta of the binade a value is in: that many codes above the binade's first."""
    word, mantissa, bias = _WORDS[x.dtype]
    bits = call("bitcast", x, dtype=word)
    size = call("abs", x)
    least = 1 - form.bias
    exponent = nodes.maximum((call("bitcast", size, dtype=word) >> mantissa) - bias, least)
    quanta = call("bitcast", (form.mantissa + bias - exponent) << mantissa, dtype=x.dtype)
    steps = cast(call("round", size * quanta), word)
    code = ((exponent - least) << form.mantissa) + steps
    beyond = form.infinity if form.infinity is not None else form.nan
    above = form.largest if a.saturate or form.nan == form.sign == 8 else beyond
    code = select((code > form.largest) | (size == float("inf")), above, code)
    code = select(bits < 0, _negative(code, form), code)
    return select(call("isnan", x), form.nan, code)


def _negative(code: Expr, form: _Format) -> Expr:
    if form.signed_zero:
        return code | form.sign
    return select(code == 0, 0, code | form.sign)


def _scale_code(a: NarrowAttrs, x: Expr) -> Expr:
    """Return the exponent of a positive value, rounded; 255 is NaN."""
    bits = call("bitcast", cast(x, "float32"), dtype="int32")
    exponent, rest = (bits >> 23) & 255, bits & 0x7FFFFF
    if a.round_mode == "up":
        more = rest > 0
    elif a.round_mode == "nearest":
        more = (rest >= 0x400000) & ((exponent > 0) | (rest > 0x400000))
    else:
        more = nodes.Const.of(False, "bool")
    code = exponent + cast(more, "int32")
    if a.saturate:
        code = nodes.minimum(code, 254)
        return select(call("isnan", x), 255, code)
    return select(exponent == 255, 255, code)


def _narrow_array(a: NarrowAttrs, x: np.ndarray) -> np.ndarray:
    target = dt.to_numpy(a.dtype)
    if a.dtype in NARROW_INTEGERS:
        return (x & ((1 << dt.NARROW_BITS[a.dtype]) - 1)).astype("uint8").view(target)
    if a.dtype == SCALE:
        return _scale_array(a, x.astype("float32")).view(target)
    with np.errstate(all="ignore"):
        if a.saturate:
            largest = np.array(FORMATS[a.dtype].largest, "uint8").view(target).astype(x.dtype)
            x = np.clip(x, -largest, largest)
        return x.astype(target)


def _scale_array(a: NarrowAttrs, x: np.ndarray) -> np.ndarray:
    finite = np.isfinite(x)
    size = np.where(finite, np.abs(x), 1.0).astype("float64")
    is_normal = size >= 2.0**-126
    fraction, exponent = np.frexp(size)
    floor = np.where(is_normal, exponent - 1 + 127, 0)
    rest = np.where(is_normal, 2 * fraction - 1, size * 2.0**126)
    if a.round_mode == "nearest":
        more = np.where(is_normal, rest >= 0.5, rest > 0.5)
    else:
        more = (rest > 0) & (a.round_mode == "up")
    code = floor + more
    code = np.minimum(code, 254) if a.saturate else code
    infinite = 254 if a.saturate else 255
    return np.where(finite, code, np.where(np.isnan(x), 255, infinite)).astype("uint8")


def _narrow_examples() -> list[Example]:
    values = np.concatenate(
        [SPECIAL_FLOATS, np.geomspace(1e-7, 1e6, 300), -np.geomspace(1e-9, 1e5, 299)]
    )
    found = []
    for name in FORMATS:
        for source in _WORDS:
            inputs = {0: values.astype(source)}
            attrs: dict[str, object] = {"dtype": name}
            found.append(Example((values.shape,), attrs, (source,), inputs=inputs))
            attrs = {**attrs, "saturate": False}
            found.append(Example((values.shape,), attrs, (source,), inputs=inputs))
    positive = {0: np.abs(values).astype("float32")}
    for mode in ("up", "down", "nearest"):
        attrs = {"dtype": SCALE, "round_mode": mode, "saturate": mode == "up"}
        found.append(Example((values.shape,), attrs, inputs=positive))
    for name in NARROW_INTEGERS:
        found.append(Example(((40,),), {"dtype": name}, ("int32",), -20, 20))
    return found


def _narrow_compute(a: NarrowAttrs, x: Tensor) -> Tensor:
    return te.compute_one(x.shape, lambda *i: _narrowed(a, x[i]), name="narrow")


narrow: Operator[NarrowAttrs] = register(
    Operator(
        name="narrow",
        infer=_infer_narrow,
        reference=_narrow_array,
        compute=_narrow_compute,
        attrs_type=NarrowAttrs,
        fusion=Fusion.ELEMENTWISE,
        keeps_finite=True,
        examples=tuple(_narrow_examples()),
        flops=broadcast_size,
    )
)
"""Floats come from float32 or float64, integers from int32."""
