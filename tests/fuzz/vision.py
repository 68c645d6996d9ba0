# SPDX-License-Identifier: Apache-2.0
"""Random nodes of detectors and of older image networks."""

from __future__ import annotations

import numpy as np

from tests.fuzz.builder import Builder, Nothing
from tests.fuzz.heavy import image


def roi_align(b: Builder) -> None:
    x = image(b, ("float32",), ranks=(4,))
    batch, _, height, width = b.value(x).shape
    if min(b.value(x).shape) < 1:
        raise Nothing
    count = b.random.randint(1, 4)
    low = b.numbers.random((count, 2)) * (width / 2, height / 2)
    size = b.numbers.random((count, 2)) * (width / 2, height / 2) + 1
    rows = b.given(np.concatenate([low, low + size], -1).astype(np.float32))
    places = b.given(np.asarray(b.numbers.integers(0, batch, count)))
    form = b.random.choice(("half_pixel", "output_half_pixel")) if b.opset >= 16 else None
    b.add(
        "RoiAlign", [x, rows, places], mode=b.random.choice(("avg", "max")),
        output_height=b.random.choice((1, 3)), output_width=b.random.choice((2, 4)),
        sampling_ratio=b.random.choice((0, 1, 2)), spatial_scale=b.random.choice((1.0, 0.5)),
        coordinate_transformation_mode=form,
    )  # fmt: skip


def deformable(b: Builder) -> None:
    batch, channels = b.random.choice((1, 2)), b.random.choice((1, 2, 3))
    height, width = b.random.randint(3, 5), b.random.randint(3, 5)  # onnx.reference is slow at it
    x = b.fresh("float32", (batch, channels, height, width), is_constant=False)
    filters = b.random.choice((1, 2, 4))
    w = b.fresh("float32", (filters, channels, 3, 3), low=-0.3, high=0.3, is_constant=True)
    offsets = b.fresh("float32", (batch, 18, height, width), low=-1.5, high=1.5)
    inputs = [x, w, offsets]
    if b.chance(0.5):
        inputs.append(b.fresh("float32", (filters,)) if b.chance(0.6) else "")
        inputs.append(b.fresh("float32", (batch, 9, height, width), low=0, high=1))
    b.add("DeformConv", inputs, pads=[1, 1, 1, 1])


def affine_grid(b: Builder) -> None:
    batch = b.random.choice((2, 3))  # the standard's own definition loses a batch of one
    theta = b.fresh("float32", (batch, 2, 3), low=-1.0, high=1.0)
    sizes = b.integers(batch, 1, b.random.randint(1, 6), b.random.randint(2, 6))
    b.add("AffineGrid", [theta, sizes], align_corners=b.random.choice((0, 1)))


def center_crop(b: Builder) -> None:
    x = b.operand(ranks=(2, 3, 4), most=800)
    shape = b.value(x).shape
    axes = b.axes(len(shape))
    sizes = [b.random.randint(1, shape[a] + 3) for a in axes]
    b.add("CenterCropPad", [x, b.integers(*sizes)], is_exact=True, axes=axes)


def columns_to_image(b: Builder) -> None:
    channels, kernel = b.random.choice((1, 3)), [b.random.choice((1, 2, 3)) for _ in range(2)]
    sizes = [k + b.random.randint(0, 4) for k in kernel]
    strides = [b.random.choice((1, 2)) for _ in kernel]
    pads = [b.random.choice((0, 1)) for _ in range(4)]
    count = 1
    for k in range(2):
        count *= (sizes[k] + pads[k] + pads[k + 2] - kernel[k]) // strides[k] + 1
    x = b.fresh("float32", (1, channels * kernel[0] * kernel[1], count), is_constant=False)
    b.add("Col2Im", [x, b.integers(*sizes), b.integers(*kernel)], pads=pads, strides=strides)


def unpool(b: Builder) -> None:
    """MaxPool with its indices, then MaxUnpool."""
    x = image(b, ("float32",), ranks=(4,))
    if not b.value(x).is_exact or min(b.value(x).shape[2:]) < 2:
        raise Nothing
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    y = b.add("MaxPool", [x], outputs=2, is_exact=True, **window)
    b.add("MaxUnpool", [y, f"{y}_1"], is_exact=True, **window)


def upsample(b: Builder) -> None:
    """Upsample where it is an operator, its successor's first form where that is."""
    x = image(b, ("float32",), ranks=(4,))
    if b.value(x).array.size > 1500:
        raise Nothing
    scales = [1.0, 1.0, *(b.random.choice((1.0, 2.0, 3.0)) for _ in range(2))]
    mode = b.random.choice(("nearest", "linear"))
    if b.opset < 9:
        b.add("Upsample", [x], scales=scales, mode=mode)
        return
    given = b.given(np.array(scales, np.float32), is_constant=True)
    b.add("Upsample" if b.opset < 10 else "Resize", [x, given], mode=mode)


def determinant(b: Builder) -> None:
    size = b.random.choice((1, 2, 3, 5))
    b.add("Det", [b.fresh("float32", (*b.shape(b.random.choice((0, 1, 2)), 20), size, size))])


def spectrum(b: Builder) -> None:
    """A discrete Fourier transform of a signal."""
    length = b.random.choice((1, 2, 5, 8, 12))
    x = b.fresh("float32", (b.random.choice((1, 2)), length, 1), is_constant=False)
    if b.opset >= 20:
        axis = [b.integer(1)]
        b.add("DFT", [x, "", *axis], onesided=b.random.choice((0, 1)))
    else:
        b.add("DFT", [x], axis=1, onesided=b.random.choice((0, 1)))
