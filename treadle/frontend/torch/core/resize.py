# SPDX-License-Identifier: Apache-2.0
"""Converters of image scaling."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.builders.basic import dims_of, element_type, transposed
from treadle.frontend.builders.matmul import product
from treadle.frontend.builders.resize import Sampling, Target, resized
from treadle.frontend.torch.node import AtenNode, aten
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import known_sizes
from treadle.ops import vision

Factors = Sequence[float] | None


def _scaled(node: AtenNode, x: Node, sampling: Sampling, scales: Factors) -> Node:
    """Return an image of the size that torch says, by scales where they are given."""
    factors: tuple[float, ...] = ()
    if scales is not None:
        factors = (*(1.0,) * (len(dims_of(x)) - len(scales)), *map(float, scales))
    return resized(x, Target(node.dims(), factors), sampling)


@aten("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec")
def nearest(node: AtenNode, x: Node, size: object, scales: Factors = None) -> Node:
    """Convert the nearest element at or before each place."""
    return _scaled(node, x, Sampling("nearest", "asymmetric", "floor"), scales)


@aten("upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec")
def linear(
    node: AtenNode, x: Node, size: object, align_corners: bool, scales: Factors = None
) -> Node:
    """Convert linear interpolation."""
    return _interpolated(node, x, "linear", align_corners, scales)


@aten("upsample_bicubic2d.vec")
def cubic(
    node: AtenNode, x: Node, size: object, align_corners: bool, scales: Factors = None
) -> Node:
    """Convert cubic interpolation."""
    return _interpolated(node, x, "cubic", align_corners, scales)


def _interpolated(node: AtenNode, x: Node, mode: str, align_corners: bool, scales: Factors) -> Node:
    rule = "align_corners" if align_corners else "half_pixel"
    return _scaled(node, x, Sampling(mode, rule), None if align_corners else scales)


@aten(
    "_upsample_bilinear2d_aa.vec",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa.vec",
    "_upsample_bicubic2d_aa",
)
def antialiased(
    node: AtenNode, x: Node, size: object, align_corners: bool, *scales: Factors | float
) -> Node:
    """Convert interpolation over as many elements as one of the result covers.

    Images of known sizes are multiplied by a matrix along each axis.
    """
    factors = _listed(scales)
    if not all(isinstance(d, int) for d in (*dims_of(x)[2:], *node.dims()[2:])):
        return _antialiased_dynamic(node, x, align_corners, factors)
    weigh = _cubic if "bicubic" in node.op else _linear
    old = known_sizes(dims_of(x)[2:])
    new = known_sizes(node.dims()[2:])
    made = x
    for axis in (1, 0):
        step = _step(old[axis], new[axis], align_corners, factors[axis])
        matrix = Constant.of(_antialiasing(old[axis], new[axis], step, weigh), element_type(x))
        made = product(made, transposed(matrix, (1, 0))) if axis else product(matrix, made)
    return made


def _antialiased_dynamic(
    node: AtenNode, x: Node, align_corners: bool, factors: Sequence[float | None]
) -> Node:
    if align_corners:
        raise ModelError(
            "antialiased scaling of images of dynamic sizes with aligned corners is not supported",
            hint="give the image and the result known sizes, or pass align_corners=False",
        )
    mode = "cubic" if "bicubic" in node.op else "linear"
    sampling = Sampling(mode, cubic_coefficient=-0.5, antialias=True, exclude_outside=True)
    given = [f for f in factors if f is not None]
    return _scaled(node, x, sampling, given if len(given) == len(factors) else None)


def _listed(scales: tuple[Factors | float, ...]) -> Sequence[float | None]:
    """Return the scales of both axes, which are given as one list or one by one."""
    listed = scales if len(scales) == 2 else scales[0] if scales else None
    assert not isinstance(listed, (int, float))  # as the schemas of both overloads say
    return [s if isinstance(s, (int, float)) else None for s in listed or (None, None)]


def _step(old: int, new: int, align_corners: bool, scale: float | None) -> float:
    """Return how far neighbouring elements of the result are apart in the image."""
    if align_corners:
        return (old - 1) / (new - 1) if new > 1 else 0.0
    return 1 / scale if scale else old / new


def _antialiasing(
    old: int, new: int, step: float, weigh: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Return float64[new, old]: the shares of the elements of an axis in those of the result."""
    stretch = max(step, 1.0)
    centres = step * (np.arange(new)[:, None] + 0.5)
    weights = weigh(np.abs((np.arange(old) + 0.5 - centres) / stretch))
    return np.asarray(weights / weights.sum(1, keepdims=True))


def _linear(distance: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(1 - distance, 0))


def _cubic(distance: np.ndarray, a: float = -0.5) -> np.ndarray:
    """Return Keys' cubic convolution kernel."""
    d = np.minimum(distance, 2.0)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    return np.asarray(np.where(d <= 1, near, (((d - 5) * d + 8) * d - 4) * a))


_INTERPOLATION = ("linear", "nearest", "cubic")
_OUTSIDE = ("zeros", "border", "reflection")


@aten("grid_sampler_3d")
def grid_sampler(
    node: AtenNode, x: Node, grid: Node, interpolation: int, padding: int, align_corners: bool
) -> Node:
    """Convert a sampling of volumes at the points of a grid."""
    return vision.grid_sample(
        x,
        grid,
        interpolation=_INTERPOLATION[interpolation],
        padding_mode=_OUTSIDE[padding],
        align_corners=align_corners,
    )
