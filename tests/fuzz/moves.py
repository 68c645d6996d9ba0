# SPDX-License-Identifier: Apache-2.0
"""Random nodes that move elements: shapes, slices, joins, gathers, scatters, pads."""

from __future__ import annotations

from math import prod

import numpy as np
from onnx import helper

from tests.fuzz.builder import FLOATS, NUMBERS, Builder, Nothing
from treadle import dtype as dt


def reshape(b: Builder) -> None:
    x = b.operand()
    shape = b.value(x).shape
    sizes = _factors(b, prod(shape))
    if sizes and 0 not in sizes:
        if b.chance(0.4):
            sizes[b.random.randrange(len(sizes))] = -1
        for k, size in enumerate(sizes):
            if k < len(shape) and size == shape[k] and b.chance(0.3):
                sizes[k] = 0
    zero = 1 if 0 in sizes and 0 in shape and b.opset >= 14 else None
    b.add("Reshape", [x, b.integers(*sizes)], is_exact=True, allowzero=zero)


def _factors(b: Builder, size: int) -> list[int]:
    """Return sizes with the given product."""
    if size == 0:
        return [0, b.random.choice((1, 3))]
    sizes = []
    for _ in range(b.random.randint(0, 4)):
        divisors = [d for d in range(1, size + 1) if size % d == 0 and d <= 40]
        sizes.append(b.random.choice(divisors))
        size //= sizes[-1]
    if size > 1:
        sizes.insert(b.random.randint(0, len(sizes)), size)
    return sizes


def computed_reshape(b: Builder) -> None:
    """Reshape by sizes that the graph computes from a shape, as exporters write it."""
    x = b.operand(ranks=(2, 3, 4))
    value = b.value(x)
    sizes = b.add("Shape", [x], is_exact=True)
    first = b.add("Gather", [sizes, b.given(np.array([0]), is_constant=True)], is_exact=True)
    rest = b.integers(-1) if value.array.size else b.integers(prod(value.shape[1:]))
    wanted = b.add("Concat", [first, rest], is_exact=True, axis=0)
    b.add("Reshape", [x, wanted], is_exact=True)


def flatten(b: Builder) -> None:
    x = b.operand()
    b.add("Flatten", [x], is_exact=True, axis=b.random.randint(0, b.value(x).array.ndim))


def squeeze(b: Builder) -> None:
    x = b.operand()
    ones = [k for k, d in enumerate(b.value(x).shape) if d == 1]
    if not ones:
        raise Nothing
    chosen = b.random.sample(ones, b.random.randint(1, len(ones)))
    more, given = b.axes_of("Squeeze", chosen if b.chance(0.8) else None)
    b.add("Squeeze", [x, *more], is_exact=True, **given)


def unsqueeze(b: Builder) -> None:
    x = b.operand(ranks=(0, 1, 2, 3))
    rank = b.value(x).array.ndim + b.random.randint(1, 2)
    axes = b.random.sample(range(rank), rank - b.value(x).array.ndim)
    axes = [a - rank if b.chance(0.3) else a for a in axes]
    more, given = b.axes_of("Unsqueeze", axes)
    b.add("Unsqueeze", [x, *more], is_exact=True, **given)


def transpose(b: Builder) -> None:
    x = b.operand()
    order = list(range(b.value(x).array.ndim))
    b.random.shuffle(order)
    b.add("Transpose", [x], is_exact=True, perm=order if order and b.chance(0.9) else None)


def expand(b: Builder) -> None:
    x = b.operand(most=300)
    sizes = [b.random.choice((2, 3, 5)) if d == 1 and b.chance(0.6) else d
             for d in b.value(x).shape]  # fmt: skip
    if b.chance(0.3):
        sizes.insert(0, b.random.choice((1, 2, 3)))
    b.add("Expand", [x, b.sizes(*sizes)], is_exact=True)


def tile(b: Builder) -> None:
    x = b.operand(most=300)
    counts = [b.random.choice((1, 1, 2, 3)) for _ in b.value(x).shape]
    b.add("Tile", [x, b.sizes(*counts)], is_exact=True)


def cut(b: Builder) -> None:
    """Slice, with steps of both signs and ends out of range."""
    x = b.operand()
    shape = b.value(x).shape
    axes = b.axes(len(shape))
    starts, ends, steps = [], [], []
    for axis in axes:
        size = shape[axis]
        step = b.random.choice((1, 1, 1, 2, 3, -1, -2)) if b.opset >= 10 else 1
        low, high = b.random.randint(0, max(0, size - 1)), size + b.random.choice((0, 0, 5))
        high = b.random.randint(low + 1, max(low + 1, size)) if b.chance(0.5) else high
        start, end = (low, high) if step > 0 else (min(high, size) - 1, low - 1)
        if step < 0 and end < 0:
            end = -(2**31)
        if step > 0 and b.chance(0.3) and size and high <= size:
            start, end = start - size, (end - size) or 2**31
        starts.append(start), ends.append(end), steps.append(step)
    if b.opset < 10:
        b.add("Slice", [x], is_exact=True, starts=starts, ends=ends, axes=axes)
        return
    inputs = [x, b.sizes(*starts), b.sizes(*ends), b.integers(*axes)]
    if any(s != 1 for s in steps) or b.chance(0.5):
        inputs.append(b.integers(*steps))
    b.add("Slice", inputs, is_exact=True)


