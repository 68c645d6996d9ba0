# SPDX-License-Identifier: Apache-2.0
"""Builders of image scaling: to sizes or by scales, by any rule of where elements are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, dims_of
from treadle.frontend.builders.dynamic_operands import Measure
from treadle.frontend.symbolic import sizes_node
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, known_sizes, same_dim
from treadle.ops import elementwise, image, resize_coordinates


@dataclass(frozen=True, slots=True)
class Target:
    """The wanted size of every axis and the factor that coordinates are scaled by.

    Without scales, coordinates are scaled by the ratio of the sizes.
    """

    sizes: tuple[Dim, ...]
    scales: tuple[float, ...] = ()

    def keeps(self, shape: Sequence[Dim]) -> bool:
        """True when the image stays as it is."""
        same = all(same_dim(a, b) for a, b in zip(self.sizes, shape, strict=True))
        return same and all(s == 1.0 for s in self.scales)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How elements follow from those around them; the words are those of `ops.image.ResizeAttrs`.

    PyTorch's upsampling: nearest is ("nearest", "asymmetric", "floor"), bilinear ("linear",
    "half_pixel"), bicubic ("cubic", "half_pixel"), with corners aligned "align_corners".
    """

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic_coefficient: float = -0.75
    exclude_outside: bool = False
    extrapolation_value: float = 0.0
    antialias: bool = False
    region: tuple[float, ...] = ()


def corner_coordinates(align_corners: bool, half_pixel_centers: bool, half_pixel: str) -> str:
    """Return the rule of coordinates that two flags of TensorFlow stand for.

    `half_pixel` is the rule where centres lie at halves. Raises: ModelError for both flags.
    """
    if align_corners and half_pixel_centers:
        raise ModelError("align_corners and half_pixel_centers exclude each other")
    if half_pixel_centers:
        return half_pixel
    return "align_corners" if align_corners else "asymmetric"


def resized(x: Node, target: Target, sampling: Sampling) -> Node:
    """Return an image in another size; itself where that and all it shows stay the same."""
    if target.keeps(dims_of(x)) and not sampling.region:
        return x
    return image.resize(
        x,
        sizes=target.sizes,
        scales=target.scales,
        mode=sampling.mode,
        coordinate_transformation_mode=sampling.coordinates,
        nearest_mode=sampling.nearest,
        cubic_coeff_a=sampling.cubic_coefficient,
        exclude_outside=sampling.exclude_outside,
        extrapolation_value=sampling.extrapolation_value,
        antialias=sampling.antialias,
        roi=sampling.region,
    )


def target_by_scales(x: Node, scales: Mapping[int, float], measure: Measure) -> Target:
    """Return the target of scaling axes by factors; the model computes sizes that cannot be told.

    Raises: ModelError unless the factors are above 0.
    """
    shape = dims_of(x)
    full = [scales.get(axis, 1.0) for axis in range(len(shape))]
    if any(not s > 0 for s in full):
        raise ModelError(f"the scales {full} must be above 0")
    sizes = (_scaled(d, s, measure) for d, s in zip(shape, full, strict=True))
    return Target(tuple(sizes), tuple(full))


def _scaled(extent: Dim, scale: float, measure: Measure) -> Dim:
    """Return an extent times a scale; the model itself computes it where sizes cannot."""
    known = resize_coordinates.scaled_extent(extent, scale)
    if known is not None:
        return known
    single = elementwise.cast(sizes_node((extent,), ()), dtype="float32")
    product = elementwise.multiply(single, Constant.of(scale, "float32"))
    return measure(converted(product, "int64"))


def target_by_sizes(x: Node, wanted: Mapping[int, Dim]) -> Target:
    """Return the target of giving axes new sizes, whatever becomes of the aspect ratio."""
    _check_extents(x, wanted)
    return Target(tuple(wanted.get(axis, d) for axis, d in enumerate(dims_of(x))))


def target_inside_sizes(x: Node, wanted: Mapping[int, Dim], *, is_larger: bool) -> Target:
    """Return the target with the aspect ratio kept: just not larger, or just not smaller."""
    _check_extents(x, wanted)
    shape = dims_of(x)
    sizes, scales = list(shape), [1.0] * len(shape)
    extents = known_sizes([shape[axis] for axis in wanted])
    factors = [w / d for w, d in zip(known_sizes(wanted.values()), extents, strict=True)]
    scale = max(factors) if is_larger else min(factors)
    for axis, extent in zip(wanted, extents, strict=True):
        sizes[axis], scales[axis] = floor(scale * extent + 0.5), scale
    return Target(tuple(sizes), tuple(scales))


def _check_extents(x: Node, wanted: Mapping[int, Dim]) -> None:
    shape = dims_of(x)
    extents = (*wanted.values(), *(shape[axis] for axis in wanted))
    if any(isinstance(d, int) and d < 1 for d in extents):
        raise ModelError(f"{list(shape)} cannot be resized to {list(wanted.values())}")
