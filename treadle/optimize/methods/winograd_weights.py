# SPDX-License-Identifier: Apache-2.0
"""Weights of Winograd's filtering as a model's artifact holds them: transformed, or plain."""

from __future__ import annotations

from math import prod

import numpy as np

from treadle.ops.lowered.winograd_transforms import KERNEL, filter_matrix, taps_of_phase


def transform_weights(w: np.ndarray, tile: int, stride: int = 1) -> np.ndarray:
    """Return weights [oc, ic, kd?, 3, 3, ib, ob] as [oc, p, p, stride^2 * ic * kd, ib, ob].

    p points: see `WinogradAttrs`. They are rounded once.
    """
    taps = taps_of_phase(stride)
    matrix = filter_matrix(tile, taps)
    both = np.kron(matrix, matrix)  # [points^2, taps^2]
    oc, *chunks, kh, kw, ib, ob = w.shape
    points = tile + taps - 1
    result = np.empty((oc, points**2, stride**2 * prod(chunks), ib * ob), w.dtype)
    missing = taps * stride - KERNEL
    for made, filters in zip(result, w.reshape(oc, -1, kh, kw, ib, ob), strict=True):
        full = np.pad(filters, [(0, 0), (0, missing), (0, missing), (0, 0), (0, 0)])
        split = full.reshape(-1, taps, stride, taps, stride, ib, ob).transpose(2, 4, 0, 1, 3, 5, 6)
        # A product per block of channels: BLAS is slow to share one wide product among threads.
        phases = split.astype(np.float64).reshape(-1, taps**2, ib * ob)
        made[...] = (both @ phases).transpose(1, 0, 2)
    return result.reshape(oc, points, points, -1, ib, ob)


def plain_weights(w: np.ndarray) -> np.ndarray:
    """Return weights [oc, ic, kd?, 3, 3, ib, ob] as [oc, ic * kd, ib, 3, 3, ob]."""
    oc, *_, kh, kw, ib, ob = w.shape
    return np.ascontiguousarray(w.reshape(oc, -1, kh, kw, ib, ob).transpose(0, 1, 4, 2, 3, 5))