def split(b: Builder) -> None:
    x = b.operand()
    shape = b.value(x).shape
    axis = b.axis(len(shape))
    size = shape[axis]
    if size < 2:
        raise Nothing
    if b.chance(0.3) and (size % 2 == 0 or b.opset >= 18):
        count = {"num_outputs": 2} if b.opset >= 18 else {}
        b.add("Split", [x], outputs=2, is_exact=True, axis=axis, **count)
        return
    cuts = sorted(b.random.sample(range(1, size), min(size - 1, b.random.randint(1, 3))))
    parts = np.diff([0, *cuts, size]).tolist()
    if b.opset < 13:
        b.add("Split", [x], outputs=len(parts), is_exact=True, axis=axis, split=parts)
        return
    b.add("Split", [x, b.sizes(*parts)], outputs=len(parts), is_exact=True, axis=axis)


def concat(b: Builder) -> None:
    x = b.operand(ranks=(1, 2, 3, 4, 5), most=1500)
    value = b.value(x)
    axis = b.axis(value.array.ndim)
    parts = [x]
    for _ in range(b.random.randint(0, 3)):
        parts.append(_beside(b, x, axis))
    b.random.shuffle(parts)
    b.add("Concat", parts, is_exact=True, axis=axis)


def _beside(b: Builder, x: str, axis: int) -> str:
    """Return an operand that can be joined with `x` along an axis."""
    value = b.value(x)
    place = axis % value.array.ndim
    rest = value.shape[:place] + value.shape[place + 1 :]
    fitting = [
        n
        for n, v in b.values.items()
        if v.dtype == value.dtype
        and v.array.ndim == value.array.ndim
        and v.shape[:place] + v.shape[place + 1 :] == rest
        and v.array.size < 1500
    ]
    if b.chance(0.7):
        return b.random.choice(fitting)
    shape = list(value.shape)
    shape[place] = b.random.choice((1, 2, 3))
    return b.fresh(value.dtype, tuple(shape))


def gather(b: Builder) -> None:
    x = b.operand(most=1000)
    shape = b.value(x).shape
    axis = b.axis(len(shape))
    if not shape[axis]:
        raise Nothing
    wanted = b.shape(b.random.choice((0, 1, 1, 2)), 12)
    kind = b.random.choice((np.int64, np.int32))
    places = np.asarray(b.numbers.integers(-shape[axis], shape[axis], wanted), kind)
    b.add("Gather", [x, b.given(places)], is_exact=True, axis=axis)


def gather_elements(b: Builder) -> None:
    x = b.operand(ranks=(1, 2, 3, 4))
    shape = list(b.value(x).shape)
    axis = b.axis(len(shape))
    if not shape[axis]:
        raise Nothing
    places = list(shape)
    places[axis] = b.random.choice((1, 2, 3))
    indices = b.numbers.integers(-shape[axis], shape[axis], places)
    b.add("GatherElements", [x, b.given(indices)], is_exact=True, axis=axis)


def gather_nd(b: Builder) -> None:
    x = b.operand(ranks=(1, 2, 3), most=600)
    shape = b.value(x).shape
    if not all(shape):
        raise Nothing
    batch = b.random.randint(0, len(shape) - 1) if b.opset >= 12 and b.chance(0.3) else 0
    depth = b.random.randint(1, len(shape) - batch)
    places = (*shape[:batch], *b.random.choice(((1,), (2,), (4,), (2, 3), ())))
    lookup = shape[batch : batch + depth]
    indices = np.stack([b.numbers.integers(-d, d, places) for d in lookup], -1)
    b.add("GatherND", [x, b.given(indices)], is_exact=True, batch_dims=batch or None)


def scatter(b: Builder) -> None:
    x = b.operand(ranks=(1, 2, 3))
    value = b.value(x)
    axis = b.axis(len(value.shape))
    size = value.shape[axis]
    if not all(value.shape):
        raise Nothing
    shape = list(value.shape)
    shape[axis] = b.random.randint(1, size)
    columns = np.argsort(b.numbers.random(value.shape), axis)
    indices = np.take(columns, range(shape[axis]), axis)
    updates = b.fresh(value.dtype, tuple(shape))
    reductions = (None, None, "add", "mul") + (("max", "min") if b.opset >= 18 else ())
    reduction = b.random.choice(reductions) if b.opset >= 16 else None
    is_exact = reduction is None
    op = "ScatterElements" if b.opset >= 11 else "Scatter"
    b.add(op, [x, b.given(indices), updates], is_exact=is_exact, axis=axis,
          reduction=reduction if value.dtype in NUMBERS else None)  # fmt: skip


