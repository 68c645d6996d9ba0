# SPDX-License-Identifier: Apache-2.0
"""Calls of `conv2d_winograd_nchwc` by which its reference, its code and its schedule are tested."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from treadle.graph.operator import Example
from treadle.ops.accumulate import product_example
from treadle.ops.example_numbers import uniform


def without_odd_ends(shape: tuple[int, ...]) -> np.ndarray:
    """Return random weights for a stride of 2: odd images have none at infinity."""
    u = uniform(shape, -2, 2).astype(np.float32)
    of = shape[3] // 4
    u[:, -1, :, 2 * of :] = 0
    for left in (of, 3 * of):
        u[:, :, -1, left : left + of] = 0
    return u


def _without_last(unused: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return random weights, zeros for the last input channels."""
    u = uniform(shape, -2, 2).astype(np.float32)
    u[:, :, :, -1, shape[4] - unused :] = 0
    return u


def _strided_example(data: tuple[int, ...], weights: tuple[int, ...], **attrs: object) -> Example:
    inputs = {1: without_odd_ends(weights)}
    return product_example((data, weights), {"stride": 2, **attrs}, inputs=inputs)


def _signals() -> Iterator[Example]:
    """Yield signals of three and of five taps."""
    signal = {"height": 1, "kernel": (1, 3)}
    for shapes, attrs in (
        (((1, 2, 14, 4), (3, 1, 6, 2, 4, 8)), {"tile": 4, "width": 10, **signal}),
        (((1, 2, 13, 4), (2, 1, 8, 2, 4, 8)), {"tile": 6, "width": 11, "before": (0, 1), **signal}),
        (((1, 4, 10, 4), (6, 1, 6, 2, 4, 8)), {"tile": 4, "width": 8, "groups": 2, **signal}),
        (
            ((2, 1, 30, 4), (2, 1, 6, 1, 4, 4)),
            {"tile": 4, "width": 23, "dilations": (1, 3), **signal},
        ),
        (
            ((1, 2, 12, 4), (2, 1, 8, 2, 4, 8)),
            {"tile": 4, "width": 8, "height": 1, "kernel": (1, 5)},
        ),
        (
            ((1, 2, 10, 4), (3, 2, 4, 1, 3, 8)),
            {"tile": 4, "width": 8, "plain_weights": True, **signal},
        ),
    ):
        yield product_example(shapes, attrs)


def _windows() -> Iterator[Example]:
    """Yield windows of one row or one column, along the depth, and of two and of five taps."""
    row, column = {"kernel": (1, 3)}, {"kernel": (3, 1)}
    for shapes, attrs in (
        (((1, 1, 6, 3, 4), (2, 6, 1, 1, 4, 4)), {"tile": 4, "height": 4, "width": 3, **column}),
        (
            ((1, 1, 9, 3, 4), (2, 1, 4, 5, 1, 4)),
            {
                "tile": 4,
                "height": 5,
                "width": 3,
                "kernel": (5, 1),
                "plain_weights": True,
                "before": (1, 0),
            },
        ),
        (((1, 1, 3, 6, 4), (2, 1, 6, 1, 4, 4)), {"tile": 4, "height": 3, "width": 4, **row}),
        (
            ((1, 2, 5, 9, 4), (3, 5, 5, 2, 4, 8)),
            {"tile": 4, "height": 3, "width": 8, "kernel": (2, 2), "before": (0, 0)},
        ),
        (
            ((1, 2, 5, 9, 4), (3, 2, 4, 2, 2, 8)),
            {"tile": 4, "height": 4, "width": 8, "kernel": (2, 2), "plain_weights": True},
        ),
        (
            ((1, 2, 8, 10, 4), (3, 6, 6, 2, 4, 8)),
            {"tile": 2, "height": 3, "width": 6, "kernel": (5, 5)},
        ),
        (((1, 1, 2, 6, 3, 4), (2, 4, 1, 2, 4, 4)), {"tile": 2, "height": 4, "width": 3, **column}),
        (
            ((1, 2, 6, 3, 5, 4), (2, 6, 1, 2, 4, 4)),
            {"tile": 4, "height": 4, "width": 15, "along_depth": True, **column},
        ),
        (
            ((2, 1, 5, 4, 3, 4), (2, 1, 4, 3, 1, 4)),
            {
                "tile": 2,
                "height": 5,
                "width": 12,
                "along_depth": True,
                "before": (1, 0),
                "plain_weights": True,
                **column,
            },
        ),
    ):
        yield product_example(shapes, attrs)


