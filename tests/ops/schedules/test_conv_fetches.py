# SPDX-License-Identifier: Apache-2.0
"""Blocked convolutions: what is fetched ahead."""

from __future__ import annotations

import pytest

from tests.ops.schedules.compiled import check, kernel_of
from tests.targets import AVX2
from tests.targets import AVX512 as TARGET
from treadle.build.kernel import Kernel
from treadle.graph.nodes import Function, Var
from treadle.graph.types import TensorType
from treadle.ops import elementwise as ew
from treadle.ops.lowered.conv_nchwc import conv2d_nchwc
from treadle.target.base import Target
from treadle.target.parse import parse_target
from treadle.te.knobs import DEFAULTS, Config


def test_weights_and_the_data_of_single_taps_are_fetched_ahead() -> None:
    for shapes, count in (
        (((1, 32, 7, 7, 16), (4, 32, 1, 1, 16, 16)), 2),
        (((1, 2, 9, 9, 16), (2, 2, 3, 3, 16, 16)), 1),
        (((1, 2, 3, 3, 16), (2, 2, 3, 3, 16, 16)), 0),  # one position: weights are a stream
    ):
        check("conv2d_nchwc", *shapes, atol=1e-4)
        assert kernel_of(TARGET, "conv2d_nchwc", *shapes).schedule.count("prefetch") == count


@pytest.mark.parametrize(("blocks", "is_fetched"), [(4, False), (12, True)])
def test_data_is_fetched_where_most_fetches_meet_some(blocks: int, is_fetched: bool) -> None:
    """Three steps ahead: of four steps three would ask for what stands past the last channel."""
    kernel = kernel_of(TARGET, "conv2d_nchwc", *single_taps(blocks, 7))
    assert kernel.schedule.count(".prefetch(x0") == is_fetched


@pytest.mark.parametrize(
    ("blocks", "size", "is_fetched"),
    [(4, 56, False), (4, 7, True), (64, 56, True)],  # many tiles; few; a panel beyond level 1
)
def test_weights_are_not_fetched_for_many_tiles_of_which_the_first_reads_them(
    blocks: int, size: int, is_fetched: bool
) -> None:
    kernel = kernel_of(TARGET, "conv2d_nchwc", *single_taps(blocks, size))
    assert kernel.schedule.count(".prefetch(x1") == is_fetched
    assert "fetch_weights" in {knob.name for knob in kernel.knobs}  # tuning may find otherwise


