# SPDX-License-Identifier: Apache-2.0
"""Convolutions in the layout of the model: what every call can do.

A window of one pixel that moves by one takes each pixel alike: they are one row then, which fills
more of its vectors than rows of the image do.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from treadle.cost.gpu import element_cycles
from treadle.dtype import bits
from treadle.graph.nodes import Node
from treadle.graph.types import known_sizes
from treadle.ops.conv import ConvAttrs, conv
from treadle.ops.schedules.estimates import PlainConvShape, plain_conv_cycles
from treadle.optimize.blocked import Flat, has_known_image, reshaped
from treadle.optimize.methods.convolution import FLOATS, ConvSite
from treadle.optimize.methods.method import Method, always


def plain_shape(site: ConvSite) -> PlainConvShape:
    """Return the sizes of the convolution as it is written."""
    images, rows, columns = site.image
    if len(site.kernel) == 1:  # the template has the only axis last
        rows, columns = 1, rows
    return PlainConvShape(
        images,
        rows,
        columns,
        site.filters,
        site.filters // site.groups,
        site.per_group,
        prod(site.kernel),
        site.kernel[-1],
        site.window[-1].stride,
        bits(site.data.dtype),
    )


def _estimate(site: ConvSite) -> float:
    shape = plain_shape(site)
    if site.target.gpu is not None:
        elements = site.filters * shape.images * shape.rows * shape.columns
        return element_cycles(elements, site.per_group * prod(site.kernel), site.target.gpu)
    if takes_pixels_alike(site):
        pixels = prod(known_sizes(site.data.shape[2:]))
        images = shape.images * shape.rows * shape.columns // pixels
        shape = replace(shape, images=images, rows=1, columns=pixels)
    layouts = site.unblocking_cycles() if site.data.dtype in FLOATS else 0.0
    return plain_conv_cycles(shape, site.target) + site.padding_cycles() + layouts


def takes_pixels_alike(site: ConvSite) -> bool:
    """True for a window of one pixel that meets each pixel of an image of known sizes once.

    Channels in groups are for methods of their own.
    """
    if len(site.kernel) < 2 or prod(site.kernel) != 1 or site.groups > 1:
        return False
    if not has_known_image(site.data):
        return False
    return not any(a.stride > 1 or a.before or a.after for a in site.window)


def _build(site: ConvSite) -> Node | Flat:
    if not takes_pixels_alike(site):
        return site.as_in_model()
    pixels = site.values.as_flat(site.x)
    weights = reshaped(site.values.as_plain(site.w), (*site.weights.shape[:2], 1))
    how = ConvAttrs(out_dtype=site.attrs.out_dtype)
    return Flat(conv.call(how, (pixels, weights), origin=site.origin))


conv_plain = Method("plain", conv, always, _estimate, _build, families=("cpu", "gpu"))
