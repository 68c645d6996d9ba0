# SPDX-License-Identifier: Apache-2.0
"""What moves between layouts after a call: by what reads its result, directly or further on."""

from __future__ import annotations

import pytest

from tests.optimize.cases import constant, function, var
from tests.targets import AVX512
from treadle.graph.nodes import Call, Node, users
from treadle.ops import elementwise as ew
from treadle.ops.conv import conv
from treadle.ops.reshaping import reshape
from treadle.optimize.methods.layout_moves import Following, bytes_of, following, move_cycles

pytestmark = pytest.mark.tiny

BYTES = 24 * 5 * 5 * 4
IN_BLOCKS = 32 * 5 * 5 * 4


def wants(reader: Call, operand: Node) -> int:
    return 16 if reader.op is conv else 0


def carries(reader: Call) -> bool:
    return reader.op is ew.relu


def after(x: Node, result: Node) -> Following:
    return following(users([result]), result, wants, carries)[x]


def test_a_convolution_reads_blocks_and_the_caller_does_not() -> None:
    x = var("x", 1, 24, 5, 5)
    made = conv(x, constant(24, 24, 1, 1))
    assert after(x, made) == Following(packed=IN_BLOCKS)
    assert after(made, made) == Following(unpacked=BYTES)
    other = conv(made, constant(8, 24, 1, 1))
    assert after(made, function(made, other, params=[x]).body) == Following(IN_BLOCKS, BYTES)


def test_what_carries_blocks_asks_for_what_follows_it() -> None:
    x = var("x", 1, 24, 5, 5)
    tail = ew.relu(ew.relu(x))
    assert after(x, conv(tail, constant(8, 24, 1, 1))) == Following(packed=IN_BLOCKS)
    assert after(x, reshape(tail, shape=(24, 25))) == Following(unpacked=BYTES)
    assert after(x, tail) == Following(unpacked=BYTES)


def test_the_bytes_of_values_count_padding_lanes_and_typical_images() -> None:
    assert bytes_of(var("x", 2, 24, 5, 5).type) == 2 * BYTES
    assert bytes_of(var("x", 1, 24, 5, 5).type, 16) == IN_BLOCKS
    moved = move_cycles(var("x", 1, 24, 5, 5).type, AVX512)
    assert moved == 2 * BYTES / AVX512.machine.caches[2].bytes_per_cycle
