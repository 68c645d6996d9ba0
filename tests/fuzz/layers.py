# SPDX-License-Identifier: Apache-2.0
"""Random nodes that are whole layers: recurrent ones, attention, what exporters fuse, losses."""

from __future__ import annotations

import numpy as np

from tests.fuzz.builder import Builder, Nothing

MICROSOFT = "com.microsoft"
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def recurrent(b: Builder) -> None:
    """LSTM, GRU or RNN in any direction, with some of the optional operands."""
    op = b.random.choice(tuple(_GATES))
    time, batch, hidden = (
        b.random.randint(1, 6),
        b.random.choice((1, 2, 3)),
        b.random.choice((1, 4, 5, 8)),
    )
    x = b.existing(("float32",), ranks=(3,), most=400)
    if x is None or not b.value(x).array.size or b.chance(0.4):
        x = b.fresh("float32", (time, batch, b.random.choice((1, 3, 8))))
    time, batch, width = b.value(x).shape
    direction = b.random.choice(("forward", "reverse", "bidirectional"))
    ways, gates = 1 + (direction == "bidirectional"), _GATES[op]
    inputs = [x, *(_weights(b, (ways, gates * hidden, d)) for d in (width, hidden))]
    inputs.append(_weights(b, (ways, 2 * gates * hidden)) if b.chance(0.7) else "")
    inputs.append(_lengths(b, time, batch) if b.chance(0.3) else "")
    for _ in range(1 + (op == "LSTM")):
        inputs.append(_weights(b, (ways, batch, hidden)) if b.chance(0.3) else "")
    if op == "LSTM":
        inputs.append(_weights(b, (ways, 3 * hidden)) if b.chance(0.3) else "")
    while not inputs[-1]:
        inputs.pop()
    attributes: dict[str, object] = (
        {"linear_before_reset": 1} if op == "GRU" and b.chance(0.5) else {}
    )
    if b.chance(0.2):
        attributes["clip"] = 0.5
    b.add(
        op,
        inputs,
        outputs=2 + (op == "LSTM"),
        hidden_size=hidden,
        direction=direction,
        **attributes,
    )


def _weights(b: Builder, shape: tuple[int, ...]) -> str:
    return b.fresh("float32", shape, low=-0.5, high=0.5, is_constant=b.chance(0.8))


def _lengths(b: Builder, time: int, batch: int) -> str:
    return b.given(np.asarray(b.numbers.integers(1, time + 1, batch), np.int32))


def attention(b: Builder) -> None:
    """Attention as opset 23 defines it: heads in an axis or in the columns, grouped, masked."""
    kind = b.dtype(("float32", "float32", "float64", "float16"))
    batch, queries, keys = b.random.choice((1, 2)), b.random.randint(1, 9), b.random.randint(1, 17)
    heads = b.random.choice((1, 2, 4))
    groups = b.random.choice([g for g in (1, 2, 4) if heads % g == 0])
    width, columns = b.random.choice((2, 8, 16)), b.random.choice((1, 3, 8))
    is_flat = b.chance(0.4)

    def operand(length: int, count: int, size: int) -> str:
        shape = (batch, length, count * size) if is_flat else (batch, count, length, size)
        return b.fresh(kind, shape, is_constant=False)

    inputs = [operand(queries, heads, width), operand(keys, groups, width)]
    inputs.append(operand(keys, groups, columns))
    attributes: dict[str, object] = (
        {"q_num_heads": heads, "kv_num_heads": groups} if is_flat else {}
    )
    if b.chance(0.5):
        rows = b.random.choice(
            ((queries, keys), (batch, 1, queries, keys), (1, heads, queries, keys))
        )
        inputs.append(_mask(b, kind, rows))
    if b.chance(0.3):
        attributes["is_causal"] = 1
    if b.chance(0.3):
        attributes["scale"] = b.random.choice((0.5, 0.125))
    if b.chance(0.2):
        attributes["softcap"] = 2.0
    b.add("Attention", inputs, **attributes)


def _mask(b: Builder, kind: str, shape: tuple[int, ...]) -> str:
    """Return a mask that leaves every query its first key."""
    if b.chance(0.5):
        return b.fresh(kind, shape)
    seen = np.asarray(b.numbers.random(shape) < 0.7)
    seen[..., 0] = True
    return b.given(seen)


