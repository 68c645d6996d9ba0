# SPDX-License-Identifier: Apache-2.0
"""Normalisations: softmax and its logarithm, batch, layer, root mean square, instance and local
response.

Half-precision inputs are normalised in float32 and rounded once at the end. Every compute returns
its stages; the long sums among them are blocked as in `treadle.ops.reduce`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Expr, ExprLike
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.size_rules import SizeRule, aligned, equal
from treadle.graph.types import Dim, Type, broadcast_shapes, may_agree, same_dim, tensor_type
from treadle.ops.numeric import (
    FLOATS,
    accumulator,
    broadcast_index,
    check_axis,
    check_elements,
    dims_of,
    half_examples,
    numpy_reference,
)
from treadle.ops.reduce import mean_of, padded_extent, reduce_count, reduce_stages
from treadle.te.operations import Tensor


@dataclass(frozen=True, slots=True)
class SoftmaxAttrs(Attrs):
    """The axis whose elements share out 1."""

    axis: int


@dataclass(frozen=True, slots=True)
class EpsilonAttrs(Attrs):
    """What is added to the variance."""

    epsilon: float = 1e-5


@dataclass(frozen=True, slots=True)
class LayerNormAttrs(Attrs):
    """Axes from `axis` on are normalised together."""

    axis: int
    epsilon: float = 1e-5


@dataclass(frozen=True, slots=True)
class LrnAttrs(Attrs):
    """x / (bias + alpha / size * sum of x² over `size` channels around)^beta."""

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0


def _read_wide(x: Tensor) -> Callable[..., Expr]:
    wide = accumulator(x.dtype)
    return lambda *i: nodes.cast(x[i], wide)


def _along(stage: Tensor, index: Sequence[ExprLike]) -> Expr:
    """Return the element of a stage with extents of 1 that belongs to `index`."""
    return stage[broadcast_index(stage, index)]


# softmax


def _infer_softmax(a: SoftmaxAttrs, x: Type) -> Type:
    source = check_elements(x, FLOATS)
    check_axis(a.axis, source.ndim)
    return source


def _softmax(a: SoftmaxAttrs, x: Tensor) -> list[Tensor]:
    read, dims = _read_wide(x), dims_of(x)
    top = reduce_stages(te.max, read, dims, [a.axis], "softmax.max")
    powers = _powers(a.axis, read, dims, top[-1])
    total = reduce_stages(te.sum, lambda *i: powers[i], dims_of(powers), [a.axis], "softmax.sum")
    share = te.compute_one(total[-1].shape, lambda *i: 1.0 / total[-1][i], "softmax.share")
    result = te.compute_one(
        dims, lambda *i: nodes.cast(powers[i] * _along(share, i), x.dtype), "softmax"
    )
    return [*top, powers, *total, share, result]


def _powers(axis: int, read: Callable[..., Expr], dims: Sequence[Dim], top: Tensor) -> Tensor:
    """Return exp(x - top), with zeros behind rows in memory up to whole vectors of parts."""
    length, padded = dims[axis], padded_extent(dims[axis], axis == len(dims) - 1)

    def power(*i: Expr) -> Expr:
        value = te.exp(read(*i) - _along(top, i))
        if same_dim(length, padded):
            return value
        return te.if_then_else(i[axis] < length, value, te.const(0.0, value.dtype))

    return te.compute_one([*dims[:axis], padded, *dims[axis + 1 :]], power, "softmax.exp")


def _log_softmax(a: SoftmaxAttrs, x: Tensor) -> list[Tensor]:
    read, dims = _read_wide(x), dims_of(x)
    top = reduce_stages(te.max, read, dims, [a.axis], "log_softmax.max")

    def power(*i: ExprLike) -> Expr:
        return te.exp(read(*i) - _along(top[-1], i))

    total = reduce_stages(te.sum, power, dims, [a.axis], "log_softmax.sum")
    log_total = te.compute_one(total[-1].shape, lambda *i: te.log(total[-1][i]), "log_softmax.log")

    def shifted(*i: Expr) -> Expr:
        return nodes.cast(read(*i) - _along(top[-1], i) - _along(log_total, i), x.dtype)

    return [*top, *total, log_total, te.compute_one(dims, shifted, "log_softmax")]


def _numpy_softmax(a: SoftmaxAttrs, x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - np.max(x, a.axis, keepdims=True, initial=-np.inf))
    return np.asarray(powers / powers.sum(a.axis, keepdims=True))


def _numpy_log_softmax(a: SoftmaxAttrs, x: np.ndarray) -> np.ndarray:
    shifted = x - np.max(x, a.axis, keepdims=True, initial=-np.inf)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(a.axis, keepdims=True)))


_SOFTMAX_EXAMPLES = (
    Example(((3, 5),), {"axis": 1}, low=-9, high=9),
    Example(((2, 1000),), {"axis": 1}, low=-9, high=9),
    Example(((2, 3, 197),), {"axis": 2}, low=-9, high=9),
    Example(((2, 7, 3, 5),), {"axis": 1}),
    Example(((300, 2),), {"axis": 0}),
    Example(((1,),), {"axis": 0}),
    Example(((2, 5),), {"axis": 1}, ("float64",)),
    Example(((2, 100),), {"axis": 1}, low=-1e4, high=1e4),
    *half_examples(((3, 70),), axis=1),
)

softmax: Operator[SoftmaxAttrs] = register(
    Operator(
        name="softmax",
        infer=_infer_softmax,
        reference=numpy_reference(_numpy_softmax),
        compute=_softmax,
        attrs_type=SoftmaxAttrs,
        fusion=Fusion.ANCHOR,
        examples=_SOFTMAX_EXAMPLES,
        flops=lambda a, x: 4 * x.elements,
        flushes_subnormals=True,
    )
)
log_softmax: Operator[SoftmaxAttrs] = register(
    Operator(
        name="log_softmax",
        infer=_infer_softmax,
        reference=numpy_reference(_numpy_log_softmax),
        compute=_log_softmax,
        attrs_type=SoftmaxAttrs,
        fusion=Fusion.ANCHOR,
        examples=_SOFTMAX_EXAMPLES,
        flops=lambda a, x: 4 * x.elements,
    )
)


# batch_norm and instance_norm: one factor and shift per channel, axis 1.


def _infer_channels(a: EpsilonAttrs, x: Type, *parameters: Type) -> Type:
    source = check_elements(x, FLOATS)
    channels = _channels(source.shape)
    for p, name in zip(parameters, ("scale", "bias", "mean", "variance"), strict=False):
        found = check_elements(p, FLOATS, f"the {name}")
        if found.ndim != 1 or not may_agree(found.shape[0], channels):
            raise TypeMismatch(f"the {name} is {found}, the input {source} has {channels} channels")
    return source


def _channel_rules(a: EpsilonAttrs, result: Type, x: Type, *parameters: Type) -> Iterator[SizeRule]:
    channels = _channels(tensor_type(x).shape)
    return equal((tensor_type(p).shape[0], channels) for p in parameters)


def _channels(shape: Sequence[Dim]) -> Dim:
    return shape[1] if len(shape) > 1 else 1


def _channel(index: Sequence[ExprLike]) -> ExprLike:
    return index[1] if len(index) > 1 else 0


def _batch_norm(
    a: EpsilonAttrs, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
) -> Tensor:
    wide, epsilon = accumulator(x.dtype), a.epsilon

    def body(*i: Expr) -> Expr:
        gamma, beta, mu, var = (
            nodes.cast(p[_channel(i)], wide) for p in (scale, bias, mean, variance)
        )
        factor = gamma / te.sqrt(var + epsilon)
        return nodes.cast((nodes.cast(x[i], wide) - mu) * factor + beta, x.dtype)

    return te.compute_one(x.shape, body, "batch_norm")


def _per_channel(p: np.ndarray, ndim: int) -> np.ndarray:
    return p.reshape((-1,) + (1,) * (ndim - 2))


def _numpy_batch_norm(
    a: EpsilonAttrs,
    x: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
) -> np.ndarray:
    gamma, beta, mu, var = (_per_channel(p, x.ndim) for p in (scale, bias, mean, variance))
    return np.asarray((x - mu) / np.sqrt(var + a.epsilon) * gamma + beta)


_VARIANCE = np.array([0.5, 1.0, 4.0], np.float32)
_CHANNELS = ((3,),) * 4
"""Shapes of scale, shift, mean and variance."""

batch_norm: Operator[EpsilonAttrs] = register(
    Operator(
        name="batch_norm",
        infer=_infer_channels,
        reference=numpy_reference(_numpy_batch_norm),
        compute=_batch_norm,
        rules=_channel_rules,
        attrs_type=EpsilonAttrs,
        fusion=Fusion.BROADCAST,
        examples=(
            Example(((2, 3, 4, 5), *_CHANNELS), inputs={4: _VARIANCE}),
            Example(((2, 3), *_CHANNELS), {"epsilon": 1e-3}, inputs={4: _VARIANCE}),
            Example(((2, 3, 4), *_CHANNELS), {}, ("float64",) * 5, low=0.5),
            Example(((4,), (1,), (1,), (1,), (1,)), low=0.5),
            Example(
                ((2, 3, 4, 5), *_CHANNELS),
                {},
                ("float16", *("float32",) * 4),
                inputs={4: _VARIANCE},
                rtol=1e-3,
                atol=1e-6,
            ),
        ),
        flops=lambda a, x, *rest: 2 * x.elements,
    )
)


def _moments(
    x: Tensor, axes: Sequence[int], name: str, epsilon: float
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Return stages, the mean and 1 / sqrt(variance + epsilon) along `axes`, in two passes."""
    read, dims = _read_wide(x), dims_of(x)
    count = reduce_count(dims, axes)
    total = reduce_stages(te.sum, read, dims, axes, f"{name}.sum")
    shape = total[-1].shape
    mean = te.compute_one(shape, lambda *i: mean_of(total[-1][i], count), f"{name}.mean")

    def square(*i: ExprLike) -> Expr:
        difference = read(*i) - _along(mean, i)
        return difference * difference

    spread = reduce_stages(te.sum, square, dims, axes, f"{name}.squares")

    def inverse(*i: Expr) -> Expr:
        return 1.0 / te.sqrt(mean_of(spread[-1][i], count) + epsilon)

    deviation = te.compute_one(shape, inverse, f"{name}.inverse")
    return [*total, mean, *spread, deviation], mean, deviation