def single_taps(blocks: int, size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of a 1x1 convolution of so many blocks of channels to four."""
    return (1, blocks, size, size, 16), (4, blocks, 1, 1, 16, 16)


@pytest.mark.parametrize("size", [14, 28])
def test_short_steps_take_few_instructions_beside_their_multiply_adds(size: int) -> None:
    """At most 24 for 12: what decides where another thread of the core issues instructions too."""
    asm = kernel_of(AVX2, "conv2d_nchwc", (1, 32, size, size, 8), (32, 32, 1, 1, 8, 8)).asm()
    body = max(loop_bodies(asm), key=lambda lines: sum("vfmadd" in x for x in lines))
    adds = sum("vfmadd" in x for x in body)
    assert adds >= 8 * 8  # the channels of a block are written out
    assert len(body) <= 2 * adds


@pytest.mark.parametrize(("target", "lanes"), [(TARGET, 16), (AVX2, 8)])
@pytest.mark.parametrize(
    ("channels", "size", "kernel", "is_shared"),
    [
        (512, 7, 3, True),
        (512, 1, 3, False),  # one tile: nothing is computed meanwhile
        (32, 28, 1, False),  # level 2 holds the weights
    ],
)
def test_tiles_share_the_next_panels_of_weights_that_level_2_does_not_hold(
    target: Target, lanes: int, channels: int, size: int, kernel: int, is_shared: bool
) -> None:
    chunks, image = channels // lanes, size + kernel - 1
    shapes = (1, chunks, image, image, lanes), (chunks, chunks, kernel, kernel, lanes, lanes)
    whole = Config.of({"reduction_block": 0}) if size > 1 and kernel > 1 else DEFAULTS
    made = kernel_of(target, "conv2d_nchwc", *shapes, choice=whole)
    assert (".prefetch_panel(x1" in made.schedule) == is_shared
    most = max(loop_bodies(made.asm()), key=lambda lines: sum("vfmadd" in x for x in lines))
    fetches = sum("prefetch" in x for x in most)
    assert fetches * 7 <= sum("vfmadd" in x for x in most)


@pytest.mark.parametrize("shape", [(1, 32, 30, 16), (1, 32, 5, 9, 9, 16)])
def test_tiles_of_signals_and_volumes_share_panels(shape: tuple[int, ...]) -> None:
    ones = (3,) * (len(shape) - 3)
    weights = (64, 32, *ones, 16, 16)
    whole = Config.of({"reduction_block": 0}) if len(ones) > 1 else DEFAULTS
    kernel = kernel_of(TARGET, "conv2d_nchwc", shape, weights, choice=whole)
    assert ".prefetch_panel(x1" in kernel.schedule


def loop_bodies(asm: str) -> list[list[str]]:
    """Return the instructions of each innermost loop of a kernel, a jump back to its label last."""
    found: list[list[str]] = []
    label, body = "", list[str]()
    for line in asm.splitlines():
        if line.startswith(".L") and line.rstrip().split()[0].endswith(":"):
            label, body = line.split(":")[0], []
        elif line.startswith("\t") and not line.strip().startswith((".", "#")):
            body.append(line.strip())
            if line.split()[0].startswith("j") and line.split()[-1] == label:
                found.append(body)
    return found


@pytest.mark.parametrize(
    ("image", "count"),
    [((28, 28), 0), ((2, 3), 1)],  # the tiles of a panel fetch the next one; there is one tile
)
def test_weights_of_short_vectors_are_fetched_by_blocks_where_no_other_tile_does(
    image: tuple[int, int], count: int
) -> None:
    shapes = (1, 128, *image, 8), (128, 128, 1, 1, 8, 8)
    kernel = kernel_of(AVX2, "conv2d_nchwc", *shapes)
    assert kernel.schedule.count(".prefetch(x1") == count
    assert kernel.schedule.count(".prefetch_panel(x1") == 1 - count
    body = max(loop_bodies(kernel.asm()), key=lambda lines: sum("vfmadd" in x for x in lines))
    adds, fetches = (sum(word in x for x in body) for word in ("vfmadd", "prefetch"))
    data = 2  # lines of a tile of four positions
    assert fetches <= adds * count // 8 + data + 1


@pytest.mark.parametrize(
    ("shapes", "is_fetched"),
    [
        (((1, 32, 28, 28, 8), (8, 32, 1, 1, 8, 8)), True),
        (((1, 4, 80, 80, 8), (8, 4, 1, 1, 8, 8)), False),  # most would be past the last channel
        (((1, 16, 14, 14, 8), (8, 16, 1, 1, 8, 8)), False),  # level 2 has them
        (((1, 32, 30, 30, 8), (8, 32, 3, 3, 8, 8)), False),  # other taps have read them
        (((1, 32, 6, 28, 28, 8), (8, 32, 3, 1, 1, 8, 8)), True),  # three planes, each once
    ],
)
def test_short_rows_are_fetched_that_a_tile_reads_once(
    shapes: tuple[tuple[int, ...], ...], is_fetched: bool
) -> None:
    kernel = kernel_of(AVX2, "conv2d_nchwc", *shapes)
    assert kernel.schedule.count(".prefetch(x0") == is_fetched


@pytest.mark.parametrize(("size", "fetches"), [(56, True), (7, False)])
def test_a_large_operand_of_the_tail_is_fetched_ahead(size: int, fetches: bool) -> None:
    x = Var("x", TensorType((1, 1, size, size, 16), "float32"))
    y = Var("y", TensorType((1, 4, size, size, 16), "float32"))
    w = Var("w", TensorType((4, 1, 1, 1, 16, 16), "float32"))
    total = ew.relu(ew.add(conv2d_nchwc(x, w), y))
    kernel = Kernel(Function((x, w, y), total, "residual"), TARGET)
    assert kernel.schedule.count(".prefetch(y") == fetches


def test_lines_of_data_are_fetched_one_in_a_step() -> None:
    """14 positions are 14 lines, more than a core with 12 fill buffers waits for at once."""
    kernel = kernel_of(TARGET, "conv2d_nchwc", *single_taps(64, 14))
    [body] = [b for b in loop_bodies(kernel.asm()) if sum("vfmadd" in x for x in b) == 28]
    assert sum("prefetch" in x for x in body) <= 5  # two of weights, one of the next panel
    assert "min(icb, 13)" in str(kernel.loops)


def test_where_few_lines_are_waited_for_steps_leave_weights_to_the_machine() -> None:
    few = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake")
    made = kernel_of(few, "conv2d_nchwc", *single_taps(64, 56)).schedule
    assert (made.count(".prefetch(x0"), made.count(".prefetch(x1")) == (1, 0)


@pytest.mark.parametrize(
    "shapes",
    [
        ((1, 32, 403, 16), (32, 32, 3, 16, 16)),
        ((1, 16, 30, 30, 16), (16, 16, 3, 3, 16, 16)),
        ((1, 8, 4, 16, 16, 16), (8, 8, 3, 3, 3, 16, 16)),
    ],
)
def test_where_few_lines_are_waited_for_data_of_every_tap_is_fetched(
    shapes: tuple[tuple[int, ...], ...],
) -> None:
    """A tile of 14 positions reads 14 lines at once, more than such a core waits for."""
    few, many = (
        kernel_of(parse_target(f"{TARGET} -fill-buffers={n}"), "conv2d_nchwc", *shapes)
        for n in (12, 24)
    )
    assert ".prefetch(x0" not in many.schedule
    [fetched] = [x for x in few.schedule.splitlines() if ".prefetch(x0" in x]
    assert "icb)" in fetched  # the loop that shares the lines out


def test_tiles_without_a_share_of_the_next_panels_fetch_nothing_of_them() -> None:
    """Seven tiles of rows read two panels: the first two fetch one each of the next."""
    kernel = kernel_of(TARGET, "conv2d_nchwc", (1, 64, 14, 14, 16), (16, 64, 1, 1, 16, 16))
    assert "prefetch(x1[min(select(" in str(kernel.loops)
