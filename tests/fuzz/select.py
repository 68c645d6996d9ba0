# SPDX-License-Identifier: Apache-2.0
"""Random nodes whose result sizes depend on values, and nodes that make values from sizes."""

from __future__ import annotations

import numpy as np
from onnx import helper, numpy_helper

from tests.fuzz.builder import ALL, NUMBERS, Builder, Nothing
from treadle import dtype as dt


def compress(b: Builder) -> None:
    x = b.operand(ranks=(1, 2, 3))
    shape = b.value(x).shape
    axis = b.axis(len(shape)) if b.chance(0.7) else None
    size = b.value(x).array.size if axis is None else shape[axis]
    chosen = np.asarray(b.numbers.random(b.random.randint(0, size)) < 0.6)
    b.add("Compress", [x, b.given(chosen)], is_exact=True, axis=axis)


def non_zero(b: Builder) -> None:
    x = b.operand(("float32", "int32", "int64", "bool", "uint8"), is_exact=True, most=300)
    if not b.value(x).array.ndim:
        raise Nothing
    b.add("NonZero", [x], is_exact=True)


def unique(b: Builder) -> None:
    x = b.operand(("float32", "float64", "int64", "int8"), is_exact=True, most=300)
    value = b.value(x)
    axis = b.axis(value.array.ndim) if value.array.ndim and b.chance(0.4) else None
    if not value.array.size:
        raise Nothing
    b.add("Unique", [x], outputs=b.random.choice((1, 4)), is_exact=True, axis=axis,
          sorted=b.random.choice((0, 1, None)))  # fmt: skip


def suppress(b: Builder) -> None:
    """NonMaxSuppression of random boxes whose overlaps are not near the threshold."""
    batch, classes, boxes = (
        b.random.choice((1, 2)),
        b.random.choice((1, 3)),
        b.random.randint(1, 12),
    )
    corners = b.numbers.random((batch, boxes, 2)) * 4
    sizes = b.numbers.random((batch, boxes, 2)) * 2 + 0.5
    rows = np.concatenate([corners, corners + sizes], -1).astype(np.float32)
    scores = b.fresh("float32", (batch, classes, boxes), low=0.0, high=1.0)
    inputs = [b.given(rows), scores, b.integers(b.random.randint(1, boxes))]
    inputs += [b.given(np.array([v], np.float32), is_constant=True) for v in (0.4, 0.2)]
    b.add("NonMaxSuppression", inputs[: b.random.choice((3, 4, 5))], is_exact=True,
          center_point_box=b.random.choice((0, 1, None)))  # fmt: skip


def number_range(b: Builder) -> None:
    """Range by constants, or up to a size that the graph computes."""
    kind = b.random.choice(("int64", "int32", "float32"))
    if kind == "int64" and b.chance(0.5):
        sizes = b.add("Shape", [b.operand(ranks=(1, 2, 3))], is_exact=True)
        zero = b.given(np.array(0), is_constant=True)
        end = b.add("Gather", [sizes, zero], is_exact=True)
        one = b.given(np.array(1), is_constant=True)
        b.add("Range", [zero, end, one], is_exact=True)
        return
    step = b.random.choice((1, 2, -1, 3))
    first = b.random.randint(-3, 3)
    ends = (first, first + step * b.random.randint(0, 9), step)
    array = [np.array(v, b.kind(kind)) for v in ends]
    b.add("Range", [b.given(a, is_constant=b.chance(0.7)) for a in array], is_exact=True)


def sizes(b: Builder) -> None:
    """Size, or a part of Shape, as numbers that are computed with."""
    x = b.operand()
    if b.chance(0.4):
        b.add("Size", [x], is_exact=True)
        return
    part = {}
    if b.opset >= 15 and b.chance(0.6):
        part = {k: b.random.randint(-2, 3) for k in ("start", "end") if b.chance(0.7)}
    y = b.add("Shape", [x], is_exact=True, **part)
    wanted = b.random.choice(("float32", "int32"))
    b.add("Cast", [y], is_exact=True, to=helper.np_dtype_to_tensor_dtype(dt.to_numpy(wanted)))


def eye(b: Builder) -> None:
    x = b.operand(NUMBERS, ranks=(2,))
    b.add("EyeLike", [x], is_exact=True, k=b.random.choice((-1, 0, 2, None)))


def constant(b: Builder) -> None:
    """A weight as a node."""
    array = b.array(b.dtype(ALL), b.shape(), -2.0, 2.0)
    b.add("Constant", [], is_exact=True, value=numpy_helper.from_array(array))


def hardmax(b: Builder) -> None:
    x = b.operand(("float32", "float64", "float16"), ranks=(2, 3), is_exact=True)
    axis = b.axis(b.value(x).array.ndim) if b.chance(0.8) else None
    if not b.value(x).array.size:
        raise Nothing  # which is the largest of none, the oracles do not ask
    b.add("Hardmax", [x], is_exact=True, axis=axis)


def shrink(b: Builder) -> None:
    x = b.operand(("float32", "float64", "int32"), is_exact=True)
    b.add("Shrink", [x], is_exact=True, lambd=0.5, bias=b.random.choice((0.0, 0.25)))


def dropout(b: Builder) -> None:
    x = b.operand(("float32", "float64", "float16"))
    outputs = 2 if b.chance(0.3) else 1
    b.add("Dropout", [x], outputs=outputs, is_exact=True)


def running_product(b: Builder) -> None:
    x = b.operand(("float32", "float64", "int32"))
    axis = b.given(np.array(b.axis(b.value(x).array.ndim), np.int64), is_constant=True)
    is_exact = b.value(x).dtype == "int32"
    ways = {k: b.random.choice((0, 1, None)) for k in ("exclusive", "reverse")}
    b.add("CumProd", [x, axis], is_exact=is_exact, **ways)


def reinterpret(b: Builder) -> None:
    x = b.operand(("float32", "int32", "uint32", "int64", "int8"), is_exact=True)
    same = {"float32": "int32", "int32": "uint32", "uint32": "int32", "int64": "uint64",
            "int8": "uint8"}[b.value(x).dtype]  # fmt: skip
    to = helper.np_dtype_to_tensor_dtype(dt.to_numpy(same))
    b.add("BitCast", [x], is_exact=True, to=to)


def write_rows(b: Builder) -> None:
    """TensorScatter: rows of a cache overwritten from a place of their own per batch."""
    batch, length, width = (
        b.random.choice((1, 2, 3)),
        b.random.randint(2, 9),
        b.random.choice((1, 4)),
    )
    count = b.random.randint(1, length)
    kind = b.dtype(("float32", "float16", "int32"))
    cache = b.fresh(kind, (batch, length, width), is_constant=False)
    rows = b.fresh(kind, (batch, count, width))
    mode = b.random.choice(("linear", "circular"))
    most = length - count if mode == "linear" else length - 1
    places = np.asarray(b.numbers.integers(0, most + 1, batch))
    b.add("TensorScatter", [cache, rows, b.given(places)], is_exact=True, mode=mode, axis=1)
