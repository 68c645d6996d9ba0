# SPDX-License-Identifier: Apache-2.0
"""Inputs may begin anywhere: results are the same, and on most machines nothing is copied."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.optimize.cases import constant, function, var
from treadle.build.compile import compile_model
from treadle.build.kernel import Kernel
from treadle.graph.interpret import run
from treadle.graph.nodes import Function, Module
from treadle.ops import elementwise as ew
from treadle.ops.conv import conv
from treadle.ops.matmul import matmul
from treadle.ops.norm import softmax
from treadle.ops.reshaping import reshape, transpose
from treadle.target.parse import parse_target

X = var("x", 1, 16, 12, 40)
CASES = {
    "element-wise": lambda: ew.add(ew.relu(X), constant(40)),
    "softmax": lambda: softmax(X, axis=3),
    "convolution": lambda: conv(X, constant(24, 16, 3, 3), pads_before=(1, 1), pads_after=(1, 1)),
    "product": lambda: matmul(X, constant(40, 33)),
    "product of inputs": lambda: matmul(X, transpose(X, perm=(0, 1, 3, 2))),
    "transpose": lambda: transpose(X, perm=(0, 2, 3, 1)),
    "view": lambda: reshape(X, shape=(12, -1)),
}


@pytest.mark.parametrize("offset", [1, 2, 4, 15])
@pytest.mark.parametrize("name", CASES)
def test_results_do_not_depend_on_where_inputs_lie(name: str, offset: int) -> None:
    f: Function = function(CASES[name](), params=[X])
    shape = X.type.static_shape  # type: ignore[union-attr]
    size = int(np.prod(shape))
    memory = np.random.default_rng(0).standard_normal(size + 32).astype(np.float32)
    first = -(memory.ctypes.data // 4) % 16 + offset  # in elements, from a multiple of 64 bytes
    x = memory[first : first + size].reshape(shape)
    (found,) = compile_model(Module(f, ("y",))).run({"x": x})
    (wanted,) = run(f, {"x": x})
    np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("target", "alignment"),
    [
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell", 4),
        ("llvm -mtriple=aarch64-linux-gnu", 4),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v2", 64),
    ],
)
def test_what_a_kernel_expects_of_its_operands(target: str, alignment: int) -> None:
    operand = var("x", 64, 64)
    ir = Kernel(function(ew.relu(operand), params=[operand]), parse_target(target))
    inner = re.search(r"define internal i32 @\S+\.run\((.*)\) noinline", ir.source())
    assert inner is not None
    _, x, result = inner[1].split(", ")[:3]
    assert f"align {alignment} " in x
    assert "align 64 " in result
