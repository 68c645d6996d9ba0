# SPDX-License-Identifier: Apache-2.0
"""What the weights of fast algorithms take beyond those of the model."""

from __future__ import annotations

import numpy as np
import pytest

import treadle
from treadle.build.weights import added_weight_bytes
from treadle.graph.nodes import Constant, Function, Module, Node, Var
from treadle.graph.types import TensorType
from treadle.ops.conv import conv
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
    fast = treadle.compile(module, target=TARGET)
    plain = treadle.compile(module, target=TARGET, winograd=False)
    word = "winograd" if kind == "convolution" else "strassen"
    assert any(word in k.content for k in fast.kernels)
    assert added_weight_bytes(plain.module.main) == 0
    added = added_weight_bytes(fast.module.main)
    assert added > 0
    grown = fast.weight_bytes - plain.weight_bytes  # the plain ones have a gap at their end
    assert grown == pytest.approx(added, rel=0.02)
