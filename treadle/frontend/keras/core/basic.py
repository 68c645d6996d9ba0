# SPDX-License-Identifier: Apache-2.0
"""Layers of products, embeddings and merges, and those that do nothing outside of training."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    axis_from_front,
    broadcast,
    converted,
    dims_of,
    element_type,
    operands,
    reshaped,
    scalar_like,
    transposed,
)
from treadle.frontend.builders.einsum import einsum
from treadle.frontend.builders.elementwise import mean_of
from treadle.frontend.builders.layout import channels_last, common_first, in_one_layout
from treadle.frontend.builders.matmul import product
from treadle.frontend.builders.movement import concatenated, taken
from treadle.frontend.builders.reduce import largest
from treadle.frontend.keras.core.activation import activated
from treadle.frontend.keras.layer import KerasLayer, layer, rank
from treadle.graph.nodes import Node
from treadle.ops import elementwise as ew
from treadle.ops import reduce as reductions


@layer("Identity", "Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D",
       "GaussianDropout", "GaussianNoise", "AlphaDropout", "ActivityRegularization",
       "RandomFlip", "RandomRotation", "RandomZoom", "RandomTranslation", "RandomContrast",
       "RandomBrightness", "RandomShear", "RandomColorJitter", "RandomHue", "RandomSaturation",
       "RandomSharpness", "RandomGrayscale", "RandomErasing", "RandomPerspective",
       "RandomGaussianBlur", "RandomPosterization", "RandomColorDegeneration", "RandomInvert",
       "RandomElasticTransform")  # fmt: skip
def same(use: KerasLayer) -> Node:
    """Convert what changes values while a model is trained alone."""
    return use.input()


@layer("Dense")
def dense(use: KerasLayer) -> Node:
    """Convert a product with a matrix, a bias and an activation."""
    _refuse_quantized(use)
    made = product(use.input(), use.weight(0))
    return activated(use, _biased(use, made, 1))


def _refuse_quantized(use: KerasLayer) -> None:
    if use.setting("quantization_config") or use.setting("lora_rank"):
        raise ModelError(
            f"quantised weights, or those of low rank, of {use.class_name} are not supported",
            hint="save the model in float32, with its low-rank weights merged",
        )


def _biased(use: KerasLayer, x: Node, index: int) -> Node:
    if not use.flag("use_bias", True):
        return x
    return in_one_layout(lambda a, b: ew.add(*operands(a, b)), x, use.weight(index))


@layer("EinsumDense")
def einsum_dense(use: KerasLayer) -> Node:
    """Convert a sum of products as an equation says, a bias and an activation."""
    _refuse_quantized(use)
    made = einsum(str(use.setting("equation")), [use.input(), use.weight(0)])
    if use.setting("bias_axes"):
        made = ew.add(*operands(made, use.weight(1)))
    return activated(use, made)


@layer("Embedding")
def embedding(use: KerasLayer) -> Node:
    """Convert a choice of rows; with `mask_zero` the first row is for steps that do not count."""
    _refuse_quantized(use)
    places = use.args[0] if use.args else None
    if not isinstance(places, Node):
        raise ModelError("an embedding lacks its input")
    if not element_type(places).startswith(("int", "uint")):
        places = converted(places, "int32")
    if use.flag("mask_zero"):
        use.made_mask = ew.not_equal(places, scalar_like(0, places))
    return taken(use.weight(0), places, 0, use.class_name)


@layer("Masking")
def masking(use: KerasLayer) -> Node:
    """Convert steps of which every feature is one value to zeros that do not count."""
    x = use.input()
    differs = ew.not_equal(x, scalar_like(use.number("mask_value"), x))
    axis = rank(x) - 1
    kept = largest(differs, (axis,), True)
    use.made_mask = reshaped(kept, dims_of(x)[:-1])
    return ew.multiply(x, converted(kept, element_type(x)))


def _merge(name: str, compute: Callable[..., Node]) -> None:
    """Register a merge of several values, which broadcast."""

    @layer(name)
    def convert(use: KerasLayer) -> Node:
        values = use.inputs()
        if len({rank(v) for v in values}) > 1:
            raise ModelError(f"values of different ranks in {name} are not supported")
        return in_one_layout(compute, *values)


_merge("Add", lambda *xs: reduce(ew.add, operands(*xs)))
_merge("Subtract", lambda *xs: reduce(ew.subtract, operands(*xs)))
_merge("Multiply", lambda *xs: reduce(ew.multiply, operands(*xs)))
_merge("Maximum", lambda *xs: reduce(ew.maximum, operands(*xs)))
_merge("Minimum", lambda *xs: reduce(ew.minimum, operands(*xs)))
_merge("Average", lambda *xs: mean_of(xs))


@layer("Concatenate")
def concatenate(use: KerasLayer) -> Node:
    """Convert values one behind the other along an axis."""
    return joined(use.inputs(), use.integer("axis", -1))


def joined(values: list[Node], axis: int) -> Node:
    """Return values one behind the other; images with their channels first stay so."""
    ndim = rank(values[0])
    place = axis_from_front(axis, ndim, "Concatenate")
    images = common_first(values)
    if images is None:
        return concatenated(values, place)
    return channels_last(concatenated(images, (0, *range(2, ndim), 1)[place]))


@layer("Dot")
def dot(use: KerasLayer) -> Node:
    """Convert the products of an axis of one value by one of another, for every sample."""
    a, b = use.inputs()
    given = use.setting("axes")
    given = [given, given] if isinstance(given, int) else given
    axes = [axis_from_front(k, rank(x), "Dot") for k, x in zip(given, (a, b), strict=True)]
    if use.flag("normalize"):
        a, b = (_normalized(x, k) for x, k in zip((a, b), axes, strict=True))
    left, right = ([k for k in range(1, rank(x)) if k != axis]
                   for x, axis in zip((a, b), axes, strict=True))  # fmt: skip
    letters = iter("abcdefghijklmnop")
    first = {k: next(letters) for k in left}
    second = {k: next(letters) for k in right}
    terms = [
        "z" + "".join("y" if k == axis else names[k] for k in range(1, rank(x)))
        for x, axis, names in zip((a, b), axes, (first, second), strict=True)
    ]
    result = "z" + "".join(first.values()) + "".join(second.values())
    made = einsum(f"{terms[0]},{terms[1]}->{result}", [a, b])
    return reshaped(made, (*dims_of(made), 1)) if rank(made) == 1 else made


def _normalized(x: Node, axis: int) -> Node:
    """Return rows divided by their length."""
    total = reductions.sum_(ew.multiply(x, x), axes=(axis,), keepdims=True)
    least = scalar_like(1e-12, x)
    return ew.multiply(x, ew.rsqrt(ew.maximum(total, least)))


@layer("LayerScale", "CustomScaleLayer")
def scaled_parts(use: KerasLayer) -> Node:
    """Convert the layers that ConvNeXt and Inception-ResNet bring with keras.applications."""
    if use.class_name == "LayerScale":
        return in_one_layout(lambda a, b: ew.multiply(*operands(a, b)), use.input(), use.weight(0))
    a, b = use.inputs()
    factor = use.number("scale")
    return in_one_layout(lambda x, y: ew.add(x, ew.multiply(y, scalar_like(factor, y))), a, b)


@layer("RepeatVector")
def repeat_vector(use: KerasLayer) -> Node:
    """Convert rows repeated along a new axis."""
    x = use.input()
    batch, width = dims_of(x)
    return broadcast(reshaped(x, (batch, 1, width)), (batch, use.integer("n"), width))


@layer("Permute")
def permute(use: KerasLayer) -> Node:
    """Convert a permutation of the axes after the first."""
    x = use.input()
    order = use.integers("dims", rank(x) - 1)
    if sorted(order) != list(range(1, rank(x))):
        raise ModelError(f"{list(order)} is no permutation of the axes of {x.type}")
    return transposed(x, (0, *order))