def normalised(
    x: Tensor,
    axes: Sequence[int],
    name: str,
    epsilon: float,
    parameters: Callable[..., tuple[Expr, Expr]],
    shape: Sequence[Dim] | None = None,
    place: Callable[..., tuple[ExprLike, ...]] | None = None,
) -> list[Tensor]:
    """Return the stages of (x - mean) / deviation * scale + bias; parameters(i) -> scale, bias.

    The result has the shape of `x`, or `shape`, of which place(*i) -> the indices in `x`.
    """
    stages, mean, deviation = _moments(x, axes, name, epsilon)
    read, wide = _read_wide(x), accumulator(x.dtype)

    def body(*i: Expr) -> Expr:
        at = i if place is None else place(*i)
        gamma, beta = (nodes.cast(p, wide) for p in parameters(at))
        y = (read(*at) - _along(mean, at)) * _along(deviation, at)
        return nodes.cast(y * gamma + beta, x.dtype)

    return [*stages, te.compute_one(x.shape if shape is None else shape, body, name)]


def numpy_normalised(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> np.ndarray:
    """Return `x` with mean 0 and variance 1 along `axes`, `epsilon` added to the variance."""
    centred = x - x.mean(axes, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(axes, keepdims=True) + epsilon))


def _instance_norm(a: EpsilonAttrs, x: Tensor, scale: Tensor, bias: Tensor) -> list[Tensor]:
    return normalised(
        x, range(2, x.ndim), "instance_norm", a.epsilon, lambda i: (scale[i[1]], bias[i[1]])
    )


