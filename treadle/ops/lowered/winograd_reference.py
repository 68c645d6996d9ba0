# SPDX-License-Identifier: Apache-2.0
"""What Winograd's filtering makes of an image, in NumPy and float64: every product at its point."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from treadle.cost.filtering import FilterAxis, images_of
from treadle.ops.lowered.winograd_transforms import input_matrix, output_matrix


def filtered_image(
    x: np.ndarray, u: np.ndarray, axes: tuple[FilterAxis, FilterAxis], groups: int = 1
) -> np.ndarray:
    """Return the outputs of whole tiles, [n, oc/ob, h, w, ob].

    `x` is [n, ic/ib, h, w, ib], padded to what whole tiles read; `u` are the weights at all points,
    [oc/ob, point, point, chunk, ib, ob], of the images of a stride one after the other.
    """
    rows, columns = axes
    down, across = rows.stride, columns.stride
    apart = [x[:, :, a::down, b::across] for a in range(down) for b in range(across)]
    images = np.concatenate(apart, axis=1)
    high, wide = (
        size - (axis.taps - 1) * axis.gap
        for size, axis in zip(images.shape[2:4], axes, strict=True)
    )
    made = np.empty((len(x), len(u), high, wide, u.shape[-1]), x.dtype)
    for a in range(rows.gap):
        for b in range(columns.gap):
            phase = np.s_[:, :, a :: rows.gap, b :: columns.gap]
            parts = _of_groups(images[phase], u, axes, groups)
            made[phase] = np.concatenate([_tiles(*part, axes) for part in parts], axis=1)
    return made


def _tiles(x: np.ndarray, u: np.ndarray, axes: tuple[FilterAxis, FilterAxis]) -> np.ndarray:
    """Return the outputs of one group, without dilation and stride."""
    rows, columns = axes
    n, _, high, wide, _ = x.shape
    points = rows.points, columns.points
    view = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), points, axis=(2, 3))
    d = view[:, :, :: rows.tile, :: columns.tile]  # [n, chunks, down, across, ib, *points]
    forward = [input_matrix(axis.tile, axis.taps) for axis in axes]
    back = [output_matrix(axis.tile, axis.taps) for axis in axes]
    v = np.einsum("ir,ncpqbrs,js->ijncpqb", forward[0], d, forward[1], optimize=True)
    m = np.einsum("ijncpqb,oijcbk->ijnopqk", v, u.astype(np.float64), optimize=True)
    y = np.einsum("ri,ijnopqk,sj->noprqsk", back[0], m, back[1], optimize=True)
    image = high - rows.taps + 1, wide - columns.taps + 1
    whole: np.ndarray = y.reshape(n, len(u), *image, u.shape[-1])
    return whole


def _of_groups(
    x: np.ndarray, u: np.ndarray, axes: tuple[FilterAxis, FilterAxis], groups: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the images and the weights of each group; a stride has made more images of x."""
    n, _, *image = x.shape
    apart = x.reshape(n, images_of(axes), groups, -1, *image)
    for g, weights in enumerate(np.split(u, groups)):
        yield apart[:, :, g].reshape(n, -1, *image), weights
