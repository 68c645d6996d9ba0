# SPDX-License-Identifier: Apache-2.0
"""Random nodes that combine elements: products, convolutions, pools, norms, reductions."""

from __future__ import annotations

import numpy as np

from tests.fuzz.builder import FLOATS, SIGNED, Builder, Nothing

_REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
    "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp",
)  # fmt: skip


def reduce(b: Builder) -> None:
    op = b.random.choice(_REDUCTIONS)
    extreme = op in ("ReduceMax", "ReduceMin")
    rounds = op in ("ReduceLogSum", "ReduceLogSumExp", "ReduceL2")
    kinds = FLOATS if rounds else (*FLOATS, "int32", "int64")
    if extreme:
        kinds = (*kinds, *(("int8", "uint8") if b.opset >= 12 else ()))
        kinds = (*kinds, *(("bool",) if b.opset >= 20 else ()))
    x = b.operand(kinds)
    value = b.value(x)
    if op == "ReduceLogSum":
        x = b.add("Abs", [x], is_exact=True)
    axes = b.axes(value.array.ndim) if value.array.ndim and b.chance(0.85) else None
    if b.opset >= 18 and b.chance(0.05):
        noop = b.random.choice((0, 1))
        b.add(op, [x, b.integers()], is_exact=extreme or value.dtype in SIGNED,
              noop_with_empty_axes=noop)  # fmt: skip
        return
    more, attributes = b.axes_of(op, axes)
    is_exact = extreme or value.dtype in (*SIGNED, "uint8", "bool")
    b.add(op, [x, *more], is_exact=is_exact, keepdims=b.random.choice((0, 1, None)), **attributes)


def argument(b: Builder) -> None:
    x = b.operand((*FLOATS, "int32"), is_exact=True)
    axis = b.axis(b.value(x).array.ndim)
    if not b.value(x).array.size:
        raise Nothing  # which is the largest of none, the oracles do not ask
    b.add(
        b.random.choice(("ArgMax", "ArgMin")), [x], is_exact=True, axis=axis,
        keepdims=b.random.choice((0, 1, None)),
        select_last_index=b.random.choice((0, 1, None)) if b.opset >= 12 else None,
    )  # fmt: skip


def top(b: Builder) -> None:
    x = b.operand(("float32", "float64", "int32", "int64"), is_exact=True)
    shape = b.value(x).shape
    axis = b.axis(len(shape))
    if not shape[axis]:
        raise Nothing
    count = b.random.randint(1, shape[axis])
    if b.opset < 10:
        b.add("TopK", [x], outputs=2, is_exact=True, axis=axis, k=count)
        return
    largest = {"largest": b.random.choice((0, 1))} if b.opset >= 11 else {}
    b.add("TopK", [x, b.sizes(count)], outputs=2, is_exact=True, axis=axis, **largest)


def running_sum(b: Builder) -> None:
    x = b.operand(("float32", "float64", "int32", "int64"))
    axis = b.given(np.array(b.axis(b.value(x).array.ndim), np.int64), is_constant=True)
    b.add(
        "CumSum", [x, axis], is_exact=b.value(x).dtype in SIGNED,
        exclusive=b.random.choice((0, 1, None)), reverse=b.random.choice((0, 1, None)),
    )  # fmt: skip


def softmax(b: Builder) -> None:
    x = b.operand(FLOATS)
    op = b.random.choice(("Softmax", "Softmax", "LogSoftmax"))
    rank = b.value(x).array.ndim
    b.add(op, [x], axis=b.axis(rank) if rank < 2 or b.chance(0.8) else None)


def matmul(b: Builder) -> None:
    kinds = (*FLOATS, "int32", "int64")
    x = b.operand(kinds, ranks=(1, 2, 2, 3, 3, 4))
    value = b.value(x)
    depth, columns = value.shape[-1], b.size()
    batch = value.shape[:-2] if b.chance(0.4) else ()
    if batch and b.chance(0.4):
        batch = (1, *batch[1:])
    shape = (*batch, depth, columns) if b.chance(0.9) or len(value.shape) == 1 else (depth,)
    y = b.fresh(value.dtype, shape, low=-1, high=1)
    b.add("MatMul", [x, y], is_exact=value.dtype in SIGNED)


