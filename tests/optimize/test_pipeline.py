# SPDX-License-Identifier: Apache-2.0
"""Whole pipelines keep meaning and types at every level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.optimize.cases import assert_same, constant, data, function, var
from treadle.graph.nodes import Call, Constant, Function, Node, TupleItem, topological
from treadle.graph.text import function_text
from treadle.ops.conv import conv
from treadle.ops.elementwise import add, multiply, relu, sigmoid
from treadle.ops.movement import concat, pad, split
from treadle.ops.norm import batch_norm
from treadle.ops.pool import max_pool
from treadle.optimize.canonicalize import canonicalize
from treadle.optimize.pipeline import optimize
from treadle.settings import use
from treadle.target.base import Target

TARGET = Target("llvm", vector_bits=256, vector_registers=16)


def _normalised(value: Node, channels: int, key: str) -> Node:
    rest = (constant(channels, key=f"{key}{k}") for k in range(3))
    variance = Constant.of(np.abs(data(channels, key=key)) + np.float32(0.5))
    return batch_norm(value, *rest, variance, origin=key)


def _network() -> Function:
    """Return a small network with a stem, a residual sum, two branches and two results."""
    x = var("x", 1, 3, 16, 16)
    stem = conv(pad(x, before=(0, 0, 1, 1), after=(0, 0, 1, 1)), constant(16, 3, 3, 3, key="w0"))
    top = max_pool(relu(_normalised(stem, 16, "bn0")), kernel=(2, 2), strides=(2, 2))
    pads = {"pads_before": (1, 1), "pads_after": (1, 1)}
    inner = conv(top, constant(16, 16, 3, 3, key="w1"), origin="conv1", **pads)
    total = relu(add(_normalised(inner, 16, "bn1"), top))
    parts = split(total, sections=(8, 8), axis=1)
    left, right = TupleItem.of(parts, 0), TupleItem.of(parts, 1)
    joined = concat(multiply(left, sigmoid(left)), right, axis=1)
    return function(_normalised(joined, 16, "bn2"), total, params=[x])


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_levels_agree(level: int) -> None:
    before = _network()
    with use(verify=2):
        after = optimize(before, TARGET, level)
    assert_same(before, after, rtol=1e-5)
    nodes = topological([after.body])
    assert all(n.value.flags.c_contiguous for n in nodes if isinstance(n, Constant))
    calls = [n for n in nodes if isinstance(n, Call)]
    assert all(isinstance(c.op, Function) and c.op.attrs["primitive"] for c in calls)


def test_canonical_form(golden: Any) -> None:
    before = _network()
    after = canonicalize(before)
    golden.check("canonicalize_network.txt", function_text(after))
    assert_same(before, after, rtol=1e-5)


def test_canonical_form_is_stable() -> None:
    after = canonicalize(_network())
    assert function_text(canonicalize(after)) == function_text(after)


def test_dead_code_disappears() -> None:
    x = var("x", 3)
    unused = relu(x)
    assert unused not in topological([canonicalize(function(x, params=[x])).body])


def test_stages_are_dumped_and_read_back(tmp_path: Path) -> None:
    before = _network()
    with use(dump=tmp_path):
        after = optimize(before, TARGET, 1)
    names = sorted(p.name for p in (tmp_path / "main" / "optimize").iterdir())
    assert names[0] == "00_input.txt"
    assert names[1] == "03_canonicalize.txt"
    edited = tmp_path / "main" / "optimize" / names[-1]
    edited.write_text(edited.read_text().replace("= relu(", "= tanh("))
    for name in names[:-1]:
        (tmp_path / "main" / "optimize" / name).unlink()
    with use(override=tmp_path):
        changed = optimize(before, TARGET, 1)
    assert "tanh" in function_text(changed)
    assert function_text(changed).replace("= tanh(", "= relu(") == function_text(after)
