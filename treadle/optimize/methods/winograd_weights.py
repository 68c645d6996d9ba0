# SPDX-License-Identifier: Apache-2.0
"""Weights of Winograd's filtering as a model's artifact holds them: transformed, or plain."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from treadle.cost.filtering import FilterAxis, images_of
from treadle.ops.lowered.winograd_transforms import filter_matrix


def transform_weights(w: np.ndarray, axes: Sequence[FilterAxis]) -> np.ndarray:
    """Return weights [oc, ic, kd?, kh, kw, ib, ob] as [oc, p, q, images * ic * kd, ib, ob].

    p points down, q across, and the images of a stride: see `WinogradAttrs`. They are rounded once.
    """
    high, wide = axes
    both = np.kron(*(filter_matrix(axis.tile, axis.taps) for axis in axes))  # [points, taps]
    oc, *chunks, kh, kw, ib, ob = w.shape
    result = np.empty((oc, len(both), images_of(axes) * prod(chunks), ib * ob), w.dtype)
    missing = [(0, axis.missing) for axis in axes]
    for made, filters in zip(result, w.reshape(oc, -1, kh, kw, ib, ob), strict=True):
        full = np.pad(filters, [(0, 0), *missing, (0, 0), (0, 0)])
        split = full.reshape(-1, high.taps, high.stride, wide.taps, wide.stride, ib, ob)
        apart = split.transpose(2, 4, 0, 1, 3, 5, 6).astype(np.float64)
        # A product per block of channels: BLAS is slow to share one wide product among threads.
        phases = apart.reshape(-1, high.taps * wide.taps, ib * ob)
        made[...] = (both @ phases).transpose(1, 0, 2)
    return result.reshape(oc, high.points, wide.points, -1, ib, ob)


def plain_weights(w: np.ndarray) -> np.ndarray:
    """Return weights [oc, ic, kd?, kh, kw, ib, ob] as [oc, ic * kd, ib, kh, kw, ob]."""
    oc, *_, kh, kw, ib, ob = w.shape
    return np.ascontiguousarray(w.reshape(oc, -1, kh, kw, ib, ob).transpose(0, 1, 4, 2, 3, 5))
