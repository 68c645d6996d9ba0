# SPDX-License-Identifier: Apache-2.0
"""A transposed convolution as one ordinary convolution that makes all its phases.

Outputs that lie a stride apart meet the same taps of the kernel: they are an ordinary convolution
of the input with every stride-th tap, turned round. The convolutions of all phases read the same
windows, so they are one with a stride product times the filters; taps that a phase does not have
are zeros. Putting the phases in the order of the image is the operator `weave` (Shi et al., "Is
the deconvolution layer the same as a convolutional layer?", 2016).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from treadle.graph.types import TensorType
from treadle.ops.conv import ConvAttrs, ConvTransposeAttrs, TransposedAxis, transposed_axes
from treadle.ops.weave import WeaveAttrs


@dataclass(frozen=True, slots=True)
class Phases:
    """The convolution that makes all phases, and how its result is put in order."""

    axes: tuple[TransposedAxis, ...]
    conv: ConvAttrs
    weave: WeaveAttrs

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
        turned = np.flip(split, tuple(taps)).transpose(*phases, 1, 0, *taps)
        return np.ascontiguousarray(turned.reshape(-1, w.shape[0], *(a.taps for a in self.axes)))

    def repeated(self, value: np.ndarray, rank: int) -> np.ndarray:
        """Return what broadcasts with [n, oc, *spatial] (`rank` axes) for every phase."""
        if value.ndim < rank - 1 or value.shape[1 - rank] == 1:
            return value
        times = [1] * value.ndim
        times[1 - rank] = self.count
        return np.tile(value, times)


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
    sizes = TensorType(tuple(a.out for a in axes), data.dtype).static_shape
    strides = tuple(a.stride for a in axes)
    shifts = tuple(a.before - a.first * a.stride for a in axes)
    conv = ConvAttrs(pads_before=before, pads_after=after)
    return Phases(axes, conv, WeaveAttrs(strides, sizes, shifts))
