# SPDX-License-Identifier: Apache-2.0
"""Pooling of regions of interest by bilinear samples (He et al., Mask R-CNN, 2017)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Const, Expr, ExprLike, cast, int_value, load
from treadle.graph.operator import Attrs, Example, Operator, register
from treadle.graph.size_rules import SizeRule, filled
from treadle.graph.types import Dim, TensorType, Type
from treadle.loop.build import assign, declared, loop, nest, put, value_of
from treadle.loop.nodes import Buffer, If, Stmt, seq
from treadle.ops.accumulate import narrowed
from treadle.ops.numeric import (
    FLOATS,
    INTEGERS,
    accumulator,
    check_elements,
    check_same_elements,
    dims_of,
    real_extent,
)
from treadle.te.operations import Tensor


@dataclass(frozen=True, slots=True)
class RoiAlignAttrs(Attrs):
    """`sizes` are the bins per region; each is sampled `sampling` times per axis (0: as needed).

    An index of an image that there is not stands for the nearest one.
    With `half_pixel` coordinates are those of pixel centres; without, regions are at least 1 wide.
    """

    sizes: tuple[int, int]
    spatial_scale: float = 1.0
    sampling: int = 0
    mode: Literal["avg", "max"] = "avg"
    half_pixel: bool = True


def _infer(a: RoiAlignAttrs, x: Type, rois: Type, batch: Type) -> TensorType:
    source, regions = check_elements(x, FLOATS), check_elements(rois, FLOATS, "the regions")
    index = check_elements(batch, INTEGERS, "the batch index")
    check_same_elements(source, regions)
    if source.ndim != 4 or regions.ndim != 2 or int_value(regions.shape[1]) != 4:
        raise TypeMismatch(f"images [n, c, h, w] and regions [count, 4] fit, not {x} and {rois}")
    if index.shape != regions.shape[:1] or a.mode not in ("avg", "max"):
        raise TypeMismatch(f"mode {a.mode!r} with batch indices {batch} of {rois} is not defined")
    return source.with_shape((regions.shape[0], source.shape[1], *a.sizes))


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis of a region: where it starts, the width of a bin, and its number of samples."""

    start: Expr
    bin: Expr
    samples: Expr
    extent: Dim

    def position(self, index: Expr, sample: Expr) -> Expr:
        """Return the coordinate of a sample of bin `index`."""
        wide = self.start.dtype
        part = (cast(sample, wide) + 0.5) * self.bin / cast(self.samples, wide)
        return self.start + cast(index, wide) * self.bin + part

    def is_inside(self, at: Expr) -> Expr:
        """True for a coordinate that is at most one element outside."""
        return (at >= -1.0) & (at <= real_extent(self.extent, at.dtype))

    def neighbours(self, at: Expr) -> tuple[tuple[Expr, Expr], tuple[Expr, Expr]]:
        """Return the elements below and above a coordinate with their weights."""
        inside = te.max(te.min(at, real_extent(self.extent - 1, at.dtype)), 0.0)
        low = cast(te.floor(inside), dt.INDEX)
        share = inside - cast(low, inside.dtype)
        high = te.min(low + 1, self.extent - 1)
        return (low, 1.0 - share), (high, share)


def _axis(
    a: RoiAlignAttrs, rois: Buffer, region: Expr, extent: Dim, column: int, bins: int, wide: str
) -> _Axis:
    offset = 0.5 if a.half_pixel else 0.0
    ends = [
        cast(load(rois, (region, c)), wide) * a.spatial_scale - offset for c in (column, column + 2)
    ]
    size = ends[1] - ends[0]
    if not a.half_pixel:
        size = te.max(size, 1.0)
    part = size / float(bins)
    samples = nodes.convert(a.sampling)
    if a.sampling == 0:
        samples = cast(te.ceil(part), dt.INDEX)
    return _Axis(ends[0], part, samples, extent)


