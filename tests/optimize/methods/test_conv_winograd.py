# SPDX-License-Identifier: Apache-2.0
"""Tests of where Winograd's filtering is chosen, and of whole networks that run with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.optimize.cases import var
from tests.optimize.methods.asked import Asked, asked
from tests.targets import AVX512
from treadle.build.compile import compile_model
from treadle.build.executable import Executable
from treadle.cost.filtering import filter_axes
from treadle.graph.interpret import run
from treadle.graph.nodes import Constant, Function, Module, Node, Var
from treadle.graph.text import function_text
from treadle.graph.types import TensorType
from treadle.ops import elementwise as ew
from treadle.ops.conv import ConvAttrs, conv, conv_transpose
from treadle.ops.lowered.conv_winograd import WinogradAttrs, conv2d_winograd_nchwc
from treadle.ops.pool import max_pool
from treadle.optimize.methods.winograd_weights import transform_weights
from treadle.passes import Decision, recorded_decisions
from treadle.settings import use

TARGET = replace(AVX512, cores=1)
SAME = ConvAttrs(pads_before=(1, 1), pads_after=(1, 1))


@pytest.fixture(autouse=True)
def _weights_may_grow() -> Iterator[None]:
    with use(weight_growth=4):
        yield


def _asked(
    channels: int, filters: int, size: int, attrs: ConvAttrs = SAME, dtype: str = "float32"
) -> Asked:
    x = var("x", 1, channels, size, size, dtype=dtype)
    weights = np.ones((filters, channels // attrs.groups, 3, 3), dtype)
    return asked(conv.call(attrs, (x, Constant.of(weights))), TARGET)


def _tile(
    channels: int, filters: int, size: int, attrs: ConvAttrs = SAME, dtype: str = "float32"
) -> int | None:
    """Return the tile with which a convolution is filtered, None where it is not."""
    name, _, tile = _asked(channels, filters, size, attrs, dtype).choice.partition("-")
    return int(tile) if name == "winograd" else None


@pytest.mark.parametrize(("channels", "size"), [(64, 56), (128, 28), (64, 224), (256, 56)])
def test_large_images_run_in_tiles_of_four(channels: int, size: int) -> None:
    assert _tile(channels, channels, size) == 4


def test_many_weights_on_a_small_image_do_not_run_in_tiles_of_four() -> None:
    assert _tile(512, 512, 7) != 4
    assert _tile(16, 16, 1) is None


@pytest.mark.parametrize(
    "attrs",
    [
        ConvAttrs(strides=(2, 1)),
        ConvAttrs(strides=(2, 2), dilations=(2, 2)),
        ConvAttrs(strides=(3, 3)),
    ],
)
def test_other_windows_run_directly(attrs: ConvAttrs) -> None:
    assert _tile(64, 64, 56, attrs) is None


@pytest.mark.parametrize(("channels", "size"), [(128, 56), (256, 28)])
def test_strided_windows_run_in_tiles_where_weights_are_few(channels: int, size: int) -> None:
    attrs = ConvAttrs(strides=(2, 2), pads_before=(1, 1), pads_after=(1, 1))
    assert _tile(channels, channels, size, attrs) in (2, 4)
    assert _tile(512, 512, 14, attrs) is None
    assert _tile(64, 64, 8, ConvAttrs(strides=(2, 2))) is None


def test_dilated_windows_run_in_tiles_as_long_as_their_phases_fill_them() -> None:
    assert _tile(64, 64, 56, ConvAttrs(dilations=(2, 3))) in (3, 4)
    assert _tile(64, 64, 40, ConvAttrs(dilations=(18, 18))) is None


def test_other_types_and_an_empty_result_run_directly() -> None:
    assert _tile(64, 64, 56, dtype="float64") is None
    assert _tile(64, 64, 2, ConvAttrs()) is None


def _in_groups(groups: int, width: int, size: int) -> tuple[int, int] | None:
    """Return how many groups are taken as one, and the tile; None where groups are not filtered."""
    found = _asked(groups * width, groups * width, size, replace(SAME, groups=groups))
    if not found.choice.startswith("winograd"):
        return None
    attrs = found.call_of(conv2d_winograd_nchwc).attrs
    assert isinstance(attrs, WinogradAttrs)
    return groups // attrs.groups, attrs.tile


def test_groups_of_whole_blocks_run_in_tiles() -> None:
    assert _in_groups(2, 48, 56) == (1, 4)
    assert _in_groups(4, 24, 56) == (2, 4)
    assert _in_groups(64, 4, 6) is None
    assert _in_groups(5, 24, 56) is None  # 120 channels leave a block with a gap
    with use(winograd=False):
        assert _in_groups(2, 48, 56) is None


def _chosen(
    channels: int, filters: int, size: tuple[int, ...], kernel: tuple[int, ...], **attrs: object
) -> str:
    """Return the method of a convolution padded to its size, where neither end has a choice."""
    x = var("x", 1, channels, *size)
    weights = np.ones((filters, channels, *kernel), "float32")
    pads = tuple(k // 2 for k in kernel)
    how = ConvAttrs(pads_before=pads, pads_after=pads, **attrs)  # type: ignore[arg-type]
    return asked(conv.call(how, (x, Constant.of(weights))), TARGET).choice


@pytest.mark.parametrize("kernel", [2, 3, 5, 7])
@pytest.mark.parametrize("dilation", [1, 8])
def test_signals_are_filtered(kernel: int, dilation: int) -> None:
    choice = _chosen(128, 128, (2000,), (kernel,), dilations=(dilation,))
    assert choice.startswith("winograd")
    assert kernel < 7 or choice == "winograd-2"  # of 8 points


def test_windows_with_too_many_points_for_their_tile_are_not() -> None:
    assert not _chosen(128, 128, (2000,), (11,)).startswith("winograd")
    assert not _chosen(64, 64, (56, 56), (7, 7)).startswith("winograd")
    assert not _chosen(64, 64, (56, 56), (1, 1)).startswith("winograd")


@pytest.mark.parametrize("kernel", [(2, 2), (5, 5), (1, 3), (3, 1), (1, 7), (7, 1), (2, 4)])
def test_images_are_filtered_along_the_axes_of_several_taps(kernel: tuple[int, int]) -> None:
    assert _chosen(128, 128, (28, 28), kernel).startswith("winograd")


def test_strided_signals_and_the_first_window_of_a_network_are_filtered() -> None:
    assert _chosen(256, 256, (4000,), (3,), strides=(2,)).startswith("winograd")
    assert _chosen(128, 128, (56, 56), (5, 5), strides=(2, 2)).startswith("winograd")
    assert not _chosen(128, 128, (56, 56), (2, 2), strides=(2, 2)).startswith("winograd")
    assert not _chosen(128, 128, (56, 56), (1, 3), strides=(2, 2)).startswith("winograd")


def test_the_phases_of_a_transposed_convolution_are_filtered() -> None:
    """Windows of 4 with a stride of 2 are four convolutions of 2 x 2."""
    x = var("x", 1, 128, 32, 32)
    weights = Constant.of(np.ones((128, 64, 4, 4), "float32"))
    made = conv_transpose(x, weights, strides=(2, 2), pads_before=(1, 1), pads_after=(1, 1))
    main = Function((x,), ew.relu(made), "main")
    assert "winograd" in function_text(
        compile_model(Module(main, ("y",)), target="llvm").module.main
    )


def test_it_can_be_forbidden() -> None:
    with use(winograd=False):
        assert _tile(64, 64, 56) is None


def test_a_filter_of_one_tap_is_its_outer_product() -> None:
    w = np.zeros((1, 1, 3, 3, 1, 1), np.float32)
    w[0, 0, 0, 0] = 1.0
    first = np.array([1.0, 0.5, 0.5, 0.0])
    u = transform_weights(w, filter_axes(2, (3, 3)))
    np.testing.assert_allclose(np.abs(u[0, :, :, 0, 0, 0]), np.outer(first, first))


# ---- networks ------------------------------------------------------------------------------------


def _conv(x: Node, filters: int, seed: int, attrs: ConvAttrs = SAME) -> Node:
    rng = np.random.default_rng(seed)
    channels = x.type.static_shape[1]  # type: ignore[union-attr]
    w = rng.standard_normal((filters, channels // attrs.groups, 3, 3))
    w *= np.sqrt(2 * attrs.groups / (9 * channels))
    bias = rng.standard_normal((filters, 1, 1)) * 0.1
    made = conv.call(attrs, (x, Constant.of(w.astype(np.float32))))
    return ew.add(made, Constant.of(bias.astype(np.float32)))


def _plain(x: Node) -> Node:
    return ew.relu(_conv(ew.relu(_conv(x, 40, 1)), 24, 2))


def _strided(x: Node) -> Node:
    first = ew.relu(_conv(x, 128, 1))
    return ew.relu(_conv(first, 128, 2, replace(SAME, strides=(2, 2), pads_before=(0, 1))))


def _residual(x: Node) -> Node:
    first = ew.relu(_conv(x, 32, 1))
    return ew.relu(ew.add(_conv(ew.relu(_conv(first, 32, 2)), 32, 3), first))


def _grouped(x: Node) -> Node:
    y = ew.relu(_conv(x, 192, 1))
    y = ew.relu(_conv(y, 96, 2, replace(SAME, groups=4)))
    return _conv(y, 64, 3, replace(SAME, groups=2, strides=(2, 2)))


def _gated(x: Node) -> Node:
    y = _conv(x, 32, 1)
    gate = ew.sigmoid(y)
    return _conv(ew.multiply(ew.multiply(y, gate), ew.add(gate, y)), 16, 2)


def _deep(x: Node) -> Node:
    for k, filters in enumerate((32, 32, 64, 64, 96, 96)):
        x = ew.relu(_conv(x, filters, k))
        if k % 2:
            x = max_pool(x, kernel=(2, 2), strides=(2, 2))
    return x


@pytest.mark.parametrize("net", [_plain, _strided, _residual, _grouped, _gated, _deep])
@pytest.mark.parametrize("shape", [(1, 16, 32, 32), (2, 24, 27, 30)])
def test_networks_agree_with_the_reference(
    net: Callable[[Node], Node], shape: tuple[int, ...]
) -> None:
    data = Var("x", TensorType(shape, "float32"))
    main = Function((data,), net(data), "main")
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    compiled = compile_model(Module(main, ("y",)), target="llvm")
    assert "winograd" in function_text(compiled.module.main)
    (expected,) = run(main, {"x": x})
    (made,) = compiled(x)
    assert np.abs(made - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("depth", "attrs"),
    [
        (3, ConvAttrs(pads_before=(1, 1, 1), pads_after=(1, 1, 1))),
        (2, ConvAttrs(strides=(2, 1, 1), dilations=(3, 1, 1), pads_before=(0, 1, 0))),
        (1, ConvAttrs(pads_after=(0, 1, 1))),
        (3, ConvAttrs(strides=(2, 2, 2), pads_before=(1, 1, 1), pads_after=(1, 1, 1))),
    ],
)
def test_volumes_agree_with_the_reference(depth: int, attrs: ConvAttrs) -> None:
    data = Var("x", TensorType((2, 32, 6, 26, 23), "float32"))
    w = np.random.default_rng(1).standard_normal((40, 32, depth, 3, 3)).astype(np.float32)
    main = Function((data,), ew.relu(conv.call(attrs, (data, Constant.of(w)))), "main")
    x = np.random.default_rng(0).standard_normal((2, 32, 6, 26, 23)).astype(np.float32)
    compiled = _by("winograd-2", main)
    assert "winograd" in function_text(compiled.module.main)
    (expected,) = run(main, {"x": x})
    (made,) = compiled(x)
    assert np.abs(made - expected).max() <= 1e-5 * np.abs(expected).max()


SIGNALS = [
    ((40, 24, 3), {}),
    ((40, 24, 5), {"dilations": (3,), "pads_before": (6,), "pads_after": (6,)}),
    ((24, 24, 7), {"pads_before": (3,)}),
    ((64, 24, 3), {"strides": (2,), "pads_after": (1,)}),
    ((64, 24, 4), {"strides": (2,)}),
    ((96, 8, 3), {"groups": 3, "pads_before": (1,), "pads_after": (1,)}),
]
IMAGES = [
    ((40, 24, 2, 2), {}),
    ((40, 24, 5, 5), {"pads_before": (2, 2), "pads_after": (2, 2)}),
    ((40, 24, 1, 5), {"pads_before": (0, 2), "dilations": (1, 2)}),
    ((40, 24, 7, 1), {"pads_after": (3, 0)}),
    ((64, 24, 5, 5), {"strides": (2, 2), "pads_before": (2, 1)}),
    ((64, 24, 7, 7), {"strides": (2, 2), "pads_before": (3, 3), "pads_after": (3, 3)}),
]


METHODS = ["winograd-2", "winograd-2-runtime", "winograd-3"]


def _by(method: str, main: Function) -> Executable:
    """Compile a function of which every convolution that can be is computed by a method."""
    with recorded_decisions() as decisions:
        compile_model(Module(main, ("y",)), target="llvm")
    names = [d.call for d in decisions if d.topic == "method" and _applies(method, d)]
    return compile_model(Module(main, ("y",)), target="llvm", methods=dict.fromkeys(names, method))


def _applies(method: str, decision: Decision) -> bool:
    return any(c.name == method and c.cycles is not None for c in decision.candidates)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("weights", "attrs"), SIGNALS + IMAGES)
def test_windows_of_all_kinds_agree_with_the_reference(
    weights: tuple[int, ...], attrs: dict[str, object], method: str
) -> None:
    """Between pointwise operators, of images that tiles do not cover evenly."""
    image = (61, 37)[: len(weights) - 2] if len(weights) > 3 else (203,)
    how = ConvAttrs(**attrs)  # type: ignore[arg-type]
    channels = weights[1] * how.groups
    data = Var("x", TensorType((2, channels, *image), "float32"))
    w = np.random.default_rng(1).standard_normal(weights).astype(np.float32)
    made = conv.call(how, (ew.relu(data), Constant.of(w)))
    main = Function((data,), ew.tanh(ew.multiply(made, Constant.of(np.float32(0.01)))), "main")
    x = np.random.default_rng(0).standard_normal((2, channels, *image)).astype(np.float32)
    compiled = _by(method, main)
    assert "winograd" in function_text(compiled.module.main) or weights[2] == 7
    (expected,) = run(main, {"x": x})
    (result,) = compiled(x)
    assert np.abs(result - expected).max() <= 1e-5


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("depth", "attrs"),
    [
        (3, ConvAttrs(pads_before=(1, 0, 0), pads_after=(1, 0, 0))),
        (5, ConvAttrs(pads_before=(2, 0, 0), dilations=(2, 1, 1))),
        (3, ConvAttrs(strides=(2, 1, 1), pads_after=(2, 0, 0))),
    ],
)
def test_windows_along_the_depth_alone_agree_with_the_reference(
    depth: int, attrs: ConvAttrs, method: str
) -> None:
    """As in R(2+1)D: between windows over images, whose padding the kernel writes."""
    data = Var("x", TensorType((2, 16, 16, 7, 9), "float32"))
    rng = np.random.default_rng(1)
    first, between, last = (
        Constant.of(rng.standard_normal(shape).astype(np.float32) * np.float32(0.1))
        for shape in ((64, 16, 1, 3, 3), (64, 64, depth, 1, 1), (24, 64, 1, 3, 3))
    )
    image = ConvAttrs(pads_before=(0, 1, 1), pads_after=(0, 1, 1))
    made = ew.relu(conv.call(image, (data, first)))
    made = ew.relu(conv.call(attrs, (made, between)))
    main = Function((data,), conv.call(image, (made, last)), "main")
    x = rng.standard_normal((2, 16, 16, 7, 9)).astype(np.float32)
    compiled = _by(method, main)
    assert "along_depth" in function_text(compiled.module.main)
    (expected,) = run(main, {"x": x})
    (result,) = compiled(x)
    assert np.abs(result - expected).max() <= 1e-5 * np.abs(expected).max()


def test_forbidden_it_is_in_no_kernel() -> None:
    data = Var("x", TensorType((1, 16, 32, 32), "float32"))
    main = Function((data,), _plain(data), "main")
    with use(winograd=False):
        compiled = compile_model(Module(main, ("y",)), target="llvm")
    assert "winograd" not in function_text(compiled.module.main)
