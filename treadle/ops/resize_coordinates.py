# SPDX-License-Identifier: Apache-2.0
"""Where the elements of a resized tensor lie on the input, and what weights their sums have.

The same formulas run on arrays, for the reference, and on expressions. Coordinates are float32 in
the order of operations that onnxruntime uses, so that ties fall alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Generic, Literal, TypeVar

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr, cast, maximum, minimum, select
from treadle.graph.operator import Attrs
from treadle.graph.types import Dim, normal_size, same_dim
from treadle.limits import SCALE_DENOMINATOR

Mode = Literal["nearest", "linear", "cubic"]
CoordinateMode = Literal[
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
]
NearestMode = Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple"]


@dataclass(frozen=True, slots=True)
class ResizeAttrs(Attrs):
    """The meaning of every field is that of ONNX Resize.

    `sizes` are all output extents, which may be symbolic; -1 keeps a dimension. `scales` map
    coordinates where given (one per dimension), else output extent / input extent does. `roi` are
    all starts, then all ends, for "tf_crop_and_resize". Nearest mode "simple" is "ceil" where an
    axis shrinks, else "floor". Interpolated integers are rounded where antialiased, else truncated.
    """

    sizes: tuple[Dim, ...]
    scales: tuple[float, ...] = ()
    mode: Mode = "nearest"
    coordinate_transformation_mode: CoordinateMode = "half_pixel"
    nearest_mode: NearestMode = "round_prefer_floor"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    extrapolation_value: float = 0.0
    antialias: bool = False
    roi: tuple[float, ...] = ()

    def changed(self, shape: Sequence[Dim]) -> tuple[int, ...]:
        """Return the dimensions of data of this shape that are resized."""
        return tuple(axis.dimension for axis in axes_of(self, shape))

    def in_blocks(self) -> ResizeAttrs:
        """Return the same of [n, c/block, *spatial, block] where n and c are not resized."""
        count = len(self.sizes)
        return replace(
            self,
            sizes=(-1, -1, *self.sizes[2:], -1),
            scales=(*self.scales, 1.0) if self.scales else (),
            roi=(*self.roi[:count], 0.0, *self.roi[count:], 1.0) if self.roi else (),
        )


V = TypeVar("V", np.ndarray, Expr)


@dataclass(frozen=True, slots=True)
class Functions(Generic[V]):
    """The functions that coordinates need, on arrays or on expressions."""

    floor: Callable[[V], V]
    ceil: Callable[[V], V]
    absolute: Callable[[V], V]
    minimum: Callable[[V, float], V]
    maximum: Callable[[V, float], V]
    where: Callable[[V, V, V], V]
    integer: Callable[[V], V]


ARRAYS: Functions[np.ndarray] = Functions(
    np.floor, np.ceil, np.abs, np.minimum, np.maximum, np.where, lambda x: x.astype(np.int64)
)
EXPRS: Functions[Expr] = Functions(
    te.floor, te.ceil, te.abs, te.min, te.max, select, lambda x: cast(x, dt.INDEX)
)


@dataclass(frozen=True, slots=True)
class ResizedAxis:
    """One axis that is resized: its dimension, extents, scale, and the part of it that is shown.

    `factor` is the scale where it is known when the model is compiled.
    """

    dimension: int
    size: Dim
    out: Dim
    factor: float | None
    start: float
    end: float

    @property
    def scale(self) -> float:
        """What an output coordinate is divided by; an expression where extents are symbolic."""
        if self.factor is not None:
            return self.factor
        return _single(self.out) / _single(_at_least_one(self.size))

    @property
    def last(self) -> float:
        """The last input index; an expression where the extent is symbolic."""
        return _single(self.size - 1)

    @property
    def known(self) -> tuple[int, int]:
        """The extents as ints. Raises TypeMismatch where one of them is symbolic."""
        if not isinstance(self.size, int) or not isinstance(self.out, int):
            raise TypeMismatch(
                f"dimension {self.dimension} must be known to be resized in this mode, not "
                f"{self.size} to {self.out}",
                hint="give the sizes with --input-shapes",
            )
        return self.size, self.out


def _single(value: Dim) -> float:
    """Return a float, or a float32 expression: both calculate with arrays and expressions."""
    if isinstance(value, Expr):
        return cast(value, "float32")  # type: ignore[return-value]
    return float(value)


def scaled_extent(size: Dim, scale: float) -> Dim | None:
    """Return the extent that `scale` makes of `size`: the floor of their product in float32.

    None where that takes arithmetic that sizes do not have: a symbolic size by a scale such as 0.7.
    """
    if isinstance(size, int):
        return int(np.float32(size) * np.float32(scale))
    above, below = float(np.float32(scale)).as_integer_ratio()
    if below > SCALE_DENOMINATOR:
        return None
    return normal_size(size * above // below if below > 1 else size * above)


def axes_of(attrs: ResizeAttrs, shape: Sequence[Dim]) -> list[ResizedAxis]:
    """Return the axes that change.

    Raises:
        TypeMismatch: an axis that changes is empty, or symbolic in a mode that has to know it.
    """
    found: list[ResizedAxis] = []
    n = len(shape)
    crops = attrs.coordinate_transformation_mode == "tf_crop_and_resize"
    for k, (size, out) in enumerate(zip(shape, attrs.sizes, strict=True)):
        start, end = (attrs.roi[k], attrs.roi[n + k]) if crops else (0.0, 1.0)
        given = attrs.scales[k] if attrs.scales else None
        target = size if same_dim(out, -1) else out
        if same_dim(target, size) and given in (None, 1.0) and (start, end) == (0.0, 1.0):
            continue
        if same_dim(size, 0) and not same_dim(target, 0):
            raise TypeMismatch(f"dimension {k} is empty and cannot be resized to {target}")
        axis = ResizedAxis(k, size, target, given or _ratio(size, target), start, end)
        if crops or (attrs.antialias and axis.factor is None):
            axis.known  # noqa: B018
        found.append(axis)
    return found


def _ratio(size: Dim, out: Dim) -> float | None:
    if not isinstance(size, int) or not isinstance(out, int):
        return None
    return float(np.float32(out) / np.float32(max(size, 1)))


def _coordinate(attrs: ResizeAttrs, axis: ResizedAxis, o: V) -> V:
    """Return where output index `o` (float32) lies on the input axis."""
    mode = attrs.coordinate_transformation_mode
    scale = axis.scale
    if mode == "asymmetric":
        return o / scale
    if mode == "tf_half_pixel_for_nn":
        return (o + 0.5) / scale
    if mode == "align_corners":
        return o * axis.last / _single(_at_least_one(axis.out - 1))
    if mode == "tf_crop_and_resize":
        return _cropped(axis, o)
    half_pixel = (o + 0.5) / scale
    if mode == "half_pixel_symmetric":
        return half_pixel + _centre_shift(axis) - 0.5
    if mode == "pytorch_half_pixel":
        return (half_pixel - 0.5) * _single(_at_most_one(axis.out - 1))
    return half_pixel - 0.5


def _at_least_one(value: Dim) -> Dim:
    return maximum(value, 1) if isinstance(value, Expr) else max(value, 1)


def _at_most_one(value: Dim) -> Dim:
    return minimum(value, 1) if isinstance(value, Expr) else min(value, 1)


def _cropped(axis: ResizedAxis, o: V) -> V:
    size, out = axis.known
    if out == 1:
        return o * 0.0 + 0.5 * (axis.start + axis.end) * (size - 1)
    step = o * (axis.end - axis.start) * float(size - 1) / float(out - 1)
    return step + axis.start * (size - 1)


def _centre_shift(axis: ResizedAxis) -> float:
    """Return how far "half_pixel_symmetric" moves so that both images have one centre."""
    if axis.factor is None:
        return 0.0
    if isinstance(axis.size, int) and isinstance(axis.out, int):
        filled = np.float32(axis.out) / (np.float32(axis.factor) * np.float32(axis.size))
        return float(np.float32(axis.size / 2) * (np.float32(1) - filled))
    part = _single(axis.out) / (_single(_at_least_one(axis.size)) * axis.factor)
    return _single(axis.size) / 2.0 * (1.0 - part)


_TIE = 1e-6
"""How far from a half a coordinate may lie and still be halfway: it went through float32."""


def nearest_index(attrs: ResizeAttrs, axis: ResizedAxis, math: Functions[V], o: V) -> V:
    """Return the input index (int64) that output index `o` (float32) shows."""
    x = _coordinate(attrs, axis, o)
    mode = attrs.nearest_mode
    below = math.floor(x)
    if mode == "simple" and axis.factor is None:
        index = math.where(o * 0.0 + axis.scale < 1.0, math.ceil(x), below)
    elif mode == "floor" or (mode == "simple" and axis.scale >= 1):
        index = below
    elif mode in ("ceil", "simple"):
        index = math.ceil(x)
    else:
        rest = x - below
        goes_up = rest > 0.5 + _TIE if mode == "round_prefer_floor" else rest >= 0.5 - _TIE
        index = math.where(goes_up, below + 1.0, below)
    return math.integer(math.minimum(math.maximum(index, 0.0), axis.last))


def _stretch(attrs: ResizeAttrs, axis: ResizedAxis) -> float:
    """Return how much wider than usual the filter is: it covers what one output stands for."""
    return max(1.0, 1.0 / float(axis.scale)) if attrs.antialias else 1.0


def filter_length(attrs: ResizeAttrs, axis: ResizedAxis) -> int:
    """Return how many input elements an output may be a weighted sum of, along an axis."""
    reach = (2 if attrs.mode == "cubic" else 1) * _stretch(attrs, axis)
    return ceil(2 * reach)


def filter_term(
    attrs: ResizeAttrs, axis: ResizedAxis, math: Functions[V], o: V, t: V
) -> tuple[V, V]:
    """Return the index (float32, maybe outside) and weight of input `t` of those of output `o`."""
    x = _coordinate(attrs, axis, o)
    stretch = _stretch(attrs, axis)
    reach = (2 if attrs.mode == "cubic" else 1) * stretch
    index = math.floor(x - reach) + 1.0 + t
    distance = math.absolute(index - x) / stretch
    if attrs.mode == "linear":
        weight = math.maximum(1.0 - distance, 0.0)
    else:
        weight = _cubic(attrs.cubic_coeff_a, math, distance)
    if attrs.exclude_outside:
        inside = (index >= 0.0) & (index <= axis.last)
        weight = math.where(inside, weight, weight * 0.0)
    return index, weight


def _cubic(a: float, math: Functions[V], d: V) -> V:
    """Return the cubic convolution kernel with parameter `a` at distance `d` >= 0."""
    near = ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
    far = ((d - 5.0) * d + 8.0) * d * a - 4.0 * a
    return math.where(d <= 1.0, near, math.where(d < 2.0, far, d * 0.0))


def within(axis: ResizedAxis, math: Functions[V], index: V) -> V:
    """Return an index (float32) as int64, moved inside of the axis."""
    return math.integer(math.minimum(math.maximum(index, 0.0), axis.last))


def is_normalised(attrs: ResizeAttrs) -> bool:
    """True when weights must be divided by their sum."""
    return attrs.antialias or attrs.exclude_outside


def shows_outside(attrs: ResizeAttrs, axis: ResizedAxis, o: V) -> V:
    """True where output index `o` (float32) lies outside of the input axis."""
    x = _coordinate(attrs, axis, o)
    return (x < 0.0) | (x > axis.last)