def _infer_instance_norm(a: EpsilonAttrs, x: Type, scale: Type, bias: Type) -> Type:
    source = check_elements(x, FLOATS)
    if source.ndim < 3:
        raise TypeMismatch(f"instance_norm takes [batch, channels, spatial...], not {source}")
    return _infer_channels(a, x, scale, bias)


def _numpy_instance_norm(
    a: EpsilonAttrs, x: np.ndarray, scale: np.ndarray, bias: np.ndarray
) -> np.ndarray:
    y = numpy_normalised(x, tuple(range(2, x.ndim)), a.epsilon)
    return np.asarray(y * _per_channel(scale, x.ndim) + _per_channel(bias, x.ndim))


instance_norm: Operator[EpsilonAttrs] = register(
    Operator(
        name="instance_norm",
        infer=_infer_instance_norm,
        reference=numpy_reference(_numpy_instance_norm),
        compute=_instance_norm,
        rules=_channel_rules,
        attrs_type=EpsilonAttrs,
        fusion=Fusion.ANCHOR,
        examples=(
            Example(((2, 3, 4, 5), (3,), (3,))),
            Example(((1, 2, 30, 40), (2,), (2,)), {"epsilon": 1e-3}),
            Example(((2, 3, 70), (3,), (3,))),
            Example(((2, 3, 7), (3,), (3,)), {}, ("float64",) * 3),
            *half_examples(((2, 3, 9, 9), (3,), (3,))),
        ),
        flops=lambda a, x, *rest: 7 * x.elements,
    )
)


