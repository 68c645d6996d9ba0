# SPDX-License-Identifier: Apache-2.0
"""Channels are packed into blocks with zeros behind them, and unpacked without."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.oracle import (
    check_operator,
    example_arrays,
)
from tests.optimize.cases import var
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Var as Symbol
from treadle.graph.operator import Example
from treadle.ops.lowered.channel_blocks import pack_nchwc, unpack_nchwc


@pytest.mark.parametrize("example", pack_nchwc.examples, ids=lambda e: f"{e.shapes}{e.attrs}")
def test_packing_pads_channels_with_zeros_and_unpacking_crops_them(example: Example) -> None:
    (x,) = example_arrays(example)
    block = int(str(example.attrs["block"]))
    packed = check_operator(pack_nchwc, [x], dict(example.attrs))
    for c in range(packed.shape[1] * block):
        own = packed[:, c // block, ..., c % block]
        np.testing.assert_array_equal(own, x[:, c] if c < x.shape[1] else np.zeros_like(own))
    back = check_operator(unpack_nchwc, [packed], {"channels": x.shape[1]})
    np.testing.assert_array_equal(back, x)


def test_packing_passes_symbolic_dimensions_through() -> None:
    n, h = Symbol("n"), Symbol("h")
    packed = pack_nchwc(var("x", n, 5, h, 8), block=4)
    assert packed.type.shape == (n, 2, h, 8, 4)
    assert unpack_nchwc(packed, channels=5).type.shape == (n, 5, h, 8)


@pytest.mark.parametrize("channels", [4, 9])
def test_unpacking_refuses_channels_that_the_blocks_do_not_hold(channels: int) -> None:
    with pytest.raises(TypeMismatch, match="2 blocks of 4"):
        unpack_nchwc(var("x", 1, 2, 3, 3, 4), channels=channels)