def self_matmul(b: Builder) -> None:
    """A product of a value with itself, transposed, as attention has it."""
    x = b.operand(FLOATS, ranks=(2, 3, 4), most=1000)
    order = list(range(b.value(x).array.ndim))
    order[-2:] = order[:-3:-1]
    y = b.add("Transpose", [x], is_exact=True, perm=order)
    scores = b.add("MatMul", [x, y])
    if b.chance(0.7):
        scale = np.array(0.25, b.value(x).array.dtype)
        scores = b.add("Mul", [scores, b.given(scale, is_constant=True)])
        b.add("MatMul", [b.add("Softmax", [scores], axis=-1), x])


def gemm(b: Builder) -> None:
    x = b.operand(FLOATS, ranks=(2,))
    kind, shape = b.value(x).dtype, b.value(x).shape
    turned, other = b.chance(0.3), b.chance(0.5)
    rows, depth = shape[::-1] if turned else shape
    columns = b.size()
    y = b.fresh(kind, (columns, depth) if other else (depth, columns), low=-1, high=1)
    inputs = [x, y]
    if b.chance(0.7):
        bias = b.random.choice(((), (columns,), (1, columns), (rows, 1), (rows, columns)))
        inputs.append(b.fresh(kind, bias))
    scales = {k: b.random.choice((0.5, 2.0)) for k in ("alpha", "beta") if b.chance(0.3)}
    b.add("Gemm", inputs, transA=int(turned), transB=int(other), **scales)


def einsum(b: Builder) -> None:
    text, rank, other = b.random.choice(
        (("ij,jk->ik", 2, "jk"), ("bij,bjk->bik", 3, "bjk"), ("bij,bkj->bik", 3, "bkj"),
         ("ij->ji", 2, ""), ("bij->bi", 3, ""), ("ij,ij->i", 2, "ij"), ("ij,j->ij", 2, "j"),
         ("bhid,bhjd->bhij", 4, "bhjd"), ("i,j->ij", 1, "j"), ("ij->", 2, ""), ("abc->cba", 3, ""),
         ("ij,kj,k->i", 2, "kj"), ("bij,ij->b", 3, "ij"), ("ij,jk", 2, "jk"), ("i,i->", 1, "i"))
    )  # fmt: skip
    x = b.operand(("float32", "float64"), ranks=(rank,), most=500)
    sizes = dict(zip(text, b.value(x).shape, strict=False))
    inputs = [x]
    if other:
        shape = tuple(sizes[c] if c in sizes else b.random.choice((1, 3, 8)) for c in other)
        inputs.append(b.fresh(b.value(x).dtype, shape, low=-1, high=1))
        if text == "ij,kj,k->i":
            inputs.append(b.fresh(b.value(x).dtype, shape[:1], low=-1, high=1))
    b.add("Einsum", inputs, equation=text)


def image(b: Builder, kinds: tuple[str, ...] = FLOATS, ranks: tuple[int, ...] = (4, 4, 4, 3, 5),
          channels: int | None = None) -> str:  # fmt: skip
    """Return an image, often a fresh one of usual proportions."""
    found = b.existing(kinds, ranks=ranks, most=6000)
    if found is not None and b.chance(0.85) and 0 not in b.value(found).shape:
        return found
    rank = b.random.choice(ranks)
    batch = b.random.choice((1, 1, 2))
    wide = channels or b.random.choice((1, 3, 3, 4, 8, 16, 24, 32))
    most = {2: 1, 3: 30, 4: 15, 5: 5}[rank]
    shape = (batch, wide, *(b.random.randint(min(3, most), most) for _ in range(rank - 2)))
    return b.fresh(b.dtype(kinds), shape, is_constant=False)


