# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of halves with numbers: in float32, and rounded once, as torch computes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.frontend.torch.programs import as_module, exported_outputs  # noqa: E402  # torch

pytestmark = pytest.mark.torch

HALVES = ("float16", "bfloat16")


def _found(function: Callable[..., Any], *given: Any) -> Any:
    (result,) = exported_outputs(as_module(function), given)
    return result


@pytest.mark.parametrize("dtype", HALVES)
def test_a_number_keeps_its_digits(dtype: str) -> None:
    kind = getattr(torch, dtype)
    x = torch.randn(2048).to(kind)
    assert torch.equal(_found(lambda x: x * 0.3, x), (x.float() * 0.3).to(kind))
    assert torch.equal(_found(lambda x: x / 0.3, x), (x.float() / 0.3).to(kind))
    floors = torch.div(x.float(), 0.3, rounding_mode="floor").to(kind)
    assert torch.equal(_found(lambda x: torch.div(x, 0.3, rounding_mode="floor"), x), floors)


def test_a_tensor_of_rank_0_is_a_number() -> None:
    x, factor = torch.randn(2048).half(), torch.tensor(0.3, dtype=torch.float64)
    assert torch.equal(_found(torch.mul, x, factor), (x.float() * 0.3).half())


@pytest.mark.parametrize("dtype", HALVES)
def test_a_sum_with_a_factor_is_rounded_once(dtype: str) -> None:
    kind = getattr(torch, dtype)
    x, y = torch.randn(2, 2048).to(kind)
    factor = torch.tensor(0.3).to(kind).float()
    for function, sign in ((torch.add, 1), (torch.sub, -1)):
        found = _found(lambda x, y, of=function: of(x, y, alpha=0.3), x, y)
        assert torch.equal(found, (x.float() + sign * factor * y.float()).to(kind))


def test_integers_keep_wrapping_around() -> None:
    x = torch.tensor([2**62, -(2**62), 3])
    assert torch.equal(_found(lambda x: torch.add(x, x, alpha=3), x), x + 3 * x)
    assert torch.equal(_found(lambda x: torch.sub(x, 5, alpha=2), x), x - 10)


@pytest.mark.parametrize("dtype", ["float32", *HALVES])
def test_products_and_quotients_that_are_added_are_rounded_once(dtype: str) -> None:
    kind = getattr(torch, dtype)
    x, a, b = (torch.randn(3, 512) + 3).to(kind)
    wide = [t.double() for t in (x, a, b)]
    tolerance = {"float32": 1e-6, "float16": 5e-4, "bfloat16": 4e-3}[dtype]  # half a unit each
    for function in (torch.addcmul, torch.addcdiv):
        found = _found(lambda x, a, b, of=function: of(x, a, b, value=0.3), x, a, b)
        expected = function(*wide, value=0.3)
        assert found.dtype is kind
        terms = function(*(t.abs() for t in wide), value=0.3)  # the sum may cancel
        assert ((found.double() - expected).abs() <= tolerance * terms).all()


def test_softplus_of_halves_is_rounded_once() -> None:
    x = torch.randn(512).half()
    found = _found(lambda x: torch.nn.functional.softplus(x, beta=0.3), x)
    expected = torch.nn.functional.softplus(x.double(), beta=0.3)
    torch.testing.assert_close(found.double(), expected, rtol=5e-4, atol=0)
