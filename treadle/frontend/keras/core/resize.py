# SPDX-License-Identifier: Apache-2.0
"""Layers that scale images."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.expr.nodes import convert
from treadle.frontend.builders.basic import dims_of
from treadle.frontend.builders.layout import channels_first, channels_last
from treadle.frontend.builders.resize import Sampling, resized, target_by_sizes
from treadle.frontend.keras.layer import KerasLayer, layer, rank
from treadle.graph.nodes import Node
from treadle.graph.types import Dim, normal_size

_SAMPLINGS = {
    "nearest": Sampling("nearest", "tf_half_pixel_for_nn", "floor"),
    "bilinear": Sampling("linear", "half_pixel"),
    "bicubic": Sampling("cubic", "half_pixel", cubic_coefficient=-0.5, exclude_outside=True),
}


@layer("UpSampling2D")
def up_sampling(use: KerasLayer) -> Node:
    """Convert images several times as large."""
    x = use.input()
    spatial = dims_of(x)[2:] if use.is_channels_first else dims_of(x)[1:3]
    factors = use.integers("size", 2)
    wanted = [normal_size(convert(d) * f) for d, f in zip(spatial, factors, strict=True)]
    return _resized(use, x, wanted, str(use.setting("interpolation", "nearest")))


@layer("Resizing")
def resizing(use: KerasLayer) -> Node:
    """Convert images of a wanted size."""
    if any(use.flag(f) for f in ("crop_to_aspect_ratio", "pad_to_aspect_ratio", "antialias")):
        raise ModelError("resizing that keeps the aspect ratio, or antialiased, is not supported")
    wanted = [use.integer("height"), use.integer("width")]
    return _resized(use, use.input(), wanted, str(use.setting("interpolation", "bilinear")))


def _resized(use: KerasLayer, x: Node, wanted: list[Dim] | list[int], how: str) -> Node:
    if rank(x) != 4 or how not in _SAMPLINGS:
        raise ModelError(f"{use.class_name} of {x.type} by {how!r} is not supported")
    images = x if use.is_channels_first else channels_first(x)
    target = target_by_sizes(images, {2: wanted[0], 3: wanted[1]})
    made = resized(images, target, _SAMPLINGS[how])
    return made if use.is_channels_first else channels_last(made)
