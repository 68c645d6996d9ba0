# SPDX-License-Identifier: Apache-2.0
"""Which type operands take, against NumPy where it has the types, and literals in a type."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from treadle import dtype as dt
from treadle.errors import TypeMismatch
from treadle.expr.promotion import as_value, common_dtype, literal_dtype

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")


@pytest.mark.parametrize("family", [SIGNED, UNSIGNED, FLOATS])
def test_within_a_family_the_wider_wins_as_in_numpy(family: tuple[str, ...]) -> None:
    for a, b in itertools.product(family, repeat=2):
        assert common_dtype(a, b) == np.result_type(a, b).name


def test_floats_win_over_integers_and_anything_over_bool() -> None:
    for a in (*SIGNED, *UNSIGNED, "bool"):
        for b in (*FLOATS, "bfloat16"):
            assert common_dtype(a, b) == common_dtype(b, a) == b
    for a in (*SIGNED, *UNSIGNED):
        assert common_dtype(a, "bool") == common_dtype("bool", a) == a


def test_the_two_halves_meet_in_float32() -> None:
    assert common_dtype("float16", "bfloat16") == common_dtype("bfloat16", "float16") == "float32"
    assert common_dtype("bfloat16", "float64") == "float64"


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_one_size_with_and_without_sign_do_not_mix(bits: int) -> None:
    with pytest.raises(TypeMismatch, match="do not mix") as raised:
        common_dtype(f"int{bits}", f"uint{bits}")
    assert raised.value.hint == "cast one with .astype"


@pytest.mark.parametrize(
    ("value", "other", "expected"),
    [
        (2, "int8", "int8"),
        (2, "float16", "float16"),
        (2.5, "float64", "float64"),
        (2.5, "int32", None),
        (True, "bool", "bool"),
        (1, "bool", None),
    ],
)
def test_a_literal_takes_the_type_of_the_other_operand_if_it_can(
    value: object, other: str, expected: str | None
) -> None:
    assert literal_dtype(value, other) == expected


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED])
def test_integers_wrap(dtype: str) -> None:
    draw = random.Random(dtype)
    for value in [draw.randint(-(1 << 70), 1 << 70) for _ in range(200)] + [-1, 0, 1 << 63]:
        low = value & ((1 << dt.bits(dtype)) - 1)
        expected = np.array(low, f"uint{dt.bits(dtype)}").view(dtype).item()
        assert as_value(value, dtype) == expected


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_floats_round_to_nearest_even(dtype: str) -> None:
    draw = random.Random(dtype)
    values = [draw.uniform(-4, 4) * 2.0 ** draw.randint(-14, 14) for _ in range(300)]
    values += [0.0, -0.0, 1.0, 1.00390625, 1.01171875, float("inf"), -float("inf")]
    numpy_type = dt.to_numpy(dtype)
    with np.errstate(over="ignore"):
        for value in values:
            if dtype == "bfloat16":  # rounded from float32, as a literal of a program would be
                value = float(np.float32(value))
            assert as_value(value, dtype) == float(np.array(value).astype(numpy_type))


def test_what_does_not_fit_a_float_is_infinite() -> None:
    assert as_value(1e300, "float32") == float("inf")
    assert as_value(-1e6, "float16") == -float("inf")
    assert as_value(1e300, "float64") == 1e300