def _infer_layer_norm(a: LayerNormAttrs, x: Type, scale: Type, bias: Type) -> Type:
    source = check_elements(x, FLOATS)
    inner = source.shape[check_axis(a.axis, source.ndim) :]
    for p, name in ((scale, "scale"), (bias, "bias")):
        found = check_elements(p, FLOATS, f"the {name}")
        merged = broadcast_shapes(found.shape, inner)
        if len(merged) != len(inner) or not all(map(may_agree, merged, inner)):
            raise TypeMismatch(
                f"the {name} {found} does not broadcast to axes {a.axis} and up of {source}"
            )
    return source


def _layer_norm_rules(
    a: LayerNormAttrs, result: Type, x: Type, *parameters: Type
) -> Iterator[SizeRule]:
    inner = tensor_type(x).shape[a.axis :]
    for p in parameters:
        yield from aligned(tensor_type(p).shape, inner)


def _layer_norm(a: LayerNormAttrs, x: Tensor, scale: Tensor, bias: Tensor) -> list[Tensor]:
    return normalised(
        x,
        range(a.axis, x.ndim),
        "layer_norm",
        a.epsilon,
        lambda i: (_along(scale, i), _along(bias, i)),
    )


def _numpy_layer_norm(
    a: LayerNormAttrs, x: np.ndarray, scale: np.ndarray, bias: np.ndarray
) -> np.ndarray:
    y = numpy_normalised(x, tuple(range(a.axis, x.ndim)), a.epsilon)
    return np.asarray(y * scale + bias)


layer_norm: Operator[LayerNormAttrs] = register(
    Operator(
        name="layer_norm",
        infer=_infer_layer_norm,
        reference=numpy_reference(_numpy_layer_norm),
        compute=_layer_norm,
        rules=_layer_norm_rules,
        attrs_type=LayerNormAttrs,
        fusion=Fusion.ANCHOR,
        examples=(
            Example(((3, 5), (5,), (5,)), {"axis": 1}),
            Example(((2, 3, 768), (768,), (768,)), {"axis": 2}),
            Example(((2, 3, 4, 5), (3, 4, 5), (3, 4, 5)), {"axis": 1, "epsilon": 1e-12}),
            Example(((2, 20, 30), (30,), ()), {"axis": 1}),
            Example(
                ((2, 6), (1,), ()),
                {"axis": 1},
                low=998.0,
                high=1002.0,
                inputs={1: np.ones(1, np.float32), 2: np.zeros((), np.float32)},
                atol=2e-3,
            ),
            Example(((3, 4), (3, 4), (3, 4)), {"axis": 0}, ("float64",) * 3),
            *half_examples(((2, 3, 96), (96,), (96,)), axis=2),
        ),
        flops=lambda a, x, *rest: 7 * x.elements,
    )
)


def _infer_rms_norm(a: LayerNormAttrs, x: Type, scale: Type) -> Type:
    return _infer_layer_norm(a, x, scale, scale)


def _rms_norm(a: LayerNormAttrs, x: Tensor, scale: Tensor) -> list[Tensor]:
    read, dims, axes = _read_wide(x), dims_of(x), range(a.axis, x.ndim)
    count, wide = reduce_count(dims, axes), accumulator(x.dtype)
    total = reduce_stages(te.sum, lambda *i: read(*i) * read(*i), dims, axes, "rms_norm.squares")

    def inverse(*i: Expr) -> Expr:
        return 1.0 / te.sqrt(mean_of(total[-1][i], count) + a.epsilon)

    unit = te.compute_one(total[-1].shape, inverse, "rms_norm.inverse")

    def body(*i: Expr) -> Expr:
        y = read(*i) * _along(unit, i) * nodes.cast(_along(scale, i), wide)
        return nodes.cast(y, x.dtype)

    return [*total, unit, te.compute_one(x.shape, body, "rms_norm")]


