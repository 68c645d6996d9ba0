# SPDX-License-Identifier: Apache-2.0
"""Innermost loops keep what they compute in registers, on machines with few or narrow ones."""

from __future__ import annotations

import pytest

import treadle.ops  # registers the operators
from tests.ops.test_operators import call_of, function_of, inputs_of
from tests.targets import MACHINES
from treadle.build.kernel import Kernel
from treadle.graph.nodes import Function
from treadle.graph.operator import OPERATORS, Example
from treadle.ops.elementwise import multiply, sigmoid
from treadle.target.llvm import spill_count

assert treadle.ops


def winograd(tile: int, size: int) -> Example:
    """A 3x3 convolution of 32 to 64 channels; a `size` that tiles do not divide has a border."""
    high, points = -(-size // tile) * tile + 2, tile + 2
    weights = (4, points, points, 2, 16, 16)
    attrs = {"tile": tile, "height": size, "width": size}
    return Example(((1, 2, high, high, 16), weights), attrs)


CASES = {
    "conv 1x1": ("conv2d_nchwc", Example(((1, 4, 28, 28, 16), (4, 4, 1, 1, 16, 16)))),
    "conv 3x3": ("conv2d_nchwc", Example(((1, 2, 30, 30, 16), (4, 2, 3, 3, 16, 16)))),
    "conv 7x7/2": (
        "conv2d_nchwc",
        Example(((1, 1, 61, 61, 3), (4, 1, 7, 7, 3, 16)), {"strides": (2, 2)}),
    ),
    "gemm": ("dense_packed", Example(((128, 256), (4, 256, 32)), {"n": 128})),
    "gemm of pairs": (
        "dense_dot",
        Example(((128, 256), (2, 128, 48, 2)), {"n": 96}, ("int16", "int16")),
    ),
    "winograd 2": ("conv2d_winograd_nchwc", winograd(2, 7)),
    "winograd 4": ("conv2d_winograd_nchwc", winograd(4, 28)),
    "winograd 4, border": ("conv2d_winograd_nchwc", winograd(4, 14)),
}


SPILLED = {("winograd 4", "avx512"): 4, ("winograd 4, border", "avx512"): 2}
"""Reads and writes of spilled values: sums of the last column wait in memory for an addition."""

BLOCKS_OF_8 = {
    "conv 1x1 in blocks of 8": (
        "conv2d_nchwc",
        Example(((1, 8, 28, 28, 8), (8, 8, 1, 1, 8, 8))),
    ),
    "conv 3x3 in blocks of 8": (
        "conv2d_nchwc",
        Example(((1, 4, 30, 30, 8), (8, 4, 3, 3, 8, 8))),
    ),
    "conv 3x3/2 in blocks of 8, weights of level 3": (
        "conv2d_nchwc",
        Example(((1, 64, 29, 29, 8), (64, 64, 3, 3, 8, 8)), {"strides": (2, 2)}),
    ),
}
"""Whose steps are written out, for a vector of weights is shorter than a line."""


def spills(name: str, example: Example, machine: str) -> int:
    op = OPERATORS.get(name)
    assert op is not None
    call = call_of(op, example, inputs_of(example))
    kernel = Kernel(function_of(call), MACHINES[machine])
    return spill_count(kernel.asm())


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", CASES)
def test_innermost_loops_do_not_spill(case: str, machine: str) -> None:
    name, example = CASES[case]
    assert spills(name, example, machine) <= SPILLED.get((case, machine), 0)


@pytest.mark.parametrize("machine", ["avx2", "neon"])
@pytest.mark.parametrize("case", BLOCKS_OF_8)
def test_steps_that_are_written_out_do_not_spill(case: str, machine: str) -> None:
    name, example = BLOCKS_OF_8[case]
    assert spills(name, example, machine) == 0


DEPTHWISE = [
    (kernel, stride, dilation, size)
    for kernel in (3, 5, 7)
    for stride, dilation in ((1, 1), (2, 1), (1, 2))
    for size in (7, 28)
]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("kernel", "stride", "dilation", "size"), DEPTHWISE)
def test_depthwise_windows_do_not_spill(
    kernel: int, stride: int, dilation: int, size: int, machine: str
) -> None:
    high = (size - 1) * stride + (kernel - 1) * dilation + 1
    attrs = {"strides": (stride, stride), "dilations": (dilation, dilation)}
    example = Example(((1, 2, high, high, 16), (2, kernel, kernel, 16)), attrs)
    assert spills("depthwise_conv2d_nchwc", example, machine) == 0


@pytest.mark.parametrize("machine", MACHINES)
def test_depthwise_windows_do_not_spill_beside_a_costly_tail(machine: str) -> None:
    example = Example(((1, 2, 30, 30, 16), (2, 3, 3, 16)))
    op = OPERATORS.get("depthwise_conv2d_nchwc")
    assert op is not None
    sums = call_of(op, example, inputs_of(example))
    params = function_of(sums).params
    silu = Function(params, multiply(sums, sigmoid(sums)), "silu")
    assert spill_count(Kernel(silu, MACHINES[machine]).asm()) == 0
