# SPDX-License-Identifier: Apache-2.0
"""Element types: sizes, kinds and extremes agree with NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from treadle import dtype as dt
from treadle.errors import TypeMismatch

pytestmark = pytest.mark.tiny


@pytest.mark.parametrize("name", dt.STORED)
def test_sizes_and_names_are_those_of_numpy(name: str) -> None:
    stored = dt.to_numpy(name)
    assert dt.from_numpy(stored) == name
    assert dt.itemsize(name) == stored.itemsize
    assert dt.bits(name) == 8 * stored.itemsize


@pytest.mark.parametrize("name", dt.NAMES)
def test_every_type_is_of_one_kind(name: str) -> None:
    kinds = [name == "bool", dt.is_float(name), dt.is_signed(name), dt.is_unsigned(name)]
    assert sum(kinds) == 1
    assert dt.is_integer(name) == (dt.is_signed(name) or dt.is_unsigned(name))
    assert not dt.is_narrow(name)


@pytest.mark.parametrize("name", dt.NARROW)
def test_narrow_types_are_of_no_kind_that_is_computed_with(name: str) -> None:
    assert dt.is_narrow(name)
    assert not dt.is_float(name)
    assert not dt.is_integer(name)
    assert dt.NARROW_BITS[name] <= 8


@pytest.mark.parametrize("name", [n for n in dt.NAMES if dt.is_integer(n)])
def test_integer_extremes(name: str) -> None:
    info = np.iinfo(name)
    assert (dt.min_value(name), dt.max_value(name)) == (info.min, info.max)


def test_other_extremes_are_identities() -> None:
    for name in ("float16", "bfloat16", "float32", "float64"):
        assert max(dt.min_value(name), -1e308) == -1e308
        assert min(dt.max_value(name), 1e308) == 1e308
    assert (dt.min_value("bool"), dt.max_value("bool")) == (False, True)


@pytest.mark.parametrize("name", ["float", "int", "complex64", "Float32", ""])
def test_other_names_are_refused_with_the_list(name: str) -> None:
    with pytest.raises(TypeMismatch, match="is not an element type") as caught:
        dt.check_dtype(name)
    assert "bfloat16" in caught.value.hint
    with pytest.raises(TypeMismatch):
        dt.from_numpy(np.dtype(object))
