# SPDX-License-Identifier: Apache-2.0
"""Converters of image scaling: Resize of every opset, and Upsample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.onnx.build import shape_of
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Node
from treadle.ops import image

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


@dataclass(frozen=True, slots=True)
class _Target:
    """The wanted size of every axis and the factor that coordinates are scaled by."""

    sizes: tuple[int, ...]
    scales: tuple[float, ...]


def _scaled_target(shape: Sequence[int], scales: Sequence[float]) -> _Target:
    if any(not s > 0 for s in scales):
        raise ModelError(f"the scales {list(scales)} must be above 0")
    sizes = (int(np.float32(d) * np.float32(s)) for d, s in zip(shape, scales, strict=True))
    return _Target(tuple(sizes), tuple(scales))


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
    _check_rank(node, scales)
    return _from_corner(node, scales)


@converter("Resize", since=(10,))
def resize_from_corner(node: OnnxNode) -> Node:
    """Convert the first form of Resize, which is Upsample in both directions."""
    scales = tuple(float(v) for v in node.constant(1, "scales").reshape(-1))
    _check_rank(node, scales)
    return _from_corner(node, scales)


def _check_rank(node: OnnxNode, values: Sequence[object]) -> None:
    if len(values) != node.type(0).ndim:
        raise ModelError(f"{len(values)} scales for {node.type(0)}")


def _from_corner(node: OnnxNode, scales: Sequence[float]) -> Node:
    mode = node.text("mode", "nearest")
    x = node.input(0)
    if mode in ("linear", "bilinear"):
        return _resized(x, _scaled_target(shape_of(x), scales), "linear", "floor")
    if mode != "nearest":
        raise ModelError(f"the mode of {node.op} is {mode!r}, not nearest or linear")
    # before opset 11 the nearest pixel is the one below when growing, the one above when shrinking
    return _resized(x, _scaled_target(shape_of(x), scales), mode, "simple")


def _resized(x: Node, target: _Target, mode: str, nearest: str) -> Node:
    if target.sizes == shape_of(x):
        return x
    return image.resize(
        x,
        sizes=target.sizes,
        scales=target.scales,
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode=nearest,
    )


@converter("Resize", since=(11, 13, 18, 19))
def resize(node: OnnxNode) -> Node:
    """Convert a resize by scales or to sizes, with all its coordinate rules."""
    x = node.input(0)
    mode = node.text("mode", "nearest")
    coordinates = node.text("coordinate_transformation_mode", "half_pixel")
    if mode not in ("nearest", "linear", "cubic"):
        raise ModelError(f"the mode of Resize is {mode!r}, not nearest, linear or cubic")
    if coordinates not in _COORDINATES:
        raise ModelError(f"the coordinate transformation {coordinates!r} is not supported")
    target = _target(node)
    roi = _region(node) if coordinates == "tf_crop_and_resize" else ()
    resized = image.resize(
        x,
        sizes=target.sizes,
        scales=target.scales,
        mode=mode,
        coordinate_transformation_mode=coordinates,
        nearest_mode=node.text("nearest_mode", "round_prefer_floor"),
        cubic_coeff_a=node.number("cubic_coeff_a", -0.75),
        exclude_outside=node.flag("exclude_outside"),
        extrapolation_value=node.number("extrapolation_value", 0.0),
        antialias=node.flag("antialias") if node.version >= 18 else False,
        roi=roi,
    )
    unchanged = target.sizes == shape_of(x) and all(s == 1.0 for s in target.scales)
    return x if unchanged and not roi else resized


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


def _target(node: OnnxNode) -> _Target:
    shape, at = node.shape(0), _axes(node)
    policy = node.text("keep_aspect_ratio_policy", "stretch") if node.version >= 18 else "stretch"
    if policy not in _POLICIES:
        raise ModelError(f"the policy {policy!r} of Resize is not one of {', '.join(_POLICIES)}")
    scales = _given(node, 2, "scales", len(at))
    sizes = _given(node, 3, "sizes", len(at))
    full_scales, full_sizes = [1.0] * len(shape), list(shape)
    if scales is not None and sizes is None:
        for a, s in zip(at, scales, strict=True):
            full_scales[a] = float(s)
        return _scaled_target(shape, full_scales)
    if sizes is None or scales is not None:
        raise ModelError("Resize takes either scales or sizes")
    wanted = [int(s) for s in sizes]
    if any(s < 1 for s in wanted) or any(shape[a] < 1 for a in at):
        raise ModelError(f"{list(shape)} cannot be resized to {wanted}")
    for a, size, scale in zip(at, *_sized(wanted, [shape[a] for a in at], policy), strict=True):
        full_scales[a], full_sizes[a] = scale, size
    return _Target(tuple(full_sizes), tuple(full_scales))


def _given(node: OnnxNode, index: int, what: str, count: int) -> np.ndarray | None:
    """Return scales or sizes; an empty tensor means they are not given."""
    value = node.optional_constant(index, what)
    if value is None or value.size == 0:
        return None
    if value.shape != (count,):
        raise ModelError(f"Resize has {list(value.shape)} {what} for {count} axes")
    return value


def _sized(
    wanted: Sequence[int], extents: Sequence[int], policy: str
) -> tuple[list[int], list[float]]:
    """Return the sizes and scales that a policy on the aspect ratio makes of wanted sizes."""
    scales = [w / d for w, d in zip(wanted, extents, strict=True)]
    if policy == "stretch":
        return list(wanted), scales
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [floor(scale * d + 0.5) for d in extents], [scale] * len(extents)
