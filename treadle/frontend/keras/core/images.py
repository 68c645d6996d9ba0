# SPDX-License-Identifier: Apache-2.0
"""Layers of windows over images: convolutions and pools of one, two and three spatial axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from treadle.errors import ModelError
from treadle.expr.nodes import convert
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    dims_of,
    operands,
    per_channel,
    reshaped,
    scalar_like,
    transposed,
)
from treadle.frontend.builders.images import (
    Sliding,
    images_convolved,
    images_convolved_depthwise,
    images_convolved_transposed,
    images_pooled,
)
from treadle.frontend.builders.layout import common_first, in_one_layout
from treadle.frontend.builders.movement import padded
from treadle.frontend.builders.pool import average_pooled, max_pooled
from treadle.frontend.builders.reduce import Reduction, largest, mean, total
from treadle.frontend.builders.windows import Window
from treadle.frontend.keras.core.activation import activated
from treadle.frontend.keras.layer import KerasLayer, layer, rank
from treadle.graph.nodes import Node
from treadle.graph.types import Dim, known_sizes, normal_size
from treadle.ops import elementwise as ew


def _sliding(use: KerasLayer, axes: int) -> Sliding:
    """Return how the window of a convolution moves."""
    padding = use.setting("padding", "valid")
    if padding not in ("valid", "same", "causal"):
        raise ModelError(f"the padding of {use.class_name} is {padding!r}")
    dilations = use.integers("dilation_rate", axes) if use.setting("dilation_rate") else None
    before = (0,) * axes
    if padding == "causal":
        (size,), (by,) = use.integers("kernel_size", 1), dilations or (1,)
        before = ((size - 1) * by,)
    strides = use.integers("strides", axes)
    after = (0,) * axes
    return Sliding(strides, dilations, padding == "same", before, after, use.is_channels_first)


def _finished(use: KerasLayer, x: Node, bias: int) -> Node:
    """Return images with the bias that is variable `bias`, after the activation."""
    if use.flag("use_bias", True):
        vector = use.weight(bias)
        if use.is_channels_first:
            x = ew.add(x, per_channel(vector, x))
        else:
            x = in_one_layout(lambda a, b: ew.add(*operands(a, b)), x, vector)
    return activated(use, x)


def _axes(use: KerasLayer) -> int:
    """Return how many spatial axes the name of a layer says."""
    return int(use.class_name[use.class_name.index("D") - 1])


@layer("Conv1D", "Conv2D", "Conv3D")
def conv(use: KerasLayer) -> Node:
    """Convert a convolution."""
    if use.setting("lora_rank"):
        raise ModelError("weights of low rank are not supported", hint="merge them and save again")
    sliding = _sliding(use, int(use.class_name[4]))
    return _finished(use, images_convolved(use.input(), use.weight(0), sliding), 1)


@layer("DepthwiseConv1D", "DepthwiseConv2D")
def depthwise_conv(use: KerasLayer) -> Node:
    """Convert a convolution of every channel by filters of its own."""
    sliding = _sliding(use, int(use.class_name[13]))
    return _finished(use, images_convolved_depthwise(use.input(), use.weight(0), sliding), 1)


@layer("SeparableConv1D", "SeparableConv2D")
def separable_conv(use: KerasLayer) -> Node:
    """Convert a convolution of every channel, then one of windows of one pixel."""
    axes = int(use.class_name[13])
    made = images_convolved_depthwise(use.input(), use.weight(0), _sliding(use, axes))
    one = Sliding((1,) * axes, is_channels_first=use.is_channels_first)
    return _finished(use, images_convolved(made, use.weight(1), one), 2)


@layer("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")
def transposed_conv(use: KerasLayer) -> Node:
    """Convert a transposed convolution; filters are [..., channels, inputs]."""
    axes = int(use.class_name[4])
    sliding = _sliding(use, axes)
    if use.setting("output_padding") is not None:
        raise ModelError("a transposed convolution with output_padding is not supported")
    x, w = use.input(), use.weight(0)
    window = sliding.window(known_sizes(dims_of(w)[:-2]), (1,) * axes)
    wanted = []
    for size, stride, extent in zip(
        sliding.spatial(dims_of(x)), window.strides, window.extents, strict=True
    ):
        gap = 0 if sliding.is_same else max(extent - stride, 0)
        wanted.append(normal_size(convert(size) * stride + gap))
    return _finished(use, images_convolved_transposed(x, w, sliding, wanted), 1)


def _pool(name: str, pool: Callable[[Node, Window], Node]) -> None:
    @layer(*(f"{name}Pooling{n}D" for n in (1, 2, 3)))
    def convert_pool(use: KerasLayer) -> Node:
        axes = _axes(use)
        kernel = use.integers("pool_size", axes)
        strides = use.integers("strides", axes) if use.setting("strides") else kernel
        sliding = Sliding(
            strides,
            is_same=use.setting("padding") == "same",
            is_channels_first=use.is_channels_first,
        )
        return images_pooled(use.input(), kernel, sliding, pool)


_pool("Max", max_pooled)
_pool("Average", average_pooled)


def _global(name: str, reduce: Reduction) -> None:
    @layer(*(f"Global{name}Pooling{n}D" for n in (1, 2, 3)))
    def convert_global(use: KerasLayer) -> Node:
        x, axes = use.input(), _axes(use)
        if rank(x) != axes + 2:
            raise ModelError(f"{use.class_name} does not fit {x.type}")
        if name == "Average" and axes == 1 and use.mask is not None:
            return _masked_mean(use, x, use.mask)
        return _whole(x, reduce, use.flag("keepdims"), use.is_channels_first)


def _whole(x: Node, reduce: Reduction, keepdims: bool, is_channels_first: bool) -> Node:
    """Return images reduced to one value per channel."""
    ndim = rank(x)
    first = [x] if is_channels_first else common_first([x])
    if first is None:
        return reduce(x, tuple(range(1, ndim - 1)), keepdims)
    made = reduce(first[0], tuple(range(2, ndim)), keepdims)
    if not keepdims or is_channels_first:
        return made
    return transposed(made, (0, *range(2, ndim), 1))


def _masked_mean(use: KerasLayer, x: Node, mask: Node) -> Node:
    """Return the mean of the steps that count."""
    if use.is_channels_first:
        raise ModelError("a mean by a mask of channels first is not supported")
    weights = converted(reshaped(mask, (*dims_of(mask), 1)), use.compute_dtype)
    keepdims = use.flag("keepdims")
    sums = total(ew.multiply(x, weights), (1,), keepdims)
    return ew.divide(sums, total(weights, (1,), keepdims))


_global("Max", largest)
_global("Average", mean)


def _spatial_places(use: KerasLayer, x: Node) -> range:
    return range(2, rank(x)) if use.is_channels_first else range(1, rank(x) - 1)


def _pairs(use: KerasLayer, name: str, axes: int) -> list[tuple[int, int]]:
    """Return the amounts before and after every spatial axis that a setting says."""
    value = use.setting(name)
    if isinstance(value, int):
        value = [value] * axes
    if axes == 1 and isinstance(value, list) and len(value) == 2 and isinstance(value[0], int):
        value = [value]
    if not isinstance(value, list) or len(value) != axes:
        raise ModelError(f"the setting {name} of {use.class_name} is {value!r}")
    pairs = [(v, v) if isinstance(v, int) else (int(v[0]), int(v[1])) for v in value]
    if min(min(p) for p in pairs) < 0:
        raise ModelError(f"the setting {name} of {use.class_name} is {value!r}")
    return pairs


def images_padded(
    x: Node, places: Sequence[int], pairs: Sequence[tuple[int, int]], value: float = 0.0
) -> Node:
    """Return images with amounts added, or cut off where they are negative, at spatial axes."""
    before, after = [0] * rank(x), [0] * rank(x)
    for axis, (front, back) in zip(places, pairs, strict=True):
        before[axis], after[axis] = front, back
    return padded(x, before, after, "constant", value)


def _padded_images(use: KerasLayer, pairs: Sequence[tuple[int, int]]) -> Node:
    x = use.input()
    first = None if use.is_channels_first else common_first([x])
    if first is None:
        return images_padded(x, _spatial_places(use, x), pairs)
    made = images_padded(first[0], range(2, rank(x)), pairs)
    return transposed(made, (0, *range(2, rank(x)), 1))


@layer("ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D")
def zero_padding(use: KerasLayer) -> Node:
    """Convert zeros around images."""
    return _padded_images(use, _pairs(use, "padding", _axes(use)))


@layer("Cropping1D", "Cropping2D", "Cropping3D")
def cropping(use: KerasLayer) -> Node:
    """Convert images without their border."""
    pairs = _pairs(use, "cropping", _axes(use))
    return _padded_images(use, [(-front, -back) for front, back in pairs])


@layer("UpSampling1D", "UpSampling3D")
def up_sampling(use: KerasLayer) -> Node:
    """Convert every element repeated along its spatial axes."""
    x = use.input()
    places = list(_spatial_places(use, x))
    factors = use.integers("size", len(places))
    spread: list[Dim] = []
    wide: list[Dim] = []
    whole: list[Dim] = []
    for axis, d in enumerate(dims_of(x)):
        factor = factors[places.index(axis)] if axis in places else 1
        spread += [d, 1]
        wide += [d, factor]
        whole.append(normal_size(convert(d) * factor))
    return reshaped(broadcast(reshaped(x, spread), wide), whole)


@layer("CenterCrop")
def center_crop(use: KerasLayer) -> Node:
    """Convert the middle of images that are larger than what is wanted."""
    x = use.input()
    places = list(_spatial_places(use, x))
    wanted = (use.integer("height"), use.integer("width"))
    sizes = known_sizes([dims_of(x)[axis] for axis in places])
    if any(w > s for w, s in zip(wanted, sizes, strict=True)):
        raise ModelError(f"a crop of {list(wanted)} of {x.type} is not supported")
    pairs = [(-((s - w) // 2), -(s - w - (s - w) // 2)) for w, s in zip(wanted, sizes, strict=True)]
    return images_padded(x, places, pairs)


@layer("Rescaling")
def rescaling(use: KerasLayer) -> Node:
    """Convert a factor and an offset."""
    x = converted(use.input(), use.compute_dtype)
    factor, offset = use.number("scale", 1.0), use.number("offset")
    return ew.add(ew.multiply(x, scalar_like(factor, x)), scalar_like(offset, x))