def _window(b: Builder, spatial: tuple[int, ...], *, dilated: bool = True) -> dict[str, object]:
    """Return kernel_shape, strides, pads or auto_pad, dilations."""
    kernel = [min(b.random.choice((1, 1, 2, 3, 3, 3, 4, 5, 7)), max(1, s)) for s in spatial]
    if b.chance(0.6):
        kernel = [min(kernel[0], max(1, s)) for s in spatial]
    found: dict[str, object] = {"kernel_shape": kernel}
    if b.chance(0.4):
        found["strides"] = [b.random.choice((1, 2, 2, 3, 5)) for _ in spatial]
    if dilated and b.chance(0.15):
        found["dilations"] = [
            b.random.choice([d for d in (1, 2, 3, 6) if d * (k - 1) < max(s, 1)] or [1])
            for k, s in zip(kernel, spatial, strict=True)
        ]
    if b.chance(0.15) and "dilations" not in found:
        if "strides" in found:  # where a window skips elements, onnx.reference takes some too many
            found["strides"] = [min(s, k) for s, k in zip(found["strides"], kernel, strict=True)]
        found["auto_pad"] = b.random.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif b.chance(0.6):
        pads = [b.random.randint(0, k // 2) for k in kernel]
        found["pads"] = pads * 2 if b.chance(0.6) else [*pads, *(k // 2 for k in kernel)]
        if b.chance(0.15):  # as far as a pool allows
            found["pads"] = [b.random.randint(0, k - 1) for k in kernel * 2]
    return found


def convolution(b: Builder) -> str:
    x = image(b)
    kind, shape = b.value(x).dtype, b.value(x).shape
    window = _window(b, shape[2:])
    channels = shape[1]
    if not channels:
        raise Nothing
    filters = b.random.choice((1, 2, 4, 5, 8, 16, 16, 32))
    groups = 1
    if b.chance(0.3):
        groups = b.random.choice([g for g in range(1, channels + 1) if channels % g == 0])
        filters = groups * b.random.choice((1, 1, 2, 4 if groups < 8 else 1))
    kernel = window["kernel_shape"]
    size = (filters, channels // groups, *kernel)
    bound = 1.5 / max(1.0, float(np.prod(size[1:]))) ** 0.5
    w = b.fresh(kind, size, low=-bound, high=bound, is_constant=b.chance(0.9) or None)
    inputs = [x, w]
    if b.chance(0.6):
        inputs.append(b.fresh(kind, (filters,), is_constant=b.chance(0.9) or None))
    return b.add("Conv", inputs, group=groups if groups > 1 else None, **window)


def convolution_block(b: Builder) -> None:
    """A convolution with what follows it in networks: norm, activation, a residual sum."""
    y = convolution(b)
    if b.chance(0.4):
        y = batch_norm(b, y)
    if b.chance(0.3):
        y = b.add("Add", [y, b.like(y)])
    if b.chance(0.6):
        kinds = ("Relu", "Sigmoid", "LeakyRelu", "HardSigmoid", "Tanh")
        op = b.random.choice(kinds)
        z = b.add(op, [y], is_exact=op == "Relu")
        if b.chance(0.3):
            b.add("Mul", [y, z])


def squeeze_excite(b: Builder) -> None:
    x = image(b, ranks=(4,))
    kind, channels = b.value(x).dtype, b.value(x).shape[1]
    y = b.add("GlobalAveragePool", [x])
    w = b.fresh(kind, (channels, channels, 1, 1), low=-0.5, high=0.5, is_constant=True)
    y = b.add("Conv", [y, w])
    b.add("Mul", [x, b.add("Sigmoid", [y])])


def transposed_convolution(b: Builder) -> None:
    x = image(b, ("float32", "float32", "float64"), ranks=(4, 4, 3))
    kind, shape = b.value(x).dtype, b.value(x).shape
    window = _window(b, shape[2:])
    filters, groups = b.random.choice((1, 2, 4, 8)), 1
    if b.chance(0.2):
        groups = b.random.choice([g for g in (1, 2, 3, 4) if shape[1] % g == 0])
    size = (shape[1], filters, *window["kernel_shape"])
    bound = 1.5 / max(1.0, float(np.prod(size[1:]))) ** 0.5
    w = b.fresh(kind, size, low=-bound, high=bound, is_constant=b.chance(0.9) or None)
    if b.chance(0.3) and "strides" in window:
        window["output_padding"] = [s - 1 for s in window["strides"]]
    inputs = [x, w]
    if b.chance(0.5):
        inputs.append(b.fresh(kind, (filters * groups,)))
    b.add("ConvTranspose", inputs, group=groups if groups > 1 else None, **window)


def pool(b: Builder) -> None:
    op = b.random.choice(("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"))
    x = image(b, FLOATS if op != "LpPool" else ("float32",))
    shape = b.value(x).shape
    window = _window(b, shape[2:], dilated=op == "MaxPool" or b.opset >= 19)
    if op != "LpPool" or b.opset >= 18:
        window["ceil_mode"] = b.random.choice((0, 1, None))
    if op == "AveragePool":
        window["count_include_pad"] = b.random.choice((0, 1, None))
    if op == "LpPool":
        window["p"] = b.random.choice((1, 2, 3))
        if b.opset < 18:
            window.pop("dilations", None)
    outputs = 2 if op == "MaxPool" and b.value(x).is_exact and b.chance(0.2) else 1
    b.add(op, [x], outputs=outputs, is_exact=op == "MaxPool", **window)


def global_pool(b: Builder) -> None:
    op = b.random.choice(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))
    b.add(op, [image(b, ("float32", "float64", "float16"))], is_exact=op == "GlobalMaxPool")


def batch_norm(b: Builder, x: str | None = None) -> str:
    x = x or image(b, ranks=(2, 3, 4, 4))
    kind, shape = b.value(x).dtype, b.value(x).shape
    rows = [b.fresh(kind, (shape[1],), is_constant=True) for _ in range(3)]
    spread = b.fresh(kind, (shape[1],), low=0.3, high=2.0, is_constant=True)
    return b.add("BatchNormalization", [x, *rows, spread],
                 epsilon=b.random.choice((1e-5, 1e-3, None)))  # fmt: skip


def norm(b: Builder) -> None:
    ops = ["InstanceNormalization", "LRN", "LpNormalization", "MeanVarianceNormalization"]
    ops += ["LayerNormalization"] * 3 * (b.opset >= 17) + ["GroupNormalization"] * (b.opset >= 21)
    op = b.random.choice(ops)
    kinds = ("float32", "float32", "float64", "float16")
    if op == "LayerNormalization":
        _layer_norm(b, kinds)
        return
    if op == "LpNormalization":
        x = b.operand(kinds)
        b.add(op, [x], axis=b.axis(b.value(x).array.ndim), p=b.random.choice((1, 2)))
        return
    x = image(b, kinds, ranks=(4,) if op in ("LRN", "MeanVarianceNormalization") else (3, 4))
    kind, channels = b.value(x).dtype, b.value(x).shape[1]
    if op == "LRN":
        b.add(op, [x], size=b.random.choice((1, 3, 5)))
    elif op == "MeanVarianceNormalization":
        b.add(op, [x])
    elif op == "InstanceNormalization":
        b.add(op, [x, *(b.fresh(kind, (channels,)) for _ in range(2))])
    else:
        groups = b.random.choice([g for g in range(1, channels + 1) if channels % g == 0])
        b.add(op, [x, *(b.fresh(kind, (channels,)) for _ in range(2))], num_groups=groups)


def _layer_norm(b: Builder, kinds: tuple[str, ...]) -> None:
    x = b.operand(kinds, ranks=(2, 3, 4))
    kind, shape = b.value(x).dtype, b.value(x).shape
    axis = b.axis(len(shape))
    rows = shape[axis % len(shape) :]
    inputs = [x, b.fresh(kind, rows)]
    if b.chance(0.7):
        inputs.append(b.fresh(kind, rows))
    outputs = 3 if kind == "float32" and b.chance(0.15) else 1
    b.add("LayerNormalization", inputs, outputs=outputs, axis=axis)


def written_layer_norm(b: Builder) -> None:
    """A layer norm as exporters wrote it before it was an operator."""
    x = b.operand(("float32", "float32", "float64"), ranks=(2, 3))
    kind, width = b.value(x).array.dtype, b.value(x).shape[-1]
    more, attributes = b.axes_of("ReduceMean", [-1])
    centred = b.add("Sub", [x, b.add("ReduceMean", [x, *more], **attributes)])
    two, small = (b.given(np.array(v, kind), is_constant=True) for v in (2.0, 1e-5))
    squares = b.add("ReduceMean", [b.add("Pow", [centred, two]), *more], **attributes)
    deviation = b.add("Sqrt", [b.add("Add", [squares, small])])
    y = b.add("Div", [centred, deviation])
    y = b.add("Mul", [y, b.fresh(b.value(x).dtype, (width,), is_constant=True)])
    b.add("Add", [y, b.fresh(b.value(x).dtype, (width,), is_constant=True)])


def resize(b: Builder) -> None:
    x = image(b, ("float32",), ranks=(4,))
    shape = b.value(x).shape
    if b.value(x).array.size > 1500:
        raise Nothing
    if b.opset < 11:
        raise Nothing  # another signature: Upsample's, which is drawn elsewhere
    mode = b.random.choice(("nearest", "nearest", "linear", "cubic"))
    form = b.random.choice(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    attributes: dict[str, object] = {"mode": mode, "coordinate_transformation_mode": form}
    if mode == "nearest":
        attributes["nearest_mode"] = b.random.choice(
            ("round_prefer_floor", "floor", "ceil", "round_prefer_ceil")
        )
    if mode == "cubic" and b.chance(0.4):
        attributes |= {"cubic_coeff_a": b.random.choice((-0.5, -0.75)), "exclude_outside": 1}
    if mode != "nearest" and b.opset >= 18 and b.chance(0.3):
        attributes["antialias"] = 1
    if b.opset >= 18 and b.chance(0.3):
        wanted = b.integers(*(b.random.randint(1, 2 * s) for s in shape[2:]))
        policy = b.random.choice(("stretch", "not_larger", "not_smaller"))
        b.add("Resize", [x, "", "", wanted], axes=[2, 3], keep_aspect_ratio_policy=policy,
              **attributes)  # fmt: skip
        return
    if b.chance(0.5):
        scales = b.given(np.array([1, 1, *(b.random.choice((1, 2, 0.5, 1.5)) for _ in range(2))],
                                  np.float32), is_constant=True)  # fmt: skip
        b.add("Resize", [x, "", scales], **attributes)
        return
    sizes = b.integers(*shape[:2], *(b.random.randint(1, 2 * s) for s in shape[2:]))
    b.add("Resize", [x, "", "", sizes], **attributes)


def integer_products(b: Builder) -> None:
    op = b.random.choice(("MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"))
    kind = b.random.choice((np.uint8, np.int8)) if op != "ConvInteger" else np.uint8
    small = b.numbers.integers
    zeros = [b.given(np.array(small(0, 5), kind)) for _ in range(3)]
    scales = [b.given(np.array(s, np.float32)) for s in (0.05, 0.1, 0.5)]
    if "MatMul" in op:
        x = b.operand(("uint8",) if kind is np.uint8 else ("int8",), ranks=(2, 3), is_exact=True)
        y = b.given(small(0, 20, (b.value(x).shape[-1], b.size())).astype(kind))
    else:
        shape = (1, b.random.choice((1, 3, 8)), 6, 7)
        found = b.existing((np.dtype(kind).name,), ranks=(4,), is_exact=True)
        x = found or b.given(small(0, 20, shape).astype(kind), is_constant=False)
        size = (b.random.choice((1, 4, 8)), b.value(x).shape[1], 3, 3)
        y = b.given(small(0, 9, size).astype(kind), is_constant=True)
    if op.endswith("Integer"):
        b.add(op, [x, y, zeros[0], zeros[1]] if b.chance(0.7) else [x, y], is_exact=True)
        return
    inputs = [x, scales[0], zeros[0], y, scales[1], zeros[1], scales[2], zeros[2]]
    b.add(op, inputs, is_exact=True)


def grid_sample(b: Builder) -> None:
    if b.opset < 16:
        raise Nothing
    x = image(b, ("float32",), ranks=(4,))
    shape = (b.value(x).shape[0], b.random.randint(1, 6), b.random.randint(1, 6), 2)
    modes = ("bilinear", "nearest") if b.opset < 20 else ("linear", "nearest")
    b.add(
        "GridSample", [x, b.fresh("float32", shape, low=-1.2, high=1.2)],
        mode=b.random.choice(modes), align_corners=b.random.choice((0, 1)),
        padding_mode=b.random.choice(("zeros", "border", "reflection")),
    )  # fmt: skip
