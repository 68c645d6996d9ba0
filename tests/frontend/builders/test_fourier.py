# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms in one product and in two steps, beside those of NumPy."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from numpy.typing import NDArray

from treadle.errors import ModelError
from treadle.expr.nodes import Var as SizeVar
from treadle.frontend.builders.basic import dims_of, known_width
from treadle.frontend.builders.fourier import MATRIX_LIMIT, transformed
from treadle.graph.interpret import run
from treadle.graph.nodes import Call, Function, Var, topological
from treadle.graph.types import Dim, TensorType

ROWS = SizeVar("rows", "int64")
KINDS = [(1, 0, 1), (1, 0, 0), (2, 0, 0), (2, 0, 1), (2, 1, 0), (2, 1, 1)]
"""Parts of an element, inverse, one-sided."""


def _function(
    count: int, length: int | None, kind: tuple[int, int, int], rows: Dim = ROWS
) -> Function:
    parts, inverse, onesided = kind
    x = Var("x", TensorType((rows, count, parts), "float32"))
    return Function((x,), transformed(x, 1, length, bool(inverse), bool(onesided)), "main")


def _multiplications(function: Function) -> list[int]:
    """Return what each product with a matrix takes."""
    calls = [n for n in topological([function.body]) if isinstance(n, Call)]
    return [
        prod(dims_of(call)) * known_width(call.args[0])
        for call in calls
        if call.op.name == "matmul"
    ]


def _wanted(x: NDArray[np.float32], length: int | None, kind: tuple[int, int, int]) -> object:
    parts, inverse, onesided = kind
    z = x[..., 0] + (1j * x[..., 1].astype("float64") if parts == 2 else 0)
    if inverse and onesided:
        return np.fft.irfft(z, length, axis=1)[..., None]
    found = (np.fft.ifft if inverse else np.fft.fft)(z, length, axis=1)
    if onesided:
        found = found[:, : found.shape[1] // 2 + 1]
    return np.stack([found.real, found.imag], -1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("count", "length"), [(96, None), (400, 512), (600, 512), (243, None), (97, None), (75, 50)]
)
def test_transforms_are_those_of_numpy(
    count: int, length: int | None, kind: tuple[int, int, int]
) -> None:
    x = np.random.default_rng(0).standard_normal((3, count, kind[0])).astype("float32")
    (found,) = run(_function(count, length, kind), {"x": x})
    wanted = _wanted(x, length, kind)
    assert found.shape == np.shape(wanted)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())


def test_a_long_transform_takes_few_multiplications() -> None:
    counts = _multiplications(_function(512, None, (1, 0, 1), rows=3))
    assert len(counts) == 2
    assert sum(counts) < 3 * 512 * 514 / 5


@pytest.mark.parametrize("count", [8, 30, 97, 211])
def test_a_short_or_prime_length_is_one_product(count: int) -> None:
    assert len(_multiplications(_function(count, None, (1, 0, 1), rows=3))) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_length_whose_matrix_would_be_too_large_is_done_in_steps(
    kind: tuple[int, int, int],
) -> None:
    given = 4097 if kind[1] and kind[2] else 8192
    function = _function(given, None, kind, rows=1)
    assert sum(_multiplications(function)) < MATRIX_LIMIT < given * given
    x = np.random.default_rng(0).standard_normal((1, given, kind[0])).astype("float32")
    wanted = _wanted(x, None, kind)
    (found,) = run(function, {"x": x})
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())


def test_a_long_prime_length_is_refused() -> None:
    with pytest.raises(ModelError, match="of 8191 elements to 8191 is not supported") as error:
        _function(8191, None, (1, 0, 1))
    assert "a product of numbers near its square root" in str(error.value.hint)
