# SPDX-License-Identifier: Apache-2.0
"""The small C functions that generated C calls where C's own operators mean something else.

Each is `static inline`, written in C11 (with the builtins that gcc and clang share) and stands in
a kernel's source only where it is used. Names end in the types they take: `td_floordiv_i32`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from treadle.dtype import bits, is_signed, max_value, min_value
from treadle.target.c_dialects import C, Dialect

C_TYPES = {
    "bool": "bool",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
}
"""The C type of a value; 16-bit floats travel as their bits, narrow types as a byte."""

_SHORT = {
    "bool": "b", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
}  # fmt: skip
_LONG = {short: name for name, short in _SHORT.items()}
_INTEGERS = "i8|i16|i32|i64|u8|u16|u32|u64"


def c_type(dtype: str) -> str:
    """Return the C type of a value in a variable."""
    return C_TYPES.get(dtype, "uint8_t")


def memory_c_type(dtype: str) -> str:
    """Return the C type of an element in memory: a bool takes a byte that is 0 or not."""
    return "uint8_t" if dtype == "bool" else c_type(dtype)


def short_name(dtype: str) -> str:
    """Return the ending of helpers for a type: `f32`, `i64`; narrow types are their bytes."""
    return _SHORT.get(dtype, "u8")


def unsigned_type(dtype: str) -> str:
    """Return the unsigned C type wide enough that arithmetic in it wraps as `dtype` does."""
    return "uint64_t" if bits(dtype) == 64 else "uint32_t"


def source_of(used: Iterable[str], dialect: Dialect = C) -> str:
    """Return the definitions of the helpers `used` and of those they use, in a fixed order."""
    found: dict[str, str] = {}

    def visit(name: str) -> None:
        if name in found:
            return
        text = _definition(name, dialect)
        for below in sorted(set(re.findall(r"\btd_\w+(?=\()", text)) - {name}):
            visit(below)
        found[name] = text

    for name in sorted(used):
        visit(name)
    return "\n\n".join(found.values())


def _definition(name: str, dialect: Dialect) -> str:
    if not dialect.rounds and (match := re.fullmatch(_ROUNDING, name)):
        return _rounding_by_parts(name, _LONG[match[1]]).strip("\n")
    return dialect.helper_text(_in_c(name))


@cache
def _in_c(name: str) -> str:
    if name in _FIXED:
        return _FIXED[name].strip("\n")
    for pattern, make in _FAMILIES:
        match = re.fullmatch(pattern, name)
        if match is not None:
            return make(name, *(_LONG[g] for g in match.groups())).strip("\n")
    raise KeyError(name)


def _head(result: str, name: str, *params: str) -> str:
    return f"static inline {result} {name}({', '.join(params)}) {{"


# -- integers


def _truncdiv(name: str, dtype: str) -> str:
    t, u = c_type(dtype), unsigned_type(dtype)
    wraps = f"\n  if (b == -1) return ({t})(0u - ({u})a);" if is_signed(dtype) else ""
    return f"""
/* a / b towards zero; the smallest value over -1 wraps. */
{_head(t, name, f"{t} a", f"{t} b")}{wraps}
  return ({t})(a / b);
}}"""


def _truncmod(name: str, dtype: str) -> str:
    t = c_type(dtype)
    wraps = "\n  if (b == -1) return 0;" if is_signed(dtype) else ""
    return f"""
/* The remainder of a / b with the sign of a. */
{_head(t, name, f"{t} a", f"{t} b")}{wraps}
  return ({t})(a % b);
}}"""


def _floordiv(name: str, dtype: str) -> str:
    t, u, s = c_type(dtype), unsigned_type(dtype), short_name(dtype)
    return f"""
/* a / b towards minus infinity. */
{_head(t, name, f"{t} a", f"{t} b")}
  {t} q = td_truncdiv_{s}(a, b);
  {t} r = ({t})(({u})a - ({u})q * ({u})b);
  return ({t})(r != 0 && (r ^ b) < 0 ? ({u})q - 1u : ({u})q);
}}"""


def _floormod(name: str, dtype: str) -> str:
    t, u, s = c_type(dtype), unsigned_type(dtype), short_name(dtype)
    return f"""
