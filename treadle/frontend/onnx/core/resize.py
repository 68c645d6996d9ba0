# SPDX-License-Identifier: Apache-2.0
"""Converters of image scaling: Resize of every opset, and Upsample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.builders.resize import (
    Sampling,
    Target,
    resized,
    target_by_scales,
    target_by_sizes,
    target_inside_sizes,
)
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Node
from treadle.graph.types import Dim

_COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
_POLICIES = ("stretch", "not_larger", "not_smaller")


@converter("Upsample", since=(1, 7, 9))
def upsample(node: OnnxNode) -> Node:
    """Convert a scaling up: nearest pixel below, or linear, from the top left corner."""
    scales: tuple[float, ...]
    if node.version == 1:
        scales = (1.0, 1.0, node.number("height_scale"), node.number("width_scale"))
    elif node.version == 7:
        scales = node.numbers("scales") or ()
    else:
        scales = tuple(float(v) for v in node.constant(1, "scales").reshape(-1))
    return _from_corner(node, scales)


@converter("Resize", since=(10,))
def resize_from_corner(node: OnnxNode) -> Node:
    """Convert the first form of Resize, which is Upsample in both directions."""
    return _from_corner(node, tuple(float(v) for v in node.constant(1, "scales").reshape(-1)))


def _from_corner(node: OnnxNode, scales: Sequence[float]) -> Node:
    if len(scales) != node.type(0).ndim:
        raise ModelError(f"{len(scales)} scales for {node.type(0)}")
    mode, x = node.text("mode", "nearest"), node.input(0)
    target = target_by_scales(x, dict(enumerate(scales)), node.measure)
    if mode in ("linear", "bilinear"):
        return resized(x, target, Sampling("linear", "asymmetric", "floor"))
    if mode != "nearest" and not target.keeps(node.dims(0)):
        raise ModelError(f"the mode of {node.op} is {mode!r}, not nearest or linear")
    # before opset 11 the nearest pixel is the one below when growing, the one above when shrinking
    return resized(x, target, Sampling("nearest", "asymmetric", "simple"))


@converter("Resize", since=(11, 13, 18, 19))
def resize(node: OnnxNode) -> Node:
    """Convert a resize by scales or to sizes, with all its coordinate rules."""
    mode = node.text("mode", "nearest")
    coordinates = node.text("coordinate_transformation_mode", "half_pixel")
    if mode not in ("nearest", "linear", "cubic"):
        raise ModelError(f"the mode of Resize is {mode!r}, not nearest, linear or cubic")
    if coordinates not in _COORDINATES:
        raise ModelError(f"the coordinate transformation {coordinates!r} is not supported")
    sampling = Sampling(
        mode=mode,
        coordinates=coordinates,
        nearest=node.text("nearest_mode", "round_prefer_floor"),
        cubic_coefficient=node.number("cubic_coeff_a", -0.75),
        exclude_outside=node.flag("exclude_outside"),
        extrapolation_value=node.number("extrapolation_value", 0.0),
        antialias=node.flag("antialias") if node.version >= 18 else False,
        region=_region(node) if coordinates == "tf_crop_and_resize" else (),
    )
    return resized(node.input(0), _target(node), sampling)


def _axes(node: OnnxNode) -> tuple[int, ...]:
    """Return the axes that scales, sizes and roi speak of."""
    ndim = node.type(0).ndim
    axes = node.integers("axes") if node.version >= 18 else None
    return tuple(range(ndim)) if axes is None else node.axes(axes, ndim)


def _region(node: OnnxNode) -> tuple[float, ...]:
    """Return the part of the image that is shown: all starts, then all ends."""
    at, ndim = _axes(node), node.type(0).ndim
    given = node.constant(1, "roi").reshape(-1)
    if given.size != 2 * len(at):
        raise ModelError(f"Resize has {given.size} numbers in roi for {len(at)} axes")
    starts, ends = [0.0] * ndim, [1.0] * ndim
    for k, axis in enumerate(at):
        starts[axis], ends[axis] = float(given[k]), float(given[k + len(at)])
    return (*starts, *ends)


def _target(node: OnnxNode) -> Target:
    x, at = node.input(0), _axes(node)
    policy = node.text("keep_aspect_ratio_policy", "stretch") if node.version >= 18 else "stretch"
    if policy not in _POLICIES:
        raise ModelError(f"the policy {policy!r} of Resize is not one of {', '.join(_POLICIES)}")
    scales, sizes = _given_scales(node, len(at)), _wanted(node, len(at))
    if scales is not None and sizes is None:
        by_axis = {axis: float(s) for axis, s in zip(at, scales, strict=True)}
        return target_by_scales(x, by_axis, node.measure)
    if sizes is None or scales is not None:
        raise ModelError("Resize takes either scales or sizes")
    wanted = dict(zip(at, sizes, strict=True))
    if policy == "stretch":
        return target_by_sizes(x, wanted)
    return target_inside_sizes(x, wanted, is_larger=policy == "not_smaller")


def _wanted(node: OnnxNode, count: int) -> Sequence[Dim] | None:
    """Return the sizes an image is to have, which may be symbolic or computed."""
    if not node.has_input(3):
        return None
    if node.is_computed(3) and _takes_symbolic_sizes(node):
        values: Sequence[Dim] = [node.measure(v) for v in node.elements(3)]
    else:
        values = node.sizes(3, "sizes")
    if values and len(values) != count:
        raise ModelError(f"Resize has {len(values)} sizes for {count} axes")
    return values or None


def _takes_symbolic_sizes(node: OnnxNode) -> bool:
    """True where nothing about the resize must be worked out from the numbers beforehand."""
    is_cropped = node.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    if node.version < 18:
        return not is_cropped
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    return not is_cropped and policy == "stretch" and not node.flag("antialias")


def _given_scales(node: OnnxNode, count: int) -> np.ndarray | None:
    """Return the scales; an empty tensor means they are not given."""
    value = node.optional_constant(2, "scales")
    if value is None or value.size == 0:
        return None
    if value.shape != (count,):
        raise ModelError(f"Resize has {list(value.shape)} scales for {count} axes")
    return value
