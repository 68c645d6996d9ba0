# SPDX-License-Identifier: Apache-2.0
"""Which calls get larger weights, and by how much those of a model grow."""

from __future__ import annotations

import numpy as np
import pytest

from tests.optimize.cases import function, var
from tests.targets import ZEN4 as TARGET
from treadle.graph.nodes import Call, Constant, Var, topological
from treadle.graph.operator import Operator
from treadle.graph.text import call_text
from treadle.ops.conv import conv
from treadle.ops.lowered.conv_winograd import WinogradAttrs
from treadle.ops.lowered.matmul_strassen import DenseStrassenAttrs
from treadle.ops.matmul import matmul
from treadle.optimize.layout import choose_layouts
from treadle.optimize.methods import growth
from treadle.optimize.methods.method import NO_CHOICES, Choices
from treadle.optimize.methods.product import extra_bytes
from treadle.settings import use

pytestmark = pytest.mark.tiny

SIZE = 1536
ADDED = extra_bytes(SIZE, SIZE)
"""Bytes that Strassen's algorithm adds to one matrix of weights."""


def product(rows: int) -> Call:
    random = np.random.default_rng(rows)
    w = (random.standard_normal((SIZE, SIZE)) / np.sqrt(SIZE)).astype(np.float32)
    return matmul(var(f"x{rows}", rows, SIZE), Constant.of(w), origin=f"product{rows}")


def convolution(channels: int, size: int, strides: tuple[int, int] = (1, 1)) -> Call:
    random = np.random.default_rng(channels)
    w = random.standard_normal((channels, channels, 3, 3)).astype(np.float32)
    how = {"pads_before": (1, 1), "pads_after": (1, 1), "strides": strides}
    return conv(var("x", 1, channels, size, size), Constant.of(w), **how)


def made_of(*calls: Call, choices: Choices = NO_CHOICES) -> list[Call]:
    """Return the calls of operators in the layouts chosen."""
    inputs = [x for call in calls if isinstance(x := call.args[0], Var)]
    after = choose_layouts(function(*calls, params=inputs), TARGET, choices)
    nodes = [n for n in topological([after.body]) if isinstance(n, Call)]
    return [n for n in nodes if isinstance(n.op, Operator)]


def rows_by_strassen(*calls: Call, choices: Choices = NO_CHOICES) -> list[int]:
    """Return the rows of the products that Strassen's algorithm computes with larger weights."""
    found = [n.attrs for n in made_of(*calls, choices=choices)]
    return sorted(a.m for a in found if isinstance(a, DenseStrassenAttrs) and not a.plain_weights)


def filtering(call: Call) -> list[WinogradAttrs]:
    """Return how Winograd's filtering computes a convolution; nothing where it does not."""
    return [n.attrs for n in made_of(call) if isinstance(n.attrs, WinogradAttrs)]


def test_weights_grow_up_to_a_share_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "FREE_GROWTH_BYTES", 0)
    calls = [product(rows) for rows in (64, 65, 66, 67)]
    for share, count in ((0.1, 0), (0.2, 1), (0.4, 2), (0.8, 4)):
        with use(weight_growth=share):
            assert len(rows_by_strassen(*calls)) == count


def test_any_model_may_grow_by_a_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "FREE_GROWTH_BYTES", ADDED)
    assert rows_by_strassen(product(64)) == [64]
    with use(weight_growth=0):
        assert rows_by_strassen(product(64)) == []


def test_zeros_in_blocks_come_off_what_weights_may_grow_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters of 8 channels fill half a block; those of 16 a whole one."""
    monkeypatch.setattr(growth, "FREE_GROWTH_BYTES", 0)
    monkeypatch.setattr(growth, "KERNEL_BYTES", 0)
    held = 4 * SIZE * SIZE
    for channels, count in ((8, 0), (16, 1)):
        w = np.ones((channels, SIZE, 16, 16), np.float32)
        image = conv(var("y", 1, SIZE, 20, 20), Constant.of(w))
        share = 1.1 * ADDED / (held + w.nbytes)
        with use(weight_growth=share):
            assert len(rows_by_strassen(product(64), image)) == count


def test_code_comes_off_only_beyond_half_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "FREE_GROWTH_BYTES", 0)
    monkeypatch.setattr(growth, "CALL_BYTES", 0)
    share = 1.1 * ADDED / (4 * SIZE * SIZE)
    for code, count in ((ADDED // 2, 1), (ADDED, 0)):
        monkeypatch.setattr(growth, "KERNEL_BYTES", code)
        with use(weight_growth=share):
            assert len(rows_by_strassen(product(64))) == count


def test_what_a_byte_saves_most_for_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "FREE_GROWTH_BYTES", ADDED)
    few, many = product(60), product(70)
    assert rows_by_strassen(few, many) == rows_by_strassen(many, few) == [70]


def test_weights_that_each_run_transforms_add_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the weights of all points would be too much, those of the window are taken as such."""
    monkeypatch.setattr(growth, "FREE_GROWTH_BYTES", 0)
    for share, is_plain in ((0.1, True), (3, False)):
        with use(weight_growth=share):
            [how] = filtering(convolution(64, 56))
        assert (how.tile, how.plain_weights) == (4, is_plain)


def test_smaller_tiles_take_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stride F(2x2) has 36/9 of the weights, F(4x4) 100/9; else a run transforms them."""
    call = convolution(128, 80, (2, 2))
    held = 4 * 128 * 128 * 9
    for ninths, tile, is_plain in ((91, 4, False), (27, 2, False), (26, 2, True)):
        monkeypatch.setattr(growth, "FREE_GROWTH_BYTES", held * ninths // 9)
        [how] = filtering(call)
        assert (how.tile, how.plain_weights) == (tile, is_plain)


def test_who_names_a_method_accepts_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    call = product(64)
    choices = Choices(recorded={call_text(call): "strassen"})
    with use(weight_growth=0):
        assert rows_by_strassen(call, choices=choices) == [64]
