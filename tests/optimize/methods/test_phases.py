# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions as convolutions of all phases: which, how, and with the same results."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.optimize.cases import assert_same, constant, function, var
from tests.optimize.in_blocks import in_blocks  # noqa: F401  # for every test here
from tests.targets import AVX2 as NARROW
from treadle.graph.nodes import Call, Constant, Node, topological
from treadle.graph.operator import Operator
from treadle.graph.text import call_text
from treadle.graph.types import TensorType
from treadle.ops import elementwise as ew
from treadle.ops.conv import ConvTransposeAttrs, conv, conv_transpose
from treadle.ops.lowered.conv_nchwc import conv2d_nchwc
from treadle.ops.lowered.interleave_phases import interleave_phases
from treadle.optimize.canonicalize import canonicalize
from treadle.optimize.layout import choose_layouts
from treadle.optimize.methods.method import NO_CHOICES, Choices
from treadle.optimize.methods.phases import Phases, phases_of


def laid_out(made: Node, x: Node, choices: Choices = NO_CHOICES) -> list[Call]:
    """Return the calls after the pass in order; the meaning must be kept."""
    before = function(made, params=[x])  # type: ignore[list-item]
    after = canonicalize(choose_layouts(canonicalize(before), NARROW, choices))
    assert_same(before, after, rtol=1e-5)
    calls = [n for n in topological([after.body]) if isinstance(n, Call)]
    return [n for n in calls if isinstance(n.op, Operator)]


def counted(made: Node, x: Node, choices: Choices = NO_CHOICES) -> Counter[str]:
    return Counter(n.op.name for n in laid_out(made, x, choices))


@pytest.mark.parametrize("filters", [16, 3])
@pytest.mark.parametrize("method", ["phases", "phase-by-phase"])
@pytest.mark.parametrize(
    ("kernel", "attrs"),
    [
        ((4, 4), {"strides": (2, 2), "pads_before": (1, 1), "pads_after": (1, 1)}),
        ((2, 2), {"strides": (2, 2)}),
        (
            (3, 3),
            {"strides": (2, 2), "pads_before": (1, 1), "pads_after": (1, 1)}
            | {"output_padding": (1, 1)},
        ),
        ((3, 5), {"strides": (2, 3), "pads_before": (0, 2), "pads_after": (1, 0)}),
        ((5, 1), {"strides": (1, 2), "pads_before": (3, 0), "output_padding": (0, 1)}),
        ((1, 1), {"strides": (3, 3), "output_padding": (2, 0)}),
        ((2, 3), {"strides": (2, 2), "pads_before": (-1, -2), "pads_after": (0, -1)}),
    ],
)
def test_phases_are_one_kernel(
    kernel: tuple[int, int], attrs: dict[str, Any], method: str, filters: int
) -> None:
    x = var("x", 2, 10, 5, 7)
    made = conv_transpose(x, constant(10, filters, *kernel), **attrs)
    found = counted(made, x, Choices({call_text(made): method}))
    together = ("conv", "conv2d_nchwc", "conv2d_winograd_nchwc", "conv2d_strassen_nchwc")
    assert found["conv_transpose"] == 0
    assert found["phased_conv_nchwc"] == (method == "phase-by-phase")
    assert sum(found[name] for name in together) == (method == "phases")


@pytest.mark.parametrize(
    "attrs",
    [
        {"strides": (2, 3), "dilations": (2, 1)},
        {"strides": (1, 2), "dilations": (3, 2), "output_padding": (0, 1)},
        {"strides": (1, 2), "pads_before": (4, 0)},
        {"strides": (2, 2), "pads_before": (5, 0), "pads_after": (0, 6)},
    ],
)
def test_what_is_no_single_convolution_runs_phase_by_phase(attrs: dict[str, Any]) -> None:
    x = var("x", 1, 16, 9, 9)
    found = counted(conv_transpose(x, constant(16, 8, 3, 3), **attrs), x)
    assert found["conv_transpose"] == 0
    assert found["phased_conv_nchwc"] == 1


def test_signals_and_volumes_run_phase_by_phase() -> None:
    signal, volume = var("x", 2, 8, 9), var("x", 1, 8, 3, 4, 2)
    one = conv_transpose(signal, constant(8, 8, 7), strides=(3,), pads_before=(2,))
    assert counted(one, signal)["phased_conv_nchwc"] == 1
    three = conv_transpose(volume, constant(8, 8, 3, 2, 2), strides=(2, 2, 2))
    assert counted(three, volume)["phased_conv_nchwc"] == 1


def test_large_windows_of_a_phase_are_filtered_by_winograd() -> None:
    x = var("x", 1, 32, 32, 32)
    found = counted(conv_transpose(x, constant(32, 32, 6, 6), strides=(2, 2)), x)
    assert found["conv2d_winograd_nchwc"] == 1
    assert found["interleave_phases"] == 1


