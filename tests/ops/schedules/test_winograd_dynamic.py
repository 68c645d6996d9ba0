# SPDX-License-Identifier: Apache-2.0
"""Winograd's filtering of images of dynamic sizes: right at any size, groups for typical ones."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets import AVX512 as TARGET
from treadle.build.compile import compile_model
from treadle.build.kernel import Kernel
from treadle.cost.winograd import WinogradShape
from treadle.expr.nodes import Var as Symbol
from treadle.expr.nodes import int_value
from treadle.graph.interpret import run
from treadle.graph.nodes import Constant, Function, Module, Node, Var
from treadle.graph.text import call_text
from treadle.graph.types import TensorType
from treadle.loop.nodes import Allocate, walk_stmts
from treadle.ops import elementwise as ew
from treadle.ops.conv import ConvAttrs, conv
from treadle.ops.lowered.conv_winograd_dynamic import conv2d_winograd_dynamic_nchwc
from treadle.ops.schedules.winograd_dynamic import plan_winograd_dynamic

H, W, N = Symbol("h"), Symbol("w"), Symbol("n")
SIZES = ((1, 1), (2, 5), (8, 16), (9, 17), (7, 33), (40, 3))


def image(channels: int) -> Var:
    return Var("x", TensorType((N, channels, H, W), "float32"))


def weights(filters: int, channels: int) -> Constant:
    rng = np.random.default_rng(filters + channels)
    return Constant.of(rng.standard_normal((filters, channels, 3, 3)).astype("float32"))


def check(
    x: Var, body: Node, sizes: tuple[tuple[int, int], ...] = SIZES, method: str | None = None
) -> str:
    """Compare a function of an image with what NumPy makes of it; return the compiled graph.

    `method`: of the last call, whatever the estimates say.
    """
    module = Module(Function((x,), body, "main"))
    methods = None if method is None else {call_text(body): method}
    executable = compile_model(module, dynamic=True, methods=methods)
    rng = np.random.default_rng(1)
    channels = x.type.shape[1]  # type: ignore[union-attr]  # an image
    for count, (high, wide) in enumerate(sizes, 1):
        data = rng.standard_normal((count % 2 + 1, channels, high, wide)).astype("float32")
        (found,) = executable(data)
        (wanted,) = run(module.main, {"x": data})
        limit = 4e-6 * max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=0, atol=limit)
    return str(executable.graph)


def test_images_of_any_size_with_their_neighbours() -> None:
    x = image(32)
    same = ConvAttrs(pads_before=(1, 1), pads_after=(1, 1))
    first = ew.relu(conv.call(same, (x, weights(48, 32))))
    second = conv.call(same, (first, weights(48, 48)))
    text = check(x, ew.relu(ew.add(second, first)))
    assert text.count(" conv2d_winograd_dynamic_nchwc(") == 2


def test_strides_take_an_image_apart() -> None:
    attrs = ConvAttrs(strides=(2, 2), pads_before=(1, 1), pads_after=(1, 1))
    x = image(64)
    text = check(x, conv.call(attrs, (x, weights(64, 64))), method="winograd-2")
    assert text.count(" conv2d_winograd_dynamic_nchwc(") == 1


def test_lanes_that_fill_the_last_block_are_not_read() -> None:
    x = image(40)
    before = ew.relu(conv(x, Constant.of(np.eye(40, dtype="float32").reshape(40, 40, 1, 1))))
    same = ConvAttrs(pads_before=(1, 1), pads_after=(1, 1))
    check(x, conv.call(same, (before, weights(64, 40))))


@pytest.mark.parametrize("tile", [2, 3, 4])
def test_what_is_computed_for_a_group_has_one_size(tile: int) -> None:
    x = Var("x", TensorType((1, 4, H, W, 16), "float32"))
    u = Var("u", TensorType((4, tile + 2, tile + 2, 4, 16, 16), "float32"))
    function = Function((x, u), conv2d_winograd_dynamic_nchwc(x, u, tile=tile), "winograd")
    kernel = Kernel(function, TARGET)
    made = [s.buffer for s in walk_stmts(kernel.loops.body) if isinstance(s, Allocate)]
    assert {"input_transform", "winograd_products"} <= {b.name for b in made}
    assert all(int_value(d) is not None for b in made for d in b.shape)


def test_groups_are_for_typical_images() -> None:
    """Whatever the nominal size, the same group runs: a run knows no other."""
    plans = [
        plan_winograd_dynamic(WinogradShape(4, tiles, tiles, 64, 64, 16), TARGET)
        for tiles in (2, 7, 30)
    ]
    assert len({(p.rows, p.columns, p.registers) for p in plans}) == 1
    assert plans[0].cycles < plans[1].cycles < plans[2].cycles
    assert plans[0].registers.rows <= plans[0].columns  # no tile of sums spans two rows
