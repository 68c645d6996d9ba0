# SPDX-License-Identifier: Apache-2.0
"""Sums of products of small numbers, several at a time: `dense_dot` and `conv_dot`.

Steps of the reduction that follow each other lie side by side in memory, so many as one instruction
multiplies and adds: four bytes, two 16-bit integers or two of bfloat16. Sums of integers are int32,
exact as long as they fit, and wrap as sums of int32 factors do; those of bfloat16 are float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from treadle import te
from treadle.dtype import bits, is_float, itemsize, to_numpy
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr, cast
from treadle.graph.operator import Example, Fusion, Operator, register
from treadle.graph.size_rules import SizeRule, equal
from treadle.graph.types import Dim, TensorType, Type, tensor_type
from treadle.ops.accumulate import product_example, reference_factors
from treadle.ops.axis_names import image_axes, product_axes
from treadle.ops.conv import (
    ConvAttrs,
    conv_axes,
    infer_conv,
    input_channel,
    padded,
    reference_conv,
)
from treadle.ops.example_numbers import integers, uniform
from treadle.ops.lowered.dense_packed import DensePackedAttrs
from treadle.ops.numeric import dims_of
from treadle.ops.schedules.dot import schedule_conv_dot, schedule_dense_dot
from treadle.ops.window import WindowAxis, kernel_axes, known, positions, whole_rules

_SHORT = frozenset({"int8", "uint8", "int16", "uint16", "bfloat16"})
"""Types of which instructions multiply several and add the products up in a lane of 32 bits."""


def steps_in_word(dtype: str) -> int:
    """Return how many elements of a type are multiplied and added at once; 1: others."""
    return itemsize("int32") // itemsize(dtype) if dtype in _SHORT else 1


def grouped(x: np.ndarray, axis: int) -> np.ndarray:
    """Return small numbers with an axis cut in steps of a word, each step last: [..., steps].

    An axis that is no multiple is filled up by zeros.
    """
    steps = steps_in_word(x.dtype.name)
    rows = np.moveaxis(x, axis, -1)
    rows = np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, -rows.shape[-1] % steps)])
    cut = rows.reshape(*rows.shape[:-1], rows.shape[-1] // steps, steps)
    return np.ascontiguousarray(np.moveaxis(cut, -2, axis))


def ungrouped(x: np.ndarray, axis: int) -> np.ndarray:
    """Undo `grouped`, but for the zeros that filled up."""
    rows = np.moveaxis(x, axis, -2)
    return np.moveaxis(rows.reshape(*rows.shape[:-2], -1), -1, axis)


def _check_small(a: TensorType, w: TensorType) -> int:
    """Return the steps of a word. Raises TypeMismatch where the factors have none in common."""
    steps = steps_in_word(a.dtype)
    if steps == 1 or steps != steps_in_word(w.dtype) or is_float(a.dtype) != is_float(w.dtype):
        raise TypeMismatch(f"{a} and {w} are not both of bytes, 16-bit integers or bfloat16")
    if w.static_shape[-1] != steps:
        raise TypeMismatch(f"the weights {w} have not {steps} steps side by side")
    return steps


def _sum_type(dtype: str) -> str:
    """Return the type that products of elements are summed in."""
    return "float32" if is_float(dtype) else "int32"


def _product(a: Expr, b: Expr) -> Expr:
    wide = _sum_type(a.dtype)
    return cast(a, wide) * cast(b, wide)


# dense_dot: [..., k] by panels of weights [n/nb, k / steps, nb, steps].


def _infer_dense(attrs: DensePackedAttrs, a: Type, w: Type) -> TensorType:
    x, panels = tensor_type(a), tensor_type(w)
    if x.ndim < 1 or panels.ndim != 4:
        raise TypeMismatch(f"{x} and {panels} are not [..., k] and [n/nb, k/steps, nb, steps]")
    steps = _check_small(x, panels)
    count, words, width, _ = panels.static_shape
    if isinstance(x.shape[-1], int) and x.shape[-1] != words * steps:
        raise TypeMismatch(f"{x} and {panels} do not multiply: not {words * steps} columns")
    if not (count - 1) * width < attrs.n <= count * width:
        raise TypeMismatch(f"{count} panels of {width} columns do not hold {attrs.n} columns")
    return TensorType((*x.shape[:-1], attrs.n), _sum_type(x.dtype))


def _dense_rules(attrs: DensePackedAttrs, result: Type, a: Type, w: Type) -> Iterator[SizeRule]:
    _, words, _, steps = tensor_type(w).static_shape
    return equal([(tensor_type(a).shape[-1], words * steps)])


def _compute_dense(attrs: DensePackedAttrs, a: te.Tensor, w: te.Tensor) -> list[te.Tensor]:
    _, words, width, steps = w.shape
    k, step = te.reduce_axis((0, words), "k"), te.reduce_axis((0, steps), "step")

    def element(*i: Expr) -> Expr:
        panel, lane = te.floordiv(i[-1], width), te.floormod(i[-1], width)
        value = a[(*i[:-1], k * steps + step)]
        return te.sum(_product(value, w[panel, k, lane, step]), axis=[k, step])

    names = product_axes(a.ndim)
    return [te.compute_one((*a.shape[:-1], attrs.n), element, name="dense", axes=names)]


def _reference_dense(attrs: DensePackedAttrs, a: np.ndarray, w: np.ndarray) -> np.ndarray:
    panels = ungrouped(w, 1)
    chunks, rows, width = panels.shape
    matrix = panels.transpose(1, 0, 2).reshape(rows, chunks * width)[:, : attrs.n]
    wide = _sum_type(a.dtype.name)
    result: np.ndarray = np.matmul(*reference_factors(a, matrix, wide))
    return result.astype(wide)


def _flops_dense(attrs: DensePackedAttrs, a: Type, w: Type) -> Dim:
    return 2 * tensor_type(a).elements * attrs.n


def _numbers(dtype: str, *shape: int) -> np.ndarray:
    """Return random numbers, of integers from all of the range, the extreme ones among them."""
    if is_float(dtype):
        return uniform(shape, -2, 2, seed=sum(shape)).astype(to_numpy(dtype))
    limits = np.iinfo(dtype)
    made = integers(shape, limits.min, limits.max + 1, seed=sum(shape))
    made.reshape(-1)[:3] = (limits.min, limits.max, limits.min)
    return made.astype(dtype)


def _dense_example(
    rows: tuple[int, ...], panels: tuple[int, int, int], n: int, types: tuple[str, str]
) -> Example:
    steps = steps_in_word(types[0])
    shape, weights = (*rows, panels[1] * steps), (*panels, steps)
    inputs = {0: _numbers(types[0], *shape), 1: _numbers(types[1], *weights)}
    return product_example((shape, weights), {"n": n}, types, inputs=inputs)


_BYTES = ("uint8", "int8")
_SHORTS = ("int16", "int16")

dense_dot: Operator[DensePackedAttrs] = register(
    Operator(
        name="dense_dot",
        infer=_infer_dense,
        reference=_reference_dense,
        compute=_compute_dense,
        rules=_dense_rules,
        attrs_type=DensePackedAttrs,
        fusion=Fusion.ANCHOR,
        schedule={"cpu": schedule_dense_dot},
        flops=_flops_dense,
        examples=(
            _dense_example((4,), (2, 5, 8), 16, _SHORTS),
            _dense_example((1,), (3, 16, 16), 41, _SHORTS),
            _dense_example((2, 3), (1, 7, 16), 3, _SHORTS),
            _dense_example((21,), (2, 9, 64), 100, _SHORTS),
            _dense_example((4,), (2, 5, 16), 27, _BYTES),
            _dense_example((1,), (2, 16, 64), 128, _BYTES),
            _dense_example((2, 19), (2, 9, 32), 50, _BYTES),
            _dense_example((5,), (1, 4, 16), 16, ("int8", "int8")),
            _dense_example((5,), (1, 4, 16), 16, ("uint8", "uint8")),
            _dense_example((7,), (2, 40, 32), 50, ("bfloat16", "bfloat16")),
        ),
    )
)


# conv_dot: words [n, c / steps, *spatial] by weights [oc, c / groups / steps, *kernel, steps].


@dataclass(frozen=True, slots=True)
class ConvDotAttrs(ConvAttrs):
    """As `ConvAttrs`; a word of 32 bits holds channels of type `data`, the lowest bits first.

    `one_row`: of an image of known sizes, results are [n, oc, oh * ow], one row for each channel.
    Vectors that walk along rows have idle lanes where a row is not a whole number of them: two of
    16 for 14 columns. So the image is copied once for every tap of a row of the window, shifted by
    it; then windows of neighbouring positions lie next to each other across the ends of rows too,
    and the taps of a column are whole rows apart. Where windows are more than a row apart, all
    taps are copied ("im2col", Chellapilla, Puri and Simard, "High Performance Convolutional Neural
    Networks for Document Processing", 2006, of words).
    """

    data: str = "uint8"
    one_row: bool = False


def _conv_dot_steps(attrs: ConvDotAttrs, data: TensorType, weights: TensorType) -> int:
    """Return the channels of a word. Raises: TypeMismatch where the factors do not fit."""
    steps = steps_in_word(attrs.data)
    if data.dtype != "uint32" or is_float(attrs.data) or steps == 1:
        raise TypeMismatch(f"{data} are not words of {attrs.data} numbers in uint32")
    if steps_in_word(weights.dtype) != steps or weights.static_shape[-1] != steps:
        raise TypeMismatch(f"the weights {weights} have not {steps} channels side by side")
    return steps


def _infer_conv_dot(attrs: ConvDotAttrs, x: Type, w: Type) -> TensorType:
    data, weights = tensor_type(x), tensor_type(w)
    _conv_dot_steps(attrs, data, weights)
    plain = TensorType(weights.shape[:-1], "int32")
    made = infer_conv(attrs, data.with_dtype("int32"), plain)
    if attrs.one_row and (made.ndim != 4 or not data.is_static):
        raise TypeMismatch(f"{data} is no image of known sizes, whose positions can be one row")
    if not attrs.one_row:
        return made
    return TensorType((*made.shape[:2], prod(made.static_shape[2:])), made.dtype)


def _conv_dot_rules(attrs: ConvDotAttrs, result: Type, x: Type, w: Type) -> Iterator[SizeRule]:
    kernel = tensor_type(w).static_shape[2:-1]
    return whole_rules(conv_axes(attrs, tensor_type(x).shape[2:], kernel))


def _compute_conv_dot(attrs: ConvDotAttrs, x: te.Tensor, w: te.Tensor) -> list[te.Tensor]:
    filters, words, *kernel, steps = TensorType(w.shape, w.dtype).static_shape
    axes = conv_axes(attrs, dims_of(x)[2:], kernel)
    pad = padded(x, axes)
    source = x if pad is None else pad
    ic, step = te.reduce_axis((0, words), "ic"), te.reduce_axis((0, steps), "step")
    window = kernel_axes(kernel)

    image = known(a.out for a in axes) if attrs.one_row else ()
    copies = _copies(source, axes) if attrs.one_row else None

    def word(n: Expr, c: Expr, o: Sequence[Expr]) -> Expr:
        if not attrs.one_row:
            return source[(n, c, *positions(axes, o, window))]
        if copies is None:
            return source[(n, c, *_in_image(o[0], image))]
        high, (down, across) = axes[0], window
        if high.stride > 1:
            return copies[(n, c, down, across, *_in_image(o[0], image))]
        return copies[(n, c, across, *_in_image(o[0] + down * (high.dilation * image[1]), image))]

    def element(n: Expr, oc: Expr, *o: Expr) -> Expr:
        held = word(n, input_channel(oc, ic, filters, attrs.groups, words), o)
        value = cast(held >> cast(step * bits(attrs.data), held.dtype), attrs.data)
        return te.sum(_product(value, w[(oc, ic, *window, step)]), axis=[ic, *window, step])

    sizes = (prod(image),) if attrs.one_row else tuple(a.out for a in axes)
    names = image_axes(len(sizes))
    total = te.compute_one((x.shape[0], filters, *sizes), element, name="conv", axes=names)
    return [s for s in (pad, copies, total) if s is not None]


def copied_words(axes: Sequence[WindowAxis]) -> int:
    """Return how many words of a channel are copied for results in one row; 0: it lies so."""
    high, wide = axes
    if wide.kernel == 1 and high.stride == wide.stride == 1:
        return 0
    height, width = known(a.out for a in axes)
    if high.stride == 1:
        return wide.kernel * (height + high.extent - 1) * width
    return high.kernel * wide.kernel * height * width


def _copies(source: te.Tensor, axes: Sequence[WindowAxis]) -> te.Tensor | None:
    """Return the stage of copies of a padded image; None where it lies as it should.

    [n, c, kw, rows, ow] of the taps of a row; [n, c, kh, kw, oh, ow] where rows are skipped.
    """
    if not copied_words(axes):
        return None
    high, wide = axes
    height, width = known(a.out for a in axes)
    n, c = source.shape[:2]
    if high.stride == 1:
        shape = (n, c, wide.kernel, height + high.extent - 1, width)
        return te.compute_one(
            shape,
            lambda n, c, j, row, q: source[n, c, row, wide.position(q, j)],
            name="copies",
            tag=te.KEPT,
        )
    return te.compute_one(
        (n, c, high.kernel, wide.kernel, height, width),
        lambda n, c, i, j, p, q: source[n, c, high.position(p, i), wide.position(q, j)],
        name="copies",
        tag=te.KEPT,
    )


def _in_image(place: Expr, image: Sequence[int]) -> tuple[Expr, Expr]:
    """Return row and column of a position among all of an image."""
    return te.floordiv(place, image[1]), te.floormod(place, image[1])


def _reference_conv_dot(attrs: ConvDotAttrs, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    parts = np.ascontiguousarray(x)[..., None].view(attrs.data)
    data, weights = (ungrouped(part, 1).astype("int32") for part in (parts, w))
    made = reference_conv(attrs, data, weights)
    return made.reshape(*made.shape[:2], -1) if attrs.one_row else made


def _flops_conv_dot(attrs: ConvDotAttrs, x: Type, w: Type) -> Dim:
    out = _infer_conv_dot(attrs, x, w)
    return 2 * out.elements * prod(tensor_type(w).static_shape[1:])


def _conv_example(
    x: tuple[int, ...], w: tuple[int, ...], types: tuple[str, str], **attrs: object
) -> Example:
    steps = steps_in_word(types[0])
    words = _numbers(types[0], *x, steps).view("uint32").reshape(x)
    inputs = {0: words, 1: _numbers(types[1], *w, steps)}
    given = {"data": types[0], **attrs}
    return Example((x, (*w, steps)), given, ("uint32", types[1]), inputs=inputs)


def _conv_examples() -> Iterator[Example]:
    for types in (_SHORTS, _BYTES):
        same = {"pads_before": (1, 1), "pads_after": (1, 1)}
        yield _conv_example((1, 3, 8, 9), (5, 3, 3, 3), types, **same)
        yield _conv_example((2, 8, 7, 33), (9, 8, 1, 1), types)
        yield _conv_example((1, 2, 20), (3, 2, 5), types, strides=(2,))
        yield _conv_example((1, 2, 5, 6, 7), (3, 2, 3, 2, 3), types, dilations=(1, 2, 1))
        yield _conv_example((2, 4, 6, 9), (6, 2, 3, 3), types, groups=2, **same)
        row = {"one_row": True}
        yield _conv_example((1, 3, 8, 9), (5, 3, 3, 3), types, **same, **row)
        yield _conv_example((2, 4, 7, 7), (6, 2, 3, 2), types, groups=2, dilations=(2, 3), **row)
        yield _conv_example((1, 3, 8, 9), (5, 3, 3, 3), types, strides=(2, 2), **same, **row)
        yield _conv_example((2, 8, 5, 9), (7, 8, 1, 1), types, **row)
        yield _conv_example((1, 3, 5, 9), (7, 3, 1, 1), types, strides=(1, 3), **row)


conv_dot: Operator[ConvDotAttrs] = register(
    Operator(
        name="conv_dot",
        infer=_infer_conv_dot,
        reference=_reference_conv_dot,
        compute=_compute_conv_dot,
        rules=_conv_dot_rules,
        attrs_type=ConvDotAttrs,
        fusion=Fusion.ANCHOR,
        schedule={"cpu": schedule_conv_dot},
        flops=_flops_conv_dot,
        examples=tuple(_conv_examples()),
    )
)