def test_one_phase_is_a_convolution_with_its_kernel_turned() -> None:
    x = var("x", 1, 8, 5, 6)
    found = counted(conv_transpose(x, constant(8, 8, 3, 2), pads_before=(1, 0)), x)
    assert found["conv_transpose"] == 0
    assert found["conv2d_nchwc"] == 1


@pytest.mark.parametrize(
    ("attrs", "why"),
    [
        ({"strides": (2, 2), "dilations": (2, 1)}, "dilated"),
        ({"groups": 2, "strides": (2, 2)}, "groups"),
        ({"strides": (1, 1), "pads_before": (4, 0)}, "pads"),
    ],
)
def test_what_has_no_phases_stays(attrs: dict[str, Any], why: str) -> None:
    x, w = var("x", 1, 16, 9, 9), constant(16, 8, 3, 3)
    phases = phases_of(ConvTransposeAttrs(**attrs), TensorType((1, 16, 9, 9), "float32"), w.type)
    assert isinstance(phases, str)
    assert why in phases
    assert counted(conv_transpose(x, w, **attrs), x)["conv_transpose"] == (why == "groups")


def test_weights_that_are_not_known_stay() -> None:
    x, w = var("x", 1, 8, 4, 4), var("w", 8, 8, 2, 2)
    made = choose_layouts(function(conv_transpose(x, w), params=[x, w]), NARROW)
    assert isinstance(made.body, Call)
    assert made.body.op is conv_transpose


def test_few_filters_stay() -> None:
    """Four phases of one filter fill half of a block of eight lanes, two a quarter."""
    x = var("x", 1, 8, 4, 4)
    four = conv_transpose(x, constant(8, 1, 2, 2), strides=(2, 2))
    assert counted(four, x)["conv_transpose"] == 0
    two = conv_transpose(x, constant(8, 1, 2, 1), strides=(2, 1))
    assert counted(two, x)["conv_transpose"] == 1
    two = conv_transpose(conv(x, constant(8, 8, 1, 1)), constant(8, 1, 2, 1), strides=(2, 1))
    assert counted(two, x)["conv_transpose"] == 0  # nothing needs packing


def test_the_tail_is_computed_in_phases() -> None:
    """Biases, scales and activations stand where the sums are in registers."""
    x = var("x", 1, 8, 4, 5)
    made = conv_transpose(x, constant(8, 2, 2, 2), strides=(2, 2))
    made = ew.add(made, constant(1, 2, 1, 1))
    made = ew.multiply(made, ew.sigmoid(ew.multiply(made, constant(1))))
    calls = [n.op for n in laid_out(conv(made, constant(8, 2, 3, 3)), x)]
    after = calls[calls.index(interleave_phases) :]
    assert ew.add not in after
    assert ew.sigmoid not in after
    assert calls.count(conv2d_nchwc) == 2


def test_what_differs_between_pixels_comes_after_the_phases_are_interleaved() -> None:
    x = var("x", 1, 8, 4, 4)
    made = conv_transpose(x, constant(8, 2, 2, 2), strides=(2, 2))
    calls = [n.op for n in laid_out(ew.add(made, constant(1, 2, 8, 8)), x)]
    assert ew.add in calls[calls.index(interleave_phases) :]


@pytest.mark.parametrize("other", [(1, 8, 1, 1), (8,), (1, 1, 8, 8)])
def test_what_has_more_channels_or_pixels_than_the_phases(other: tuple[int, ...]) -> None:
    x = var("x", 1, 8, 4, 4)
    one = conv_transpose(x, constant(8, 1, 2, 2), strides=(2, 2))
    eight = conv_transpose(x, constant(8, 8, 2, 2), strides=(2, 2))
    counted(ew.multiply(ew.add(one, constant(*other)), ew.add(eight, one)), x)


def test_phases_of_two_kernels_are_not_mixed() -> None:
    x = var("x", 1, 8, 4, 4)
    one = conv_transpose(x, constant(8, 2, 2, 2), strides=(2, 2))
    pads: dict[str, Any] = {"pads_before": (1, 1), "pads_after": (1, 1)}
    other = conv_transpose(x, constant(8, 2, 4, 4), strides=(2, 2), **pads)
    assert counted(ew.add(one, other), x)["interleave_phases"] == 2


def test_taps_are_turned_and_missing_ones_are_zero() -> None:
    w = Constant.of(np.arange(1, 4, dtype=np.float32).reshape(1, 1, 3))
    phases = phases_of(ConvTransposeAttrs((2,)), TensorType((1, 1, 4), "float32"), w.type)
    assert isinstance(phases, Phases)
    assert phases.weights(w.value).tolist() == [[[3.0, 1.0]], [[0.0, 2.0]]]