def scatter_nd(b: Builder) -> None:
    x = b.operand(ranks=(2, 3))
    value = b.value(x)
    if not all(value.shape):
        raise Nothing
    count = b.random.randint(1, value.shape[0])
    rows = b.numbers.permutation(value.shape[0])[:count].reshape(-1, 1)
    updates = b.fresh(value.dtype, (count, *value.shape[1:]))
    reductions = (None, None, "add", "mul") + (("max", "min") if b.opset >= 18 else ())
    reduction = b.random.choice(reductions) if b.opset >= 16 and value.dtype in NUMBERS else None
    b.add("ScatterND", [x, b.given(rows), updates], is_exact=reduction is None, reduction=reduction)


def pad(b: Builder) -> None:
    x = b.operand(NUMBERS, most=800)
    value = b.value(x)
    rank = value.array.ndim
    if not rank:
        raise Nothing
    modes = ["constant", "constant", "reflect", "edge"] + ["wrap"] * (b.opset >= 19)
    mode = b.random.choice(modes)
    pads = [b.random.choice((0, 0, 1, 2)) for _ in range(2 * rank)]
    if mode in ("reflect", "wrap"):
        pads = [min(p, max(0, value.shape[k % rank] - 1)) for k, p in enumerate(pads)]
    elif mode == "constant" and b.chance(0.15):
        pads[b.random.randrange(2 * rank)] = -1
    if b.opset < 11:
        filling = float(b.random.choice((0, 1))) if mode == "constant" else None
        b.add("Pad", [x], is_exact=True, pads=pads, mode=mode, value=filling)
        return
    if b.opset >= 18 and b.chance(0.3):
        axes = b.axes(rank)
        chosen = [pads[a % rank] for a in axes] + [pads[a % rank + rank] for a in axes]
        b.add("Pad", [x, b.integers(*chosen), "", b.integers(*axes)], is_exact=True, mode=mode)
        return
    inputs = [x, b.sizes(*pads)]
    if mode == "constant" and b.chance(0.5):
        inputs.append(b.given(np.array(b.random.choice((0, 1, 3)), value.array.dtype)))
    b.add("Pad", inputs, is_exact=True, mode=mode if b.chance(0.9) or mode != "constant" else None)


def depth_space(b: Builder) -> None:
    x = b.operand(FLOATS, ranks=(4,))
    channels = b.value(x).shape[1]
    if channels and channels % 4 == 0 and b.chance(0.6):
        b.add("DepthToSpace", [x], is_exact=True, blocksize=2, mode=b.random.choice(("DCR", "CRD")))
    else:
        b.add("SpaceToDepth", [x], is_exact=True, blocksize=2)


def triangle(b: Builder) -> None:
    x = b.operand(ranks=(2, 3, 4))
    inputs = [x]
    if b.chance(0.5):
        inputs.append(b.given(np.array(b.random.randint(-2, 2), np.int64), is_constant=True))
    b.add("Trilu", inputs, is_exact=True, upper=b.random.choice((0, 1, None)))


def reverse(b: Builder) -> None:
    x = b.operand(ranks=(2, 3))
    time, batch = b.value(x).shape[:2]
    if not time or not batch:
        raise Nothing
    lengths = b.given(b.numbers.integers(1, time + 1, batch), is_constant=True)
    b.add("ReverseSequence", [x, lengths], is_exact=True)


def one_hot(b: Builder) -> None:
    x = b.given(b.numbers.integers(-5, 5, b.shape(b.random.choice((0, 1, 2)), 60)))
    kind = b.random.choice((np.float32, np.int64))
    depth = b.given(np.array(5, np.int64), is_constant=b.chance(0.7))
    values = b.given(np.array([0, 2], kind), is_constant=True)
    b.add("OneHot", [x, depth, values], is_exact=True, axis=b.random.choice((-1, 0, None)))


def shuffle_channels(b: Builder) -> None:
    """Reshape, transpose, reshape, as ShuffleNet has it."""
    x = b.operand(FLOATS, ranks=(4,))
    n, c, h, w = b.value(x).shape
    groups = next((g for g in (2, 3, 4) if c and c % g == 0), 0)
    if not groups or not n * h * w:
        raise Nothing
    y = b.add("Reshape", [x, b.integers(n, groups, c // groups, h, w)], is_exact=True)
    y = b.add("Transpose", [y], is_exact=True, perm=[0, 2, 1, 3, 4])
    b.add("Reshape", [y, b.integers(n, c, h, w)], is_exact=True)


def fill(b: Builder) -> None:
    x = b.operand(ranks=(1, 2, 3))
    sizes = b.add("Shape", [x], is_exact=True)
    kind = b.random.choice(("float32", "int64", "int32"))
    number = helper.np_dtype_to_tensor_dtype(dt.to_numpy(kind))
    value = helper.make_tensor("value", number, [1], [b.random.choice((0, 1, 2))])
    y = b.add("ConstantOfShape", [sizes], is_exact=True, value=value)
    if kind in NUMBERS:
        b.add("Add", [y, b.broadcast(y)], is_exact=kind != "float32")
