# SPDX-License-Identifier: Apache-2.0
"""Tests of which 1x1 convolutions run by Strassen's algorithm, and of how exact they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.optimize.cases import function, laid_out_for, var
from tests.optimize.methods.asked import Asked, asked
from tests.targets import AVX512 as TARGET
from treadle.build.compile import compile_model
from treadle.cost.memory import local_bytes
from treadle.graph.interpret import run
from treadle.graph.nodes import Call, Constant, Module, Node, Var
from treadle.ops import elementwise as ew
from treadle.ops.conv import conv
from treadle.ops.lowered.channel_blocks import pack_nchwc, unpack_nchwc
from treadle.ops.movement import pad
from treadle.optimize.methods import conv_strassen
from treadle.optimize.methods.conv_strassen import PointwiseShape, plan_pointwise
from treadle.settings import use

LARGE = PointwiseShape(1, 32, 32, 48, 48, 16)
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _weights_may_grow() -> Iterator[None]:
    with use(weight_growth=4):
        yield


def weights(outputs: int, inputs: int) -> np.ndarray:
    made = RNG.standard_normal((outputs, inputs, 1, 1), "f4")
    return made / np.float32(np.sqrt(inputs))


@pytest.fixture
def every_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it run wherever it is possible."""
    monkeypatch.setattr("treadle.optimize.methods.conv_strassen._WORTHWHILE", 1e9)


def laid_out(*outputs: Call, x: Var) -> Counter[str]:
    return laid_out_for(TARGET, *outputs, x=x)


def compiled(node: Node, x: Var, value: np.ndarray) -> np.ndarray:
    """Return what a graph computes on this machine, where it must run by Strassen's algorithm."""
    made = compile_model(Module(function(node, params=[x])))
    assert any("conv2d_strassen" in k.name for k in made.kernels)
    return np.asarray(made.run([value])[0])


# ---- what is computed ----------------------------------------------------------------------------


@pytest.mark.usefixtures("every_shape")
@pytest.mark.parametrize("size", [2, 5, 8])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_with_its_tail_in_a_padded_image(size: int, stride: int) -> None:
    x, bias = var("x", 2, 40, size, size), Constant.of(RNG.standard_normal((1, 70, 1, 1), "f4"))
    made = conv(x, Constant.of(weights(70, 40)), strides=(stride, stride))
    tail = ew.relu(ew.add(made, bias))
    again = pad(tail, before=(0, 0, 1, 1), after=(0, 0, 1, 1))
    value = RNG.standard_normal((2, 40, size, size), "f4")
    for node in (made, again):
        found = compiled(node, x, value)
        (wanted,) = run(function(node, params=[x]), {"x": value})
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("every_shape")
def test_positions_are_within_the_bound_whatever_their_sizes() -> None:
    x, w = var("x", 1, 256, 12, 12), weights(128, 256)
    w *= (10 ** RNG.uniform(-6, 6, (128, 1, 1, 1))).astype(np.float32)
    value = RNG.standard_normal((1, 256, 12, 12), "f4")
    value[:, :, :6] *= 1e6
    value[:, :, 6:] *= 1e-6
    found = compiled(conv(x, Constant.of(w)), x, value)
    wide, heavy = value[0].reshape(256, -1).astype(np.float64), w[:, :, 0, 0].astype(np.float64)
    bound = 2.0**-24 * (4 + 256 / 64) * (np.abs(heavy) @ np.abs(wide))
    assert np.max(np.abs(found.reshape(128, -1) - heavy @ wide) / bound) < 1


@pytest.mark.usefixtures("every_shape")
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_position_that_is_not_finite_spoils_no_other(value: float) -> None:
    x = var("x", 1, 32, 5, 5)
    image = RNG.standard_normal((1, 32, 5, 5), "f4")
    image[0, 3, 1, 2] = value
    spoiled = np.isnan(compiled(conv(x, Constant.of(weights(64, 32))), x, image))
    assert spoiled[0, :, 1, 2].all()
    assert spoiled.sum() == 64


