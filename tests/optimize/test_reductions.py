# SPDX-License-Identifier: Apache-2.0
"""Convolutions whose weights level 2 does not hold are sums over parts of their channels."""

from __future__ import annotations

import numpy as np
import pytest

import treadle
from tests.optimize.cases import assert_same, constant, function, var
from treadle.cost import rewrites
from treadle.graph.interpret import run
from treadle.graph.nodes import Call, Constant, Function, Module, Node, Var, topological
from treadle.graph.types import tensor_type
from treadle.ops.conv import conv
from treadle.ops.elementwise import relu
from treadle.optimize.reductions import split_reductions
from treadle.passes import recorded_decisions
from treadle.target.base import Target
from treadle.target.parse import parse_target

CPU = "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell -num-cores=1"
SMALL = parse_target(f"{CPU} -caches=32K,64K,2M")  # holds 16 filters of 1024 channels, 1x1
HOST = parse_target("llvm -caches=32K,64K,2M")
LARGE = parse_target(f"{CPU} -caches=32K,4M,32M")


def made(
    channels: int, size: int = 12, kernel: int = 1, groups: int = 1, dtype: str = "float32"
) -> tuple[Function, Var]:
    x = var("x", 1, channels, size, size, dtype=dtype)
    w = constant(8 * groups, channels // groups, kernel, kernel, dtype=dtype)
    ends = (kernel // 2,) * 2
    body = conv(x, w, groups=groups, pads_before=ends, pads_after=ends)
    return function(relu(body), params=[x]), x


def channels(f: Function) -> list[int]:
    """Return how many channels every convolution reads, in order."""
    nodes = [n for n in topological([f.body]) if isinstance(n, Call) and n.op is conv]
    return [tensor_type(n.args[0].type).static_shape[1] for n in nodes]


@pytest.mark.parametrize(
    ("count", "kernel", "parts"),
    [
        (1024, 1, [1024]),
        (1088, 1, [576, 512]),
        (2048, 1, [1024, 1024]),
        (1100, 3, [128] * 8 + [76]),
    ],
)
def test_parts_are_what_level_2_holds(count: int, kernel: int, parts: list[int]) -> None:
    before, _ = made(count, kernel=kernel)
    after = split_reductions(before, SMALL)
    assert channels(after) == parts
    assert_same(before, after, rtol=1e-4)
    weights = [n for n in topological([after.body]) if isinstance(n, Constant)]
    (whole,) = [n for n in topological([before.body]) if isinstance(n, Constant)]
    assert all(np.shares_memory(w.value, whole.value) for w in weights)


def test_it_is_told() -> None:
    before, _ = made(2048)
    with recorded_decisions() as told:
        split_reductions(before, SMALL)
    assert [(d.topic, d.choice) for d in told] == [("depth", "2 parts")]
    assert told[0].reason == "a tile reads 128 KB of weights, and level 2 holds 64 KB"


def _dynamic() -> Function:
    from treadle.expr.nodes import Var as Symbol

    x = var("x", 1, 2048, Symbol("h"), 12)
    return function(conv(x, constant(8, 2048, 1, 1)), params=[x])


def _weights_of_an_input() -> Function:
    x, w = var("x", 1, 2048, 12, 12), var("w", 8, 2048, 1, 1)
    return function(conv(x, w), params=[x, w])


@pytest.mark.parametrize(
    ("before", "target"),
    [
        (made(2048)[0], LARGE),
        (made(2048)[0], parse_target("cuda -arch=sm_90")),
        (made(960, kernel=3)[0], SMALL),
        (made(2048, size=11)[0], SMALL),
        (made(2048, groups=2)[0], SMALL),
        (made(2048, dtype="float64")[0], SMALL),
        (_dynamic(), SMALL),
        (_weights_of_an_input(), SMALL),
    ],
    ids=["held", "GPU", "channels", "positions", "groups", "type", "dynamic", "input"],
)
def test_unchanged(before: Function, target: Target) -> None:
    assert split_reductions(before, target) is before


def test_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum is in the kernel of the last part."""
    monkeypatch.setattr(rewrites, "REDUCED_CHANNELS", 64)
    before, _ = made(256, kernel=3)
    compiled = treadle.compile(Module(before, ("y",)), target=HOST)
    summed = [k for k in compiled.kernels if "conv" in k.name and "add" in k.name]
    assert summed
    given = {"x": np.random.default_rng(0).standard_normal((1, 256, 12, 12)).astype(np.float32)}
    (found,) = compiled.run(given)
    (wanted,) = run(before, given)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_a_whole_network_keeps_its_results() -> None:
    x = var("x", 1, 1152, 12, 12)
    first: Node = relu(conv(x, constant(1152, 1152, 1, 1)))
    before = function(conv(first, constant(16, 1152, 1, 1, key="last")), params=[x])
    compiled = treadle.compile(Module(before, ("y",)), target=HOST)
    given = {"x": np.random.default_rng(1).standard_normal((1, 1152, 12, 12)).astype(np.float32)}
    (found,) = compiled.run(given)
    (wanted,) = run(before, given)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())