def _compute(a: RoiAlignAttrs, x: Tensor, rois: Tensor, batch: Tensor) -> list[Tensor]:
    wide = accumulator(x.dtype)
    images, _, height, width = dims_of(x)

    def build(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        image, regions, index = ins
        (out,) = outs
        total = Buffer("total", wide, (Const.of(1),), "local")

        def element(r: Expr, c: Expr, i: Expr, j: Expr) -> Stmt:
            rows = _axis(a, regions, r, height, 1, a.sizes[0], wide)
            columns = _axis(a, regions, r, width, 0, a.sizes[1], wide)
            entry = te.max(te.min(cast(load(index, (r,)), dt.INDEX), images - 1), 0)

            def sample(s: Expr, t: Expr) -> Stmt:
                y, x_ = rows.position(i, s), columns.position(j, t)
                values = [
                    cast(load(image, (entry, c, p, q)), wide) * (u * v)
                    for p, u in rows.neighbours(y)
                    for q, v in columns.neighbours(x_)
                ]
                return _noted(a, total, values, rows.is_inside(y) & columns.is_inside(x_))

            start: Expr = Const.of(0.0, wide)
            count = te.max(rows.samples * columns.samples, 1)
            result = value_of(total)
            if a.mode == "max":
                start = te.min_value(wide)
                result = nodes.select(rows.samples * columns.samples > 0, result, 0.0)
            else:
                result = result / cast(count, wide)
            samples = nest([rows.samples, columns.samples], sample, "s")
            body = seq(assign(total, start), samples, put(out, (r, c, i, j), result))
            return declared([total], body)

        def plane(r: Expr) -> Stmt:
            extents: list[ExprLike] = [x.shape[1], *a.sizes]
            return nest(extents, lambda c, i, j: element(r, c, i, j), "o")

        return loop(rois.shape[0], plane, "region", "parallel")

    shape = (rois.shape[0], x.shape[1], *a.sizes)
    made = te.extern(shape, [x, rois, batch], build, "roi_align", wide)
    assert isinstance(made, Tensor)  # one shape gives one tensor
    return narrowed(made, x.dtype, "roi_align.cast")


def _rules(a: RoiAlignAttrs, result: Type, x: Type, rois: Type, batch: Type) -> Iterator[SizeRule]:
    return filled(x, (0, 2, 3), result)


def _noted(a: RoiAlignAttrs, total: Buffer, values: Sequence[Expr], inside: Expr) -> Stmt:
    """Return the step that adds a sample, or keeps the largest of its weighted neighbours."""
    if a.mode == "max":
        best = values[0]
        for v in values[1:]:
            best = te.max(best, v)
        zero = assign(total, te.max(value_of(total), 0.0))
        return If(inside, assign(total, te.max(value_of(total), best)), zero)
    added = value_of(total)
    for v in values:
        added = added + v
    return If(inside, assign(total, added))


def _reference(a: RoiAlignAttrs, x: np.ndarray, rois: np.ndarray, batch: np.ndarray) -> np.ndarray:
    offset = 0.5 if a.half_pixel else 0.0
    out = np.zeros((rois.shape[0], x.shape[1], *a.sizes))
    for r, region in enumerate(rois.astype(np.float64)):
        ends = region * a.spatial_scale - offset
        sizes = np.array([ends[3] - ends[1], ends[2] - ends[0]])
        if not a.half_pixel:
            sizes = np.maximum(sizes, 1)
        parts = sizes / a.sizes
        grid = [a.sampling or max(int(np.ceil(p)), 0) for p in parts]
        image = x[np.clip(int(batch[r]), 0, x.shape[0] - 1)].astype(np.float64)
        for i, j in np.ndindex(*a.sizes):
            bins = zip((ends[1], ends[0]), (i, j), parts, grid, strict=True)
            ys, xs = ([s + (k + (g + 0.5) / n) * p for g in range(n)] for s, k, p, n in bins)
            out[r, :, i, j] = _numpy_bin(a.mode, image, ys, xs)
    return out.astype(x.dtype)


def _numpy_bin(
    mode: str, image: np.ndarray, ys: Sequence[float], xs: Sequence[float]
) -> np.ndarray:
    samples = [_numpy_sample(image, y, x) for y in ys for x in xs]
    if not samples:
        return np.zeros(image.shape[0])
    if mode == "max":
        return np.asarray(np.max([s.max(0) for s in samples], axis=0))
    return np.asarray(np.sum([s.sum(0) for s in samples], axis=0) / len(samples))


def _numpy_sample(image: np.ndarray, y: float, x: float) -> np.ndarray:
    """Return the four neighbours of a point, weighted: [4, channels]."""
    height, width = image.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return np.zeros((4, image.shape[0]))
    found = []
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    for p, u in ((int(y), 1 - y % 1), (min(int(y) + 1, height - 1), y % 1)):
        for q, v in ((int(x), 1 - x % 1), (min(int(x) + 1, width - 1), x % 1)):
            found.append(image[:, p, q] * (u * v))
    return np.array(found)


def _examples() -> tuple[Example, ...]:
    rois = np.array([[0, 0, 6, 5], [2.5, 1, 3, 9], [-3, -2, 20, 4], [4, 3, 4, 3]], np.float32)
    batch = np.array([0, 1, 1, 0], np.int64)
    shapes = ((2, 3, 7, 8), (4, 4), (4,))
    dtypes = ("float32", "float32", "int64")
    variety: tuple[dict[str, object], ...] = (
        {"sizes": (3, 2), "sampling": 2},
        {"sizes": (2, 2)},
        {"sizes": (2, 3), "half_pixel": False, "spatial_scale": 0.5},
        {"sizes": (2, 3), "sampling": 2, "mode": "max"},
        {"sizes": (1, 1), "mode": "max", "half_pixel": False},
    )
    return tuple(
        Example(shapes, attrs, dtypes, inputs={1: rois, 2: batch}, atol=1e-5) for attrs in variety
    )


roi_align: Operator[RoiAlignAttrs] = register(
    Operator(
        name="roi_align",
        infer=_infer,
        reference=_reference,
        compute=_compute,
        rules=_rules,
        attrs_type=RoiAlignAttrs,
        examples=_examples(),
    )
)
"""Images [n, c, h, w], regions [count, 4] as x1, y1, x2, y2, and the image of each region."""
