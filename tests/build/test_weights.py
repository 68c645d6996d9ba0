# SPDX-License-Identifier: Apache-2.0
"""What the weights of fast algorithms take beyond those of the model."""

from __future__ import annotations

import numpy as np
import pytest

import treadle
from treadle.build.weights import added_weight_bytes
from treadle.graph import nodes as g
from treadle.graph.arrays import LARGE
from treadle.graph.nodes import Constant, Function, Module, Node, Var
from treadle.graph.types import TensorType
from treadle.ops.conv import conv
from treadle.ops.elementwise import multiply
from treadle.ops.matmul import matmul

TARGET = "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell -num-cores=1"


def convolution(channels: int, size: int) -> tuple[Node, Var]:
    x = Var("x", TensorType((1, channels, size, size), "float32"))
    w = np.random.default_rng(0).normal(size=(channels, channels, 3, 3)).astype(np.float32)
    return conv(x, Constant.of(w), pads_before=(1, 1), pads_after=(1, 1)), x


def product(size: int) -> tuple[Node, Var]:
    x = Var("x", TensorType((size, size), "float32"))
    w = np.random.default_rng(0).normal(size=(size, size)).astype(np.float32)
    return matmul(x, Constant.of(w)), x


@pytest.mark.parametrize("kind", ["convolution", "product"])
def test_what_the_algorithms_add_is_what_goes_without_them(kind: str) -> None:
    body, x = convolution(64, 56) if kind == "convolution" else product(1024)
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