def _numpy_rms_norm(a: LayerNormAttrs, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    square = (x * x).mean(tuple(range(a.axis, x.ndim)), keepdims=True)
    return np.asarray(x / np.sqrt(square + a.epsilon) * scale)


rms_norm: Operator[LayerNormAttrs] = register(
    Operator(
        name="rms_norm",
        infer=_infer_rms_norm,
        reference=numpy_reference(_numpy_rms_norm),
        compute=_rms_norm,
        rules=_layer_norm_rules,
        attrs_type=LayerNormAttrs,
        fusion=Fusion.ANCHOR,
        examples=(
            Example(((3, 5), (5,)), {"axis": 1}),
            Example(((2, 3, 512), (512,)), {"axis": 2, "epsilon": 1e-6}),
            Example(((2, 3, 4, 5), (3, 4, 5)), {"axis": 1}),
            Example(((2, 6), (1,)), {"axis": 1}),
            Example(((3, 4), (3, 4)), {"axis": 0}, ("float64",) * 2),
            *half_examples(((2, 3, 96), (96,)), axis=2),
        ),
        flops=lambda a, x, scale: 4 * x.elements,
    )
)
"""x / sqrt(mean of squares + epsilon) * scale, along the axes from `axis` on."""


# lrn


def _infer_lrn(a: LrnAttrs, x: Type) -> Type:
    source = check_elements(x, FLOATS)
    if source.ndim < 2 or a.size < 1:
        raise TypeMismatch(f"lrn with size={a.size} takes [batch, channels, ...], not {source}")
    return source


def _lower_power(t: Expr, beta: float) -> Expr:
    """Return t^-beta; the usual exponents by square roots, which are exact to the last bits."""
    if beta == 0.75:
        root = te.sqrt(t)
        return 1.0 / (root * te.sqrt(root))
    if beta == 0.5:
        return 1.0 / te.sqrt(t)
    return 1.0 / t if beta == 1.0 else te.power(t, te.const(-beta, t.dtype))


def _lrn(a: LrnAttrs, x: Tensor) -> list[Tensor]:
    read, dims = _read_wide(x), dims_of(x)
    r, before = te.reduce_axis((0, a.size), "r"), (a.size - 1) // 2

    def window(*i: Expr) -> Expr:
        c = i[1] + r - before
        value = read(i[0], c, *i[2:])
        inside = te.all(c >= 0, c < dims[1])
        return te.sum(te.if_then_else(inside, value * value, 0.0), [r])

    squares = te.compute_one(dims, window, "lrn.squares")

    def body(*i: Expr) -> Expr:
        t = squares[i] * (a.alpha / a.size) + a.bias
        return nodes.cast(read(*i) * _lower_power(t, a.beta), x.dtype)

    return [squares, te.compute_one(dims, body, "lrn")]


def _numpy_lrn(a: LrnAttrs, x: np.ndarray) -> np.ndarray:
    before = (a.size - 1) // 2
    widths = [(0, 0), (before, a.size - 1 - before)] + [(0, 0)] * (x.ndim - 2)
    padded = np.pad(x * x, widths)
    total = sum(padded[:, k : k + x.shape[1]] for k in range(a.size))
    return np.asarray(x / (a.bias + a.alpha / a.size * total) ** a.beta)


lrn: Operator[LrnAttrs] = register(
    Operator(
        name="lrn",
        infer=_infer_lrn,
        reference=numpy_reference(_numpy_lrn),
        compute=_lrn,
        attrs_type=LrnAttrs,
        fusion=Fusion.ANCHOR,
        examples=(
            Example(((2, 7, 3, 5),), {"size": 5}),
            Example(((1, 3, 4),), {"size": 4, "alpha": 0.5, "beta": 0.6, "bias": 2.0}),
            Example(((1, 6, 4),), {"size": 3, "alpha": 0.5, "beta": 0.5}),
            Example(((2, 6),), {"size": 1, "alpha": 0.5, "beta": 1.0}),
            Example(((1, 4, 3, 3),), {"size": 3, "alpha": 0.2}, ("float64",)),
            *half_examples(((1, 8, 6),), size=5, alpha=0.1),
        ),
        flops=lambda a, x: (2 * a.size + 6) * x.elements,
    )
)