/* The remainder of a / b with the sign of b. */
{_head(t, name, f"{t} a", f"{t} b")}
  {t} r = td_truncmod_{s}(a, b);
  return ({t})(r != 0 && (r ^ b) < 0 ? ({u})r + ({u})b : ({u})r);
}}"""


def _shift(name: str, dtype: str) -> str:
    t, u, width = c_type(dtype), unsigned_type(dtype), bits(dtype)
    by = C_TYPES[f"uint{width}"]
    if name.startswith("td_shl"):
        result, far = f"({t})(({u})a << b)", "0"
    else:
        result = f"({t})(a >> b)"
        far = f"({t})(a < 0 ? -1 : 0)" if is_signed(dtype) else "0"
    return f"""
/* A shift; by the width and more, all bits leave. */
{_head(t, name, f"{t} a", f"{t} by")}
  {by} b = ({by})by;
  return b < {width}u ? {result} : {far};
}}"""


def _int_extreme(name: str, dtype: str) -> str:
    t, test = c_type(dtype), "<" if name.startswith("td_min") else ">"
    return f"""
{_head(t, name, f"{t} a", f"{t} b")}
  return a {test} b ? a : b;
}}"""


def _int_abs(name: str, dtype: str) -> str:
    t, u = c_type(dtype), unsigned_type(dtype)
    return f"""
/* The absolute value; that of the smallest integer is itself. */
{_head(t, name, f"{t} a")}
  return ({t})(a < 0 ? 0u - ({u})a : ({u})a);
}}"""


def _popcount(name: str, dtype: str) -> str:
    t, same = c_type(dtype), C_TYPES[f"uint{bits(dtype)}"]
    return f"""
{_head(t, name, f"{t} a")}
  return ({t})__builtin_popcountll(({same})a);
}}"""


def _clz(name: str, dtype: str) -> str:
    t, same = c_type(dtype), C_TYPES[f"uint{bits(dtype)}"]
    return f"""
/* The number of zero bits above the highest one; the width for 0. */
{_head(t, name, f"{t} a")}
  uint64_t b = ({same})a;
  return ({t})(b == 0 ? {bits(dtype)} : __builtin_clzll(b) - {64 - bits(dtype)});
}}"""


# -- floats


def _float_extreme(name: str, dtype: str) -> str:
    t, test = c_type(dtype), "<" if name.startswith("td_min") else ">"
    return f"""
/* NaN where either operand is NaN. */
{_head(t, name, f"{t} a", f"{t} b")}
  return a {test} b || a != a ? a : b;
}}"""


def _rounding(name: str, dtype: str) -> str:
    """Round by an instruction, which every machine has."""
    t, f = c_type(dtype), "f" if dtype == "float32" else ""
    word = name.split("_")[1]
    builtin = {"round": "rint"}.get(word, word)
    return f"""
{_head(t, name, f"{t} a")}
  return __builtin_{builtin}{f}(a);
}}"""


def _rounding_by_parts(name: str, dtype: str) -> str:
    """Round by an instruction, or by adding 2**(mantissa bits), which drops the fraction."""
    word = name.split("_")[1]
    t, big, f = ("float", "8388608.0f", "f") if dtype == "float32" else ("double", "0x1p52", "")
    steps = {
        "round": "",
        "trunc": f"  if (near > size) near -= 1.0{f};\n",
        "floor": f"  near = __builtin_copysign{f}(near, a);\n  if (near > a) near -= 1.0{f};\n",
        "ceil": f"  near = __builtin_copysign{f}(near, a);\n  if (near < a) near += 1.0{f};\n",
    }
    builtin = {"round": "rint"}.get(word, word)
    return f"""
{_head(t, name, f"{t} a")}
#if defined(__SSE4_1__) || defined(__aarch64__)
  return __builtin_{builtin}{f}(a);
#else
  {t} size = __builtin_fabs{f}(a);
  {t} near = (size + {big}) - {big};
{steps[word]}  near = __builtin_copysign{f}(near, a);
  return size < {big} ? near : a;
#endif
}}"""


def _float_to_int(name: str, source: str, target: str) -> str:
    s, t = c_type(source), c_type(target)
    low, high = int(min_value(target)), int(max_value(target))
    f = "f" if source == "float32" else ""
    above = f"{float(high + 1) if high >= 2**24 else float(high)!r}{f}"
    test = ">=" if high >= 2**24 else ">"
    if source == "float64" and high < 2**53:
        above, test = f"{float(high)!r}", ">"
    smallest = _int_text(low, target)
    return f"""