def _strided_windows() -> Iterator[Example]:
    """Yield signals, an image and a volume with a stride of 2; of some a run transforms weights."""
    u = uniform((2, 1, 5, 4, 4, 8), -2, 2).astype(np.float32)
    u[:, :, -1, 2:] = 0
    attrs = {"tile": 4, "width": 7, "stride": 2, "height": 1, "kernel": (1, 3)}
    yield product_example(((1, 2, 18, 4), u.shape), attrs, inputs={1: u})
    plain = {**attrs, "plain_weights": True}
    yield product_example(((1, 2, 18, 4), (2, 2, 4, 1, 3, 8)), plain)
    plain = {"tile": 3, "height": 4, "width": 5, "stride": 2, "plain_weights": True}
    yield product_example(((1, 2, 14, 14, 4), (2, 2, 4, 3, 3, 8)), plain)
    deep = {**plain, "tile": 2, "height": 3, "width": 4, "deep_stride": 2}
    yield product_example(((1, 2, 5, 10, 10, 4), (2, 6, 4, 3, 3, 8)), deep)
    attrs = {"tile": 2, "width": 4, "height": 1, "stride": 2, "kernel": (1, 4)}
    yield product_example(((1, 2, 10, 4), (2, 1, 3, 4, 4, 8)), attrs)


EXAMPLES: tuple[Example, ...] = (
    product_example(((1, 2, 6, 10, 4), (3, 6, 6, 2, 4, 8)), {"tile": 4, "height": 4, "width": 8}),
    product_example(((2, 1, 10, 6, 4), (1, 6, 6, 1, 4, 4)), {"tile": 4, "height": 7, "width": 1}),
    product_example(((1, 2, 8, 6, 8), (2, 4, 4, 2, 8, 4)), {"tile": 2, "height": 5, "width": 4}),
    product_example(
        ((2, 2, 5, 6, 10, 4), (3, 6, 6, 6, 4, 8)), {"tile": 4, "height": 4, "width": 7}
    ),
    product_example(
        ((1, 1, 6, 6, 4, 8), (2, 4, 4, 2, 8, 4)),
        {"tile": 2, "height": 3, "width": 2, "deep_stride": 2, "deep_dilation": 2},
    ),
    product_example(
        ((1, 2, 20, 30, 4), (2, 6, 6, 2, 4, 8)),
        {"tile": 4, "height": 11, "width": 24, "dilations": (2, 3)},
    ),
    product_example(
        ((2, 1, 12, 4, 4), (1, 4, 4, 1, 4, 4)),
        {"tile": 2, "height": 2, "width": 2, "dilations": (3, 1)},
    ),
    product_example(((1, 2, 8, 11, 4), (3, 5, 5, 2, 4, 8)), {"tile": 3, "height": 5, "width": 9}),
    product_example(
        ((1, 2, 11, 9, 4), (3, 6, 6, 2, 4, 8)),
        {"tile": 4, "height": 11, "width": 9, "before": (1, 1)},
    ),
    product_example(
        ((1, 1, 4, 7, 4), (2, 6, 6, 1, 4, 4)),
        {"tile": 4, "height": 4, "width": 8, "dilations": (1, 2), "before": (0, 3)},
    ),
    product_example(
        ((1, 2, 6, 10, 8), (2, 6, 6, 2, 8, 4)),
        {"tile": 4, "height": 4, "width": 6, "unused": 6},
        inputs={1: _without_last(6, (2, 6, 6, 2, 8, 4))},
    ),
    _strided_example((1, 2, 10, 18, 4), (3, 5, 5, 8, 4, 8), tile=4, height=4, width=7),
    _strided_example((2, 1, 10, 6, 4), (2, 3, 3, 4, 4, 4), tile=2, height=3, width=2),
    product_example(
        ((1, 4, 6, 10, 4), (6, 6, 6, 2, 4, 8)),
        {"tile": 4, "height": 4, "width": 8, "groups": 2},
    ),
    _strided_example((1, 3, 10, 6, 4), (3, 3, 3, 4, 4, 8), tile=2, height=3, width=2, groups=3),
    product_example(
        ((1, 2, 6, 10, 4), (3, 2, 4, 3, 3, 8)),
        {"tile": 4, "height": 4, "width": 8, "plain_weights": True},
    ),
    product_example(
        ((1, 2, 8, 11, 4), (3, 2, 4, 3, 3, 8)),
        {"tile": 3, "height": 5, "width": 9, "plain_weights": True},
    ),
    product_example(
        ((1, 1, 6, 6, 4, 8), (2, 2, 8, 3, 3, 4)),
        {
            "tile": 2,
            "height": 3,
            "width": 2,
            "deep_stride": 2,
            "deep_dilation": 2,
            "plain_weights": True,
        },
    ),
    product_example(
        ((1, 4, 6, 10, 4), (6, 2, 4, 3, 3, 8)),
        {"tile": 4, "height": 4, "width": 8, "groups": 2, "plain_weights": True},
    ),
    *_signals(),
    *_windows(),
    *_strided_windows(),
)