# ---- where it is chosen --------------------------------------------------------------------------


def asked_of(w: np.ndarray, height: int = 32, **attrs: object) -> Asked:
    """Return what is said of a convolution of images of `height` x 32 with weights `w`.

    It comes and goes in blocks of channels, as it does in a network.
    """
    groups = attrs.get("groups", 1)
    assert isinstance(groups, int)
    x = var("x", 1, w.shape[1] * groups // 16, height, 32, 16)
    made = conv(unpack_nchwc(x, channels=w.shape[1] * groups), Constant.of(w), **attrs)
    return asked(pack_nchwc(made, block=16), TARGET)


def test_large_ones_run_by_it() -> None:
    assert asked_of(weights(768, 768)).choice == "strassen"


@pytest.mark.parametrize(
    ("outputs", "inputs", "height"), [(768, 768, 2), (64, 768, 32), (768, 64, 32)]
)
def test_others_multiply_all(outputs: int, inputs: int, height: int) -> None:
    found = asked_of(weights(outputs, inputs), height)
    assert found.choice in ("direct", "plain")
    assert found.candidates["strassen"].cycles is not None
    assert found.against("strassen")


def test_it_can_be_forbidden() -> None:
    with use(winograd=False):
        assert asked_of(weights(768, 768)).against("strassen") == "it is switched off"


def test_weights_grow_only_so_far_and_channels_must_be_even() -> None:
    w = weights(768, 768)
    w[:, 9] *= 1e5
    assert "lose digits" in asked_of(w).against("strassen")
    with use(weight_growth=0.5):
        found = asked_of(weights(768, 768))
    assert found.choice == "direct"
    assert "grow too much" in found.against("strassen")


@pytest.mark.parametrize("cores", [1, 2, 6])
@pytest.mark.parametrize("size", [7, 14, 32, 56])
def test_no_tile_alone_takes_fewer_cycles_than_the_plan(size: int, cores: int) -> None:
    target = replace(TARGET, cores=cores)
    shape = replace(LARGE, height=size, width=size + 1, outputs=33)
    tiles = conv_strassen._tiles(size, shape.block // target.lanes(), target)
    held = conv_strassen._local_bytes(shape, tiles) <= local_bytes(target)
    alone = []
    for place in np.flatnonzero(held):
        one = tiles.where(np.arange(held.size) == place)
        alone.append(float(conv_strassen._cycles(shape, one, target)[0]))
    plan = plan_pointwise(shape, target)
    assert plan is not None
    assert plan.cycles == min(alone)
    first = np.flatnonzero(held)[alone.index(plan.cycles)]
    chosen = tuple(int(sizes[first]) for sizes in (tiles.rows, tiles.blocks, tiles.band))
    assert (plan.rows, plan.blocks, plan.band) == chosen


def test_cores_take_parts_of_an_image() -> None:
    plan = plan_pointwise(LARGE, TARGET)
    assert plan is not None
    assert plan.band < LARGE.height
    assert plan_pointwise(replace(LARGE, height=400, width=400), TARGET) is None


@pytest.mark.parametrize(
    ("kernel", "attrs"),
    [((3, 3), {}), ((1, 1), {"pads_before": (1, 1)}), ((1, 1), {"groups": 2})],
)
def test_what_it_is_not_for(kernel: tuple[int, int], attrs: dict[str, object]) -> None:
    w = np.ones((64, 32, *kernel), np.float32)
    assert asked_of(w, **attrs).against("strassen").startswith("it is for 1x1 convolutions")


@pytest.mark.usefixtures("every_shape")
def test_convolutions_of_the_same_image_share_its_sums() -> None:
    x = var("x", 1, 32, 6, 6)
    image = ew.relu(conv(x, Constant.of(weights(64, 32))))
    both = [conv(image, Constant.of(weights(64, 64))) for _ in range(2)]
    made = laid_out(*both, x=x)
    assert made["conv2d_strassen_nchwc"] == 3
    assert made["strassen_blocks_nchwc"] == 2
