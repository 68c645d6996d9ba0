# SPDX-License-Identifier: Apache-2.0
"""Converters of image scaling: Resize of every opset, and Upsample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted
from treadle.frontend.onnx.core.dynamic_operands import elements, is_computed
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.frontend.symbolic import sizes_node
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, known_sizes, same_dim
from treadle.ops import elementwise, image

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
    """The wanted size of every axis and the factor that coordinates are scaled by.

    Without scales, coordinates are scaled by the ratio of the sizes.
    """

    sizes: tuple[Dim, ...]
    scales: tuple[float, ...]

    def keeps(self, shape: Sequence[Dim]) -> bool:
        """True when the image stays as it is."""
        same = all(same_dim(a, b) for a, b in zip(self.sizes, shape, strict=True))
        return same and all(s == 1.0 for s in self.scales)


def _scaled_target(node: OnnxNode, scales: Sequence[float]) -> _Target:
    if any(not s > 0 for s in scales):
        raise ModelError(f"the scales {list(scales)} must be above 0")
    sizes = (_scaled(node, d, s) for d, s in zip(node.dims(0), scales, strict=True))
    return _Target(tuple(sizes), tuple(scales))


def _scaled(node: OnnxNode, extent: Dim, scale: float) -> Dim:
    """Return an extent times a scale; the model itself computes it where sizes cannot."""
    known = image.scaled_extent(extent, scale)
    if known is not None:
        return known
    single = elementwise.cast(sizes_node((extent,), ()), dtype="float32")
    product = elementwise.multiply(single, Constant.of(scale, "float32"))
    return node.measure(converted(product, "int64"))


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
    target = _scaled_target(node, scales)
    if target.keeps(node.dims(0)):
        return x
    if mode in ("linear", "bilinear"):
        return _resized(x, target, "linear", "floor")
    if mode != "nearest":
        raise ModelError(f"the mode of {node.op} is {mode!r}, not nearest or linear")
    # before opset 11 the nearest pixel is the one below when growing, the one above when shrinking
    return _resized(x, target, mode, "simple")


def _resized(x: Node, target: _Target, mode: str, nearest: str) -> Node:
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
    return x if target.keeps(node.dims(0)) and not roi else resized


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
    at = _axes(node)
    policy = node.text("keep_aspect_ratio_policy", "stretch") if node.version >= 18 else "stretch"
    if policy not in _POLICIES:
        raise ModelError(f"the policy {policy!r} of Resize is not one of {', '.join(_POLICIES)}")
    scales = _given_scales(node, len(at))
    sizes = _wanted(node, len(at))
    if scales is not None and sizes is None:
        full_scales = [1.0] * len(node.dims(0))
        for a, s in zip(at, scales, strict=True):
            full_scales[a] = float(s)
        return _scaled_target(node, full_scales)
    if sizes is None or scales is not None:
        raise ModelError("Resize takes either scales or sizes")
    return _sized_target(node, sizes, policy)


def _sized_target(node: OnnxNode, wanted: Sequence[Dim], policy: str) -> _Target:
    shape, at = node.dims(0), _axes(node)
    extents = [shape[a] for a in at]
    if any(isinstance(d, int) and d < 1 for d in (*wanted, *extents)):
        raise ModelError(f"{list(shape)} cannot be resized to {list(wanted)}")
    full_sizes = list(shape)
    if policy == "stretch":
        for a, size in zip(at, wanted, strict=True):
            full_sizes[a] = size
        return _Target(tuple(full_sizes), ())
    full_scales = [1.0] * len(shape)
    known = (known_sizes(wanted), known_sizes(extents))
    for a, size, scale in zip(at, *_fitted(*known, policy), strict=True):
        full_scales[a], full_sizes[a] = scale, size
    return _Target(tuple(full_sizes), tuple(full_scales))


def _wanted(node: OnnxNode, count: int) -> Sequence[Dim] | None:
    """Return the sizes an image is to have, which may be symbolic or computed."""
    if not node.has_input(3):
        return None
    if is_computed(node, 3) and _takes_open_sizes(node):
        values: Sequence[Dim] = [node.measure(v) for v in elements(node, 3)]
    else:
        values = node.sizes(3, "sizes")
    if values and len(values) != count:
        raise ModelError(f"Resize has {len(values)} sizes for {count} axes")
    return values or None


def _takes_open_sizes(node: OnnxNode) -> bool:
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


def _fitted(
    wanted: Sequence[int], extents: Sequence[int], policy: str
) -> tuple[list[int], list[float]]:
    """Return the sizes and scales that a policy on the aspect ratio makes of wanted sizes."""
    scales = [w / d for w, d in zip(wanted, extents, strict=True)]
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [floor(scale * d + 0.5) for d in extents], [scale] * len(extents)
