# SPDX-License-Identifier: Apache-2.0
"""Weights are stored once, after the compiler is gone; what fast algorithms add to them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import treadle
from treadle.build.compile import fused_model
from treadle.build.weights import added_weight_bytes, constants_of, store_constants
from treadle.graph import nodes as g
from treadle.graph.arrays import LARGE
from treadle.graph.nodes import Constant, DeferredConstant, Function, Module, Node, Var
from treadle.graph.types import TensorType
from treadle.ops.conv import conv
from treadle.ops.elementwise import multiply
from treadle.ops.matmul import matmul
from treadle.ops.reshaping import transpose
from treadle.runtime.array import is_ready
from treadle.settings import use
from treadle.target.worker_pool import pool

TARGET = "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell -num-cores=1"


def convolution(channels: int, size: int) -> tuple[Node, Var]:
    x = Var("x", TensorType((1, channels, size, size), "float32"))
    w = np.random.default_rng(0).normal(size=(channels, channels, 3, 3)).astype(np.float32)
    return conv(x, Constant.of(w), pads_before=(1, 1), pads_after=(1, 1)), x


def product(size: int, rows: int | None = None) -> tuple[Node, Var]:
    x = Var("x", TensorType((rows or size, size), "float32"))
    w = np.random.default_rng(0).normal(size=(size, size)).astype(np.float32)
    return matmul(x, Constant.of(w)), x


@pytest.mark.parametrize("kind", ["convolution", "product"])
def test_what_the_algorithms_add_is_what_goes_without_them(kind: str) -> None:
    body, x = convolution(64, 56) if kind == "convolution" else product(1152, rows=64)
    module = Module(Function((x,), body, "main"), ("y",), "net")
    fast = treadle.compile(module, target=TARGET, weight_growth=4)
    plain = treadle.compile(module, target=TARGET, winograd=False)
    word = "winograd" if kind == "convolution" else "strassen"
    assert any(word in k.content for k in fast.kernels)
    assert added_weight_bytes(plain.module.main) == 0
    added = added_weight_bytes(fast.module.main)
    assert added > 0
    grown = fast.weight_bytes - plain.weight_bytes  # the plain ones have a gap at their end
    assert grown == pytest.approx(added, rel=0.02)


@pytest.mark.parametrize("kind", ["convolution", "product", "scaled"])
def test_the_executor_reads_weights_where_the_graph_holds_them(kind: str) -> None:
    body, x = convolution(64, 16) if kind == "convolution" else product(256)
    if kind == "scaled":  # the factors go into the weights, which are packed after that
        factors = np.random.default_rng(1).uniform(1, 2, 256).astype(np.float32)
        body = multiply(body, Constant.of(factors))
    executable = treadle.compile(Module(Function((x,), body, "main"), ("y",)))
    nodes = g.topological([executable.module.main.body])
    graph = [n.value for n in nodes if isinstance(n, Constant) and n.value.nbytes >= LARGE]
    assert graph
    _ = executable.executor
    held = [v for v in executable.memory.constants.values() if v.nbytes >= LARGE]
    assert len(held) == len(graph)
    assert all(any(np.shares_memory(h, v) for v in graph) for h in held)


@pytest.mark.parametrize("kind", ["convolution", "product"])
def test_packed_weights_take_no_memory_until_the_kernels_are_compiled(kind: str) -> None:
    body, x = convolution(64, 16) if kind == "convolution" else product(256)
    given = next(n for n in g.topological([body]) if isinstance(n, Constant)).value
    module = Module(Function((x,), body, "main"), ("y",))
    fused = fused_model(module, target=TARGET, winograd=False)
    (packed,) = (c for c in constants_of(fused.main) if c.value.nbytes >= LARGE)
    assert np.shares_memory(packed.value, given)
    made = packed.value.copy()
    store_constants(constants_of(fused.main))
    assert is_ready(packed.value)
    assert not np.shares_memory(packed.value, given)
    np.testing.assert_array_equal(packed.value, made)


def test_constants_are_stored_row_major_and_the_nodes_stay() -> None:
    wide = np.arange(1 << 16, dtype=np.float32).reshape(256, 256)
    views = [wide.T, wide[:, ::2], wide[1:3, :5]]
    moved = [Constant(v, TensorType(v.shape, "float32")) for v in views]
    later = DeferredConstant(lambda: wide * 2, TensorType(wide.shape, "float32"))
    ready = Constant.of(wide.copy())
    total = g.Tuple.of([*moved, later, ready])
    main = Function((), total, "main")
    small = ready.value
    store_constants(constants_of(main))
    assert constants_of(main) == [*moved, later, ready]
    for constant, view in zip(moved, views, strict=True):
        assert constant.value.flags.c_contiguous
        np.testing.assert_array_equal(constant.value, view)
    assert later.value is later.value
    np.testing.assert_array_equal(later.value, wide * 2)
    np.testing.assert_array_equal(ready.value, small)
    assert all(is_ready(c.value) for c in (moved[0], moved[1], later, ready))


@pytest.mark.parametrize(("limit", "kept"), [(0, False), (1 << 30, True)])
def test_workers_end_before_large_weights_are_stored(
    limit: int, kept: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(import_module("treadle.build.compile"), "WORKERS_BYTES", limit)
    body, x = product(64)
    with use(cache=tmp_path):
        treadle.compile(Module(Function((x,), transpose(body, perm=(1, 0)), "main"), ("y",)))
    assert bool(pool().idle) == kept
    assert all(worker.process.poll() is None for worker in pool().idle)
