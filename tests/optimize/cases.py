# SPDX-License-Identifier: Apache-2.0
"""What tests of graph passes share: small builders, random inputs, comparison by the references."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import dtype as dt
from treadle.graph.interpret import run
from treadle.graph.nodes import Call, Constant, Function, Node, Tuple, Var, topological
from treadle.graph.operator import Operator
from treadle.graph.types import TensorType, tensor_type
from treadle.optimize.layout import choose_layouts
from treadle.optimize.verify import verify
from treadle.target.base import Target

SPECIAL = (0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"))


def var(name: str, *shape: Any, dtype: str = "float32") -> Var:
    """Return a parameter."""
    return Var(name, TensorType(shape, dtype))


def data(*shape: int, dtype: str = "float32", key: str = "") -> np.ndarray:
    """Return random elements that depend on the arguments only."""
    generator = np.random.default_rng(zlib.crc32(repr((shape, dtype, key)).encode()))
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if dt.is_float(dtype):
        return generator.standard_normal(shape).astype(dt.to_numpy(dtype))
    return generator.integers(0 if dt.is_unsigned(dtype) else -9, 9, shape).astype(dtype)


def constant(*shape: int, dtype: str = "float32", key: str = "", origin: str = "") -> Constant:
    """Return a constant of random elements."""
    return Constant.of(data(*shape, dtype=dtype, key=key), origin=origin)


def function(*outputs: Node, params: Sequence[Var]) -> Function:
    """Return the function that gives `outputs`."""
    body = outputs[0] if len(outputs) == 1 else Tuple.of(outputs)
    return Function(tuple(params), body)


def inputs_of(f: Function, *, special: bool = False) -> dict[str, np.ndarray]:
    """Return random inputs; `special` puts zeros of both signs, infinities and NaN among them."""
    found = {}
    for p in f.params:
        type_ = tensor_type(p.type)
        array = data(*type_.static_shape, dtype=type_.dtype, key=p.name)
        if special and dt.is_float(type_.dtype):
            array.reshape(-1)[: len(SPECIAL)] = SPECIAL[: array.size]
        found[p.name] = array
    return found


def assert_same(
    before: Function, after: Function, *, rtol: float | None = None, special: bool = False
) -> None:
    """Fail unless both functions give the same: bit by bit, or within `rtol` of the largest."""
    verify(after)
    assert after.type == before.type
    with np.errstate(all="ignore"):
        inputs = inputs_of(before, special=special)
        wanted, found = run(before, inputs), run(after, inputs)
    for a, b in zip(wanted, found, strict=True):
        if rtol is None:
            np.testing.assert_array_equal(a, b)
            if a.dtype.kind == "f":
                real = ~np.isnan(a)
                np.testing.assert_array_equal(np.signbit(a[real]), np.signbit(b[real]))
        else:
            np.testing.assert_allclose(a, b, rtol=0, atol=rtol * np.abs(a).max())


def laid_out_for(target: Target, *outputs: Call, x: Var) -> Counter[str]:
    """Return how many calls of each operator there are in the layouts for a target.

    The meaning must be kept.
    """
    before = function(*outputs, params=[x])
    after = choose_layouts(before, target)
    assert_same(before, after, rtol=1e-4)
    nodes = [n for n in topological([after.body]) if isinstance(n, Call)]
    return Counter(n.op.name for n in nodes if isinstance(n.op, Operator))