/* Towards zero, bounded by what the type holds; NaN gives 0. */
{_head(t, name, f"{s} a")}
  if (a != a) return 0;
  if (a <= {float(low)!r}{f}) return {smallest};
  return a {test} {above} ? {_int_text(high, target)} : ({t})a;
}}"""


def _int_text(value: int, dtype: str) -> str:
    if value == -(2**63):
        return "INT64_MIN"
    if value == -(2**31):
        return "INT32_MIN"
    suffix = {"uint32": "u", "uint64": "ull", "int64": "ll"}.get(dtype, "")
    return f"{value}{suffix}"


def _bitcast(name: str, source: str, target: str) -> str:
    s, t = c_type(source), c_type(target)
    return f"""
{_head(t, name, f"{s} a")}
  union {{ {s} from; {t} to; }} bits;
  bits.from = a;
  return bits.to;
}}"""


_ROUNDING = r"td_(?:floor|ceil|trunc|round)_(f32|f64)"

_FAMILIES = (
    (rf"td_truncdiv_({_INTEGERS})", _truncdiv),
    (rf"td_truncmod_({_INTEGERS})", _truncmod),
    (rf"td_floordiv_({_INTEGERS})", _floordiv),
    (rf"td_floormod_({_INTEGERS})", _floormod),
    (rf"td_sh[lr]_({_INTEGERS})", _shift),
    (rf"td_(?:min|max)_({_INTEGERS})", _int_extreme),
    (r"td_(?:min|max)_(f32|f64)", _float_extreme),
    (rf"td_abs_({_INTEGERS})", _int_abs),
    (rf"td_popcount_({_INTEGERS})", _popcount),
    (rf"td_clz_({_INTEGERS})", _clz),
    (_ROUNDING, _rounding),
    (rf"td_(f32|f64)_to_({_INTEGERS})", _float_to_int),
    (
        r"td_bits_(f16|bf16|f32|f64|i8|i16|i32|i64|u8|u16|u32|u64)_as_"
        r"(f16|bf16|f32|f64|i8|i16|i32|i64|u8|u16|u32|u64)",
        _bitcast,
    ),
)

_FIXED = {
    "td_bf16_to_f32": """
static inline float td_bf16_to_f32(uint16_t a) {
  return td_bits_u32_as_f32((uint32_t)a << 16);
}""",
    "td_f32_to_bf16": """
/* Rounded to nearest, ties to even; NaN stays NaN. */
static inline uint16_t td_f32_to_bf16(float a) {
  uint32_t b = td_bits_f32_as_u32(a);
  uint32_t up = b + 0x7FFFu + (b >> 16 & 1u);
  return (uint16_t)((a != a ? b | 0x400000u : up) >> 16);
}""",
    "td_f16_to_f32": """
/* Denormals are scaled by a multiplication, which is exact. */
static inline float td_f16_to_f32(uint16_t a) {
  uint32_t size = ((uint32_t)a & 0x7FFFu) << 13;
  uint32_t b = td_bits_f32_as_u32(td_bits_u32_as_f32(size) * 0x1p112f);
  if (size >= 0x7C00u << 13) b = size | 0x7F800000u;
  return td_bits_u32_as_f32(b | ((uint32_t)a & 0x8000u) << 16);
}""",
    "td_f32_to_f16": """
/* Rounded to nearest, ties to even; too large becomes infinite, NaN stays NaN. */
static inline uint16_t td_f32_to_f16(float a) {
  uint32_t b = td_bits_f32_as_u32(a);
  uint32_t size = b & 0x7FFFFFFFu;
  uint32_t r;
  if (size >= (127u + 16u) << 23) {
    r = size > 255u << 23 ? 0x7E00u : 0x7C00u;
  } else if (size < 113u << 23) { /* adding 0.5 lines the mantissa up with the denormals */
    r = td_bits_f32_as_u32(td_bits_u32_as_f32(size) + 0.5f) - (126u << 23);
  } else {
    r = (size + ((uint32_t)(15 - 127) << 23) + 0xFFFu + (size >> 13 & 1u)) >> 13;
  }
  return (uint16_t)(r | (b & 0x80000000u) >> 16);
}""",
    "td_f64_to_odd": """
/* Rounded to float so that a second rounding gives what one would: inexact results are odd. */
static inline float td_f64_to_odd(double a) {
  float near = (float)a;
  double back = (double)near;
  if (back == a || a != a) return near;
  uint32_t b = td_bits_f32_as_u32(near);
  if (__builtin_fabs(back) > __builtin_fabs(a)) b -= 1u;
  return td_bits_u32_as_f32(b | 1u);
}""",
}