def rotary(b: Builder) -> None:
    kind = b.dtype(("float32", "float32", "float64", "float16"))
    batch, heads, length = (
        b.random.choice((1, 2)),
        b.random.choice((1, 2, 4)),
        b.random.randint(1, 7),
    )
    width = b.random.choice((2, 4, 8, 16))
    angles = b.numbers.random((length, width // 2)) * 3
    tables = [b.given(f(angles).astype(b.kind(kind))) for f in (np.cos, np.sin)]
    rows = np.asarray(b.numbers.integers(0, length, (batch, length)))
    x = b.fresh(kind, (batch, heads, length, width), is_constant=False)
    b.add(
        "RotaryEmbedding", [x, *tables, b.given(rows)], interleaved=b.random.choice((0, 1, None))
    )  # fmt: skip


def rms_norm(b: Builder) -> None:
    x = b.operand(("float32", "float32", "float64", "float16"), ranks=(1, 2, 3, 4))
    kind, shape = b.value(x).dtype, b.value(x).shape
    axis = b.axis(len(shape))
    scale = b.fresh(kind, shape[axis % len(shape) :])
    if b.opset >= 23:
        b.add("RMSNormalization", [x, scale], axis=axis)
        return
    if shape[-1] == 0:
        raise Nothing
    # As exporters wrote it before it was an operator.
    small = b.given(np.array(1e-5, b.kind(kind)), is_constant=True)
    more, given = b.axes_of("ReduceMean", [-1])
    mean = b.add("ReduceMean", [b.add("Mul", [x, x]), *more], **given)
    root = b.add("Sqrt", [b.add("Add", [mean, small])])
    b.add("Mul", [b.add("Div", [x, root]), b.fresh(kind, (shape[-1],))])


def fused_by_exporters(b: Builder) -> None:
    """The operators of com.microsoft that transformers are exported with."""
    makers = (_gelu, _product, _skip, _bias_gelu, _quick, _packed_attention, _heads, _turned)
    b.random.choice(makers)(b)


def _packed_attention(b: Builder) -> None:
    """Attention whose queries, keys and values come from one product."""
    x = b.operand(("float32",), ranks=(3,), most=600)
    batch, steps, width = b.value(x).shape
    heads = b.random.choice((1, 2, 4))
    size = heads * b.random.choice((1, 4, 8))
    weights = [b.fresh("float32", s, low=-0.5, high=0.5) for s in ((width, 3 * size), (3 * size,))]
    mask = [_key_mask(b, batch, steps)] if b.chance(0.5) else []
    b.add("Attention", [x, *weights, *mask], domain=MICROSOFT, num_heads=heads,
          unidirectional=b.random.choice((0, 1)))  # fmt: skip


def _heads(b: Builder) -> None:
    """Attention of separate queries, keys and values."""
    x = b.operand(("float32",), ranks=(3,), most=600)
    batch, _, width = b.value(x).shape
    heads = b.random.choice([h for h in (1, 2, 4) if width % h == 0])
    keys, columns = b.random.randint(1, 9), heads * b.random.choice((1, 3, 8))
    inputs = [x, *(b.fresh("float32", (batch, keys, w)) for w in (width, columns))]
    if b.chance(0.4):
        inputs += [b.fresh("float32", (2 * width + columns,))]
    elif b.chance(0.5):
        inputs += ["", _key_mask(b, batch, keys)]
    b.add("MultiHeadAttention", inputs, domain=MICROSOFT, num_heads=heads)


def _key_mask(b: Builder, batch: int, keys: int) -> str:
    """Return which keys of every batch entry are seen, the first in any case."""
    seen = np.asarray(b.numbers.random((batch, keys)) < 0.7)
    seen[:, :1] = True
    return b.given(seen.astype("int32"))


def _turned(b: Builder) -> None:
    """Rotary embedding of heads that lie side by side."""
    batch, steps, heads = b.random.choice((1, 2)), b.random.randint(1, 7), b.random.choice((1, 2))
    size = b.random.choice((2, 4, 8))
    tables = [b.fresh("float32", (20, size // 2), low=-1, high=1) for _ in range(2)]
    places = b.given(np.asarray(b.numbers.integers(0, 20, (batch, steps))))
    x = b.fresh("float32", (batch, steps, heads * size), is_constant=False)
    b.add("RotaryEmbedding", [x, places, *tables], domain=MICROSOFT,
          interleaved=b.random.choice((0, 1)))  # fmt: skip


def _quick(b: Builder) -> None:
    b.add("QuickGelu", [b.operand(("float32",))], domain=MICROSOFT)


def _gelu(b: Builder) -> None:
    b.add(b.random.choice(("Gelu", "FastGelu")), [b.operand(("float32",))], domain=MICROSOFT)


def _bias_gelu(b: Builder) -> None:
    x = b.operand(("float32",), ranks=(2, 3))
    b.add("BiasGelu", [x, b.fresh("float32", b.value(x).shape[-1:])], domain=MICROSOFT)


def _skip(b: Builder) -> None:
    x = b.operand(("float32",), ranks=(3,))
    rows = b.value(x).shape[-1:]
    op = b.random.choice(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"))
    others = [b.fresh("float32", rows) for _ in range(1 if "Simplified" in op else 2)]
    b.add(op, [x, b.like(x), *others], domain=MICROSOFT, epsilon=1e-5)


def _product(b: Builder) -> None:
    x = b.operand(("float32",), ranks=(2, 3), most=600)
    *batch, rows, depth = b.value(x).shape
    turns = [int(b.chance(0.4)) for _ in range(2)]
    inner = rows if turns[0] else depth
    columns = b.size()
    last = (columns, inner) if turns[1] else (inner, columns)
    y = b.fresh("float32", (*batch, *last), low=-1, high=1)
    b.add("FusedMatMul", [x, y], domain=MICROSOFT, alpha=b.random.choice((1.0, 0.5)),
          transA=turns[0], transB=turns[1])  # fmt: skip


def loss(b: Builder) -> None:
    """A loss of class scores, by its definition as a function."""
    x = b.operand(("float32", "float64"), ranks=(2, 3))
    shape = b.value(x).shape
    if not all(shape):
        raise Nothing
    target = np.asarray(b.numbers.integers(0, shape[1], (shape[0], *shape[2:])))
    op = b.random.choice(("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"))
    if op == "NegativeLogLikelihoodLoss":
        x = b.add("Abs", [x], is_exact=True)  # terms of both signs may leave nothing but rounding
    inputs = [x, b.given(target)]
    if b.chance(0.4):
        inputs.append(b.fresh(b.value(x).dtype, (shape[1],), low=0.2, high=1.0))
    b.add(op, inputs, reduction=b.random.choice(("none", "sum", "mean", None)))
