# SPDX-License-Identifier: Apache-2.0
"""The rounding error of compiled operators against float64, by class of operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.ops.test_operators import call_of, function_of
from tests.target.kernel import native, run
from treadle.build.kernel import Kernel
from treadle.graph.operator import OPERATORS, Example

ULP = 2.0**-23


def compiled(name: str, arrays: Sequence[np.ndarray], **attrs: object) -> np.ndarray:
    """Return what the machine code of one operator gives."""
    op = OPERATORS.get(name)
    assert op is not None
    call = call_of(op, Example(tuple(a.shape for a in arrays), attrs), arrays)
    type_: Any = call.type  # a tensor type: no operator here gives a tuple
    out = np.zeros(type_.static_shape, arrays[0].dtype)
    lowered = Kernel(function_of(call), native()).lowered
    run(lowered, [*map(np.ascontiguousarray, arrays), out], workspace=lowered.workspace_bytes)
    return out


def exact(name: str, arrays: Sequence[np.ndarray], **attrs: object) -> np.ndarray:
    """Return the operator's reference in float64."""
    op = OPERATORS.get(name)
    assert op is not None
    wide = [a.astype(np.float64) for a in arrays]
    result: np.ndarray = op.reference(op.make_attrs(attrs), *wide)
    return result


def ulps(found: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest error in units of the last place of a float32."""
    return float(np.max(np.abs(found - wanted) / np.spacing(np.abs(wanted).astype(np.float32))))


RANGES = {
    "exp": (-87.0, 88.0, 2), "log": (1e-30, 1e30, 2), "erf": (-4, 4, 2), "sin": (-1e5, 1e5, 2),
    "cos": (-1e5, 1e5, 2), "tan": (-1e4, 1e4, 2), "sinh": (-80, 80, 2), "asinh": (-1e6, 1e6, 2),
    "atanh": (-0.999, 0.999, 2), "atan": (-1e3, 1e3, 4), "tanh": (-10, 10, 4),
    "softplus": (-80, 80, 4), "sqrt": (0, 1e30, 0.5), "reciprocal": (1e-3, 1e30, 0.5),
    "asin": (-1, 1, 2), "acos": (-1, 0.99, 2), "cosh": (-80, 80, 2), "acosh": (1.01, 1e6, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", RANGES)
def test_functions_are_accurate_to_the_last_bits(name: str) -> None:
    low, high, bound = RANGES[name]
    x = np.concatenate(
        [np.linspace(low, high, 40001), np.linspace(max(low, -1), min(high, 2), 9999)]
    )
    x = x.astype(np.float32)
    x = x[x != 0] if name != "acosh" else x[x >= 1.01]
    assert ulps(compiled(name, [x]), exact(name, [x])) <= bound + 0.01


@pytest.mark.parametrize("name", ["sigmoid", "gelu", "elu", "mish", "selu", "hard_swish", "celu"])
def test_activations_are_accurate(name: str) -> None:
    x = np.linspace(-100, 100, 80001).astype(np.float32)
    error = np.abs(compiled(name, [x]) - exact(name, [x])) / np.maximum(1, np.abs(x))
    assert error.max() <= 5e-7


def test_gelu_keeps_the_last_bits_of_small_results() -> None:
    x = np.linspace(-4, 4, 40001).astype(np.float32)
    assert ulps(compiled("gelu", [x]), exact("gelu", [x])) <= 64  # erf and a sum: thousands


def test_sigmoid_is_monotone_with_exact_limits() -> None:
    x = np.linspace(-30, 30, 200001).astype(np.float32)
    assert np.all(np.diff(compiled("sigmoid", [x])) >= 0)
    ends = np.array([-np.inf, np.inf, -200, 200, 0], np.float32)
    assert compiled("sigmoid", [ends]).tolist() == [0, 1, 0, 1, 0.5]


def test_powers_are_accurate() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(1e-3, 1e3, 20000).astype(np.float32)
    y = rng.uniform(-8, 8, 20000).astype(np.float32)
    assert ulps(compiled("power", [x, y]), exact("power", [x, y])) <= 2.01


@pytest.mark.parametrize("n", [3, 100, 197, 1000, 50257])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_is_accurate(name: str, n: int) -> None:
    x = np.random.default_rng(n).normal(0, 4, (3, n)).astype(np.float32)
    found, wanted = compiled(name, [x], axis=1), exact(name, [x], axis=1)
    np.testing.assert_allclose(found, wanted, rtol=4e-6, atol=4e-6 if name[0] == "l" else 0)
    if name == "softmax":
        np.testing.assert_allclose(found.astype(np.float64).sum(1), 1, atol=1e-6)


@pytest.mark.parametrize("shape", [(1000003,), (3, 4099), (2000, 5), (2, 112, 112), (70, 90)])
@pytest.mark.parametrize("name", ["sum", "mean"])
def test_sums_are_accurate(name: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).normal(0.5, 1, shape).astype(np.float32)
    for axes in {(0,), (len(shape) - 1,), tuple(range(len(shape)))}:
        n = np.prod([shape[k] for k in axes])
        size = np.abs(x).sum(axes, dtype=np.float64) / (n if name == "mean" else 1)
        error = np.abs(compiled(name, [x], axes=axes) - exact(name, [x], axes=axes))
        assert np.all(error <= 2.0**-24 * (8 + np.log2(n)) * size)


@pytest.mark.parametrize("n", [7, 96, 768, 4096])
def test_layer_norm_is_accurate(n: int) -> None:
    rng = np.random.default_rng(n)
    one, zero = np.ones(n, np.float32), np.zeros(n, np.float32)
    for mean, bound in ((0.0, 2e-6), (1e3, 2e-3)):
        arrays = [rng.normal(mean, 1, (5, n)).astype(np.float32), one, zero]
        wanted = exact("layer_norm", arrays, axis=1)
        error = np.abs(compiled("layer_norm", arrays, axis=1) - wanted)
        assert np.all(error <= bound * np.maximum(1, np.abs(wanted)))


def test_instance_norm_is_accurate() -> None:
    x = np.random.default_rng(0).normal(0.3, 2, (2, 3, 33, 47)).astype(np.float32)
    arrays = [x, np.ones(3, np.float32), np.zeros(3, np.float32)]
    wanted = exact("instance_norm", arrays)
    assert np.all(
        np.abs(compiled("instance_norm", arrays) - wanted) <= 2e-6 * np.maximum(1, wanted)
    )


@pytest.mark.parametrize("beta", [0.75, 0.5, 0.6])
def test_lrn_is_accurate(beta: float) -> None:
    x = np.random.default_rng(0).normal(0, 50, (1, 20, 9, 9)).astype(np.float32)
    attrs: dict[str, object] = {"size": 5, "alpha": 1e-3, "beta": beta, "bias": 2.0}
    assert ulps(compiled("lrn", [x], **attrs), exact("lrn", [x], **attrs)) <= 5
