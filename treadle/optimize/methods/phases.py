# SPDX-License-Identifier: Apache-2.0
"""A transposed convolution as its phases: ordinary convolutions of one input.

Outputs that lie a stride apart meet the same taps of the kernel: they are an ordinary convolution
of the input with every stride-th tap, flipped (Shi et al., "Is the deconvolution layer the
same as a convolutional layer?", 2016). Two ways to run them:

- one after the other by the operator `phased_conv_nchwc`, each with the taps it has, written to
  where its outputs lie (`by_phase`);
- as one convolution with a stride product times the filters, as they read the same windows: taps
  that a phase does not have are zeros, and the operator `interleave_phases` puts the phases in
  order (`phases_of`). It fills blocks of channels where there are fewer filters.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from treadle.graph.nodes import Call
from treadle.graph.types import TensorType, known_sizes
from treadle.ops.conv import ConvAttrs, ConvTransposeAttrs, TransposedAxis, transposed_axes
from treadle.ops.lowered.conv_phased import PhasedConvAttrs, phased_axes
from treadle.ops.lowered.interleave_phases import InterleaveAttrs


@dataclass(frozen=True, slots=True)
class Phases:
    """The convolution that makes all phases, and how its result is put in order."""

    axes: tuple[TransposedAxis, ...]
    conv: ConvAttrs
    interleave: InterleaveAttrs

    @property
    def count(self) -> int:
        """How many phases there are."""
        return prod(a.stride for a in self.axes)

    def weights(self, w: np.ndarray) -> np.ndarray:
        """Return weights [c, oc, *kernel] as [phases * oc, c, *taps]."""
        missing = [(0, a.spread_kernel - a.kernel) for a in self.axes]
        full = np.pad(w, [(0, 0), (0, 0), *missing])
        split = full.reshape(*w.shape[:2], *(n for a in self.axes for n in (a.taps, a.stride)))
        rank = len(self.axes)
        taps, phases = range(2, 2 + 2 * rank, 2), range(3, 3 + 2 * rank, 2)
        ordered = np.flip(split, tuple(taps)).transpose(*phases, 1, 0, *taps)
        return np.ascontiguousarray(ordered.reshape(-1, w.shape[0], *(a.taps for a in self.axes)))

    def repeated(self, value: np.ndarray, rank: int) -> np.ndarray:
        """Return what broadcasts with [n, oc, *spatial] (`rank` axes) for every phase."""
        if value.ndim < rank - 1 or value.shape[1 - rank] == 1:
            return value
        times = [1] * value.ndim
        times[1 - rank] = self.count
        return np.tile(value, times)


@dataclass(frozen=True, slots=True, eq=False)
class Phased:
    """A value whose phases [n, phases * c, *steps] the call `made`, of the same graph, computes."""

    made: Call
    phases: Phases


def phases_of(attrs: ConvTransposeAttrs, data: TensorType, weights: TensorType) -> Phases | str:
    """Return the phases of a transposed convolution over static sizes, else why it has none."""
    if attrs.groups > 1:
        return "groups read different channels"
    axes = transposed_axes(attrs, data.static_shape[2:], weights.static_shape[2:])
    if any(a.dilation > 1 for a in axes):
        return "its kernel is dilated"
    if any(a.first > a.taps - 1 or a.reach < 0 for a in axes):
        return "its pads cut whole inputs off"
    before, after = zip(*(a.pads for a in axes), strict=True)
    sizes = known_sizes(a.out for a in axes)
    strides = tuple(a.stride for a in axes)
    shifts = tuple(a.before - a.first * a.stride for a in axes)
    conv = ConvAttrs(pads_before=before, pads_after=after)
    return Phases(axes, conv, InterleaveAttrs(strides, sizes, shifts))


@dataclass(frozen=True, slots=True)
class ByPhase:
    """The attributes of `phased_conv_nchwc`; zeros the input needs, negative: what to leave out."""

    axes: tuple[TransposedAxis, ...]
    conv: PhasedConvAttrs
    before: tuple[int, ...]
    after: tuple[int, ...]

    def weights(self, w: np.ndarray) -> np.ndarray:
        """Return weights [c, oc, *kernel] as [oc, c, *strides, *taps]."""
        rank = len(self.axes)
        spread = [(k - 1) * a.spread + 1 for k, a in zip(w.shape[2:], self.axes, strict=True)]
        full = np.zeros((*w.shape[:2], *(a.spread_kernel for a in self.axes)), w.dtype)
        places = (slice(0, n, a.spread) for n, a in zip(spread, self.axes, strict=True))
        full[(slice(None), slice(None), *places)] = w
        split = full.reshape(*w.shape[:2], *(n for a in self.axes for n in (a.taps, a.stride)))
        taps, phases = tuple(range(2, 2 + 2 * rank, 2)), tuple(range(3, 3 + 2 * rank, 2))
        shifts = [-shift for shift in self.conv.shifts]
        ordered = np.roll(np.flip(split, taps), shifts, phases)
        return np.ascontiguousarray(ordered.transpose(1, 0, *phases, *taps))


def by_phase(attrs: ConvTransposeAttrs, data: TensorType, weights: TensorType) -> ByPhase:
    """Return how a transposed convolution of one group runs phase by phase over static sizes."""
    axes = transposed_axes(attrs, data.static_shape[2:], weights.static_shape[2:])
    conv = PhasedConvAttrs(
        strides=tuple(a.stride for a in axes),
        sizes=known_sizes(a.out for a in axes),
        kernel=tuple((a.kernel - 1) * a.spread + 1 for a in axes),
        shifts=tuple(a.before - a.first * a.stride for a in axes),
        dilations=tuple(a.step for a in axes),
    )
    before = tuple((a.taps - 1) * a.step - a.first for a in axes)
    reach = (p.reach for p in phased_axes(conv))
    held = zip(reach, before, data.static_shape[2:], strict=True)
    return ByPhase(axes, conv, before, tuple(end - start - size for end, start, size in held))
