# SPDX-License-Identifier: Apache-2.0
"""An importer of aten operators as torch.export lists them, without torch: what the tests import.

It proves that builders are enough for a second importer, so it reads its own records alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.frontend.builders import activations, attention, conv, pool, recurrent, reduce, resize
from treadle.frontend.builders.basic import (
    axes_from_front,
    axis_from_front,
    converted,
    dims_of,
    operands,
    scalar_like,
    transposed,
)
from treadle.frontend.builders.closure import anchored
from treadle.frontend.builders.dynamic_operands import AxisRange, MeasuredSizes, sliced_at_run
from treadle.frontend.builders.elementwise import clipped, power
from treadle.frontend.builders.matmul import general_product, linear, product
from treadle.frontend.builders.movement import (
    concatenated,
    depth_to_space,
    padded,
    sliced,
    split_at,
    taken,
    tiled,
)
from treadle.frontend.builders.norm import (
    ChannelStatistics,
    batch_normalized,
    group_normalized,
    layer_normalized,
)
from treadle.frontend.builders.ranges import one_hot, range_of_sizes
from treadle.frontend.builders.shapes import expanded, flattened, reshaped_to, squeezed, unsqueezed
from treadle.frontend.builders.windows import Window, window_of
from treadle.frontend.importer import ConverterTable, UnsupportedList, stamp_origin
from treadle.graph.nodes import Constant, Function, Module, Node, Tuple, Var
from treadle.graph.types import Dim, TensorType, tensor_type
from treadle.ops import activation, cumulative, elementwise, norm

Arguments = Sequence[Any]  # Any: nodes, numbers, lists, None
Converter = Callable[..., "Node | Sequence[Node]"]

TABLE: ConverterTable[Converter] = ConverterTable()
FAR = (1 << 63) - 1


@dataclass(frozen=True)
class Ref:
    """A value that an earlier operator made: its name, and which of several results."""

    name: str
    index: int = 0


@dataclass(frozen=True)
class AtenNode:
    """One operator: `target` such as "aten.relu", with references and plain values."""

    name: str
    target: str
    args: tuple[Any, ...]


@dataclass
class _Graph:
    values: dict[str, Sequence[Node]] = field(default_factory=dict)
    sizes: MeasuredSizes = field(default_factory=lambda: MeasuredSizes("size"))

    def resolved(self, arg: Any) -> Any:
        if isinstance(arg, Ref):
            return self.values[arg.name][arg.index]
        return [self.resolved(a) for a in arg] if isinstance(arg, (list, tuple)) else arg


def import_aten(
    nodes: Sequence[AtenNode],
    inputs: Mapping[str, tuple[Sequence[Dim], str]],
    outputs: Sequence[Ref],
) -> Module:
    """Return operators as a graph module; an input is its shape and element type."""
    missing = UnsupportedList()
    for node in nodes:
        if TABLE.find("aten", node.target, 1, exact=False) is None:
            missing.add("aten", node.target, 1, node.name)
    missing.raise_if_any("the exported program")
    graph = _Graph()
    params = [Var(n, TensorType(tuple(s), d), n) for n, (s, d) in inputs.items()]
    graph.values.update({p.name: [p] for p in params})
    for node in nodes:
        convert = TABLE.find("aten", node.target, 1, exact=False)
        assert convert is not None
        args = [graph.resolved(a) for a in node.args]
        made = convert(*args, **({"sizes": graph.sizes} if node.target == "aten.head" else {}))
        results = list(made) if isinstance(made, Sequence) else [made]
        stamp_origin(results, [a for a in args if isinstance(a, Node)], node.name)
        graph.values[node.name] = results
    results = anchored([graph.resolved(o) for o in outputs], graph.sizes.values)
    body = results[0] if len(results) == 1 else Tuple.of(results)
    return Module(Function(tuple(params), body, "main"))


def aten(*names: str) -> Callable[[Converter], Converter]:
    return TABLE.converter(*(f"aten.{n}" for n in names), since=(1,), domain="aten")


def _axis(axis: int, x: Node) -> int:
    return axis_from_front(axis, len(dims_of(x)), "aten")


def _axes(axes: Sequence[int] | None, x: Node) -> tuple[int, ...]:
    ndim = len(dims_of(x))
    return axes_from_front(axes, ndim, "aten") if axes else tuple(range(ndim))


def _number(value: object, like: Node) -> Node:
    return value if isinstance(value, Node) else scalar_like(float(str(value)), like)


def _binary(op: Callable[[Node, Node], Node]) -> Converter:
    return lambda a, b: op(*operands(a, _number(b, a)))


for _name in ("relu", "sigmoid", "tanh", "exp", "abs", "sqrt"):
    aten(_name)(getattr(elementwise, _name))
aten("silu")(activations.swish)
aten("add")(_binary(elementwise.add))
aten("sub")(_binary(elementwise.subtract))
aten("mul")(_binary(elementwise.multiply))
aten("div")(_binary(elementwise.divide))
aten("matmul")(product)
aten("linear")(linear)
aten("embedding")(lambda weights, indices: taken(weights, indices, 0, "aten.embedding"))
aten("permute")(lambda x, dims: transposed(x, axes_from_front(dims, len(dims), "permute")))
aten("view")(reshaped_to)
aten("expand")(lambda x, s: expanded(x, [1 if d == -1 else d for d in s]))
aten("unsqueeze")(lambda x, dim: unsqueezed(x, [dim]))
aten("squeeze")(lambda x, dim: squeezed(x, [_axis(dim, x)]))
aten("flatten")(lambda x, first, last: flattened(x, _axis(first, x), _axis(last, x) + 1))
aten("repeat")(tiled)
aten("pixel_shuffle")(lambda x, block: depth_to_space(x, block, "CRD"))
aten("_softmax")(lambda x, dim: norm.softmax(x, axis=_axis(dim, x)))
aten("cumsum")(lambda x, dim: cumulative.cumsum(x, axis=_axis(dim, x)))
aten("adaptive_avg_pool2d")(pool.adaptive_average_pooled)
aten("adaptive_max_pool2d")(pool.adaptive_max_pooled)
aten("mean")(lambda x, dims, keep: reduce.mean(x, _axes(dims, x), keep))
aten("sum")(lambda x, dims, keep: reduce.total(x, _axes(dims, x), keep))
aten("amax")(lambda x, dims, keep: reduce.largest(x, _axes(dims, x), keep))
aten("logsumexp")(lambda x, dims, keep: reduce.log_sum_exp(x, _axes(dims, x), keep))
aten("_to_copy")(converted)


@aten("gelu")
def gelu(x: Node, approximate: str = "none") -> Node:
    return activation.gelu(x, approximate=approximate)


@aten("pow")
def _pow(x: Node, exponent: object) -> Node:
    return power(*operands(x, _number(exponent, x)))


@aten("clamp")
def clamp(x: Node, low: float | None, high: float | None) -> Node:
    bounds = [None if b is None else scalar_like(b, x) for b in (low, high)]
    return clipped(x, bounds[0], bounds[1])


@aten("where")
def where(condition: Node, a: Node, b: Node) -> Node:
    return elementwise.where(*operands(condition, a, b))


@aten("addmm")
def addmm(c: Node, a: Node, b: Node, beta: float, alpha: float) -> Node:
    return general_product(a, b, c, alpha=alpha, beta=beta)


@aten("arange")
def arange(start: int, end: int, step: int) -> Node:
    return range_of_sizes(start, end, step)


@aten("argmax")
def argmax(x: Node, dim: int, keepdim: bool) -> Node:
    return reduce.extreme_index(x, _axis(dim, x), is_largest=True, keepdims=keepdim)


@aten("one_hot")
def _one_hot(x: Node, classes: int) -> Node:
    off, on = (Constant.of(v, "int64") for v in (0, 1))
    return one_hot(x, classes, off, on, len(dims_of(x)))


@aten("cat")
def cat(values: Sequence[Node], dim: int) -> Node:
    return concatenated(values, _axis(dim, values[0]))


@aten("stack")
def stack(values: Sequence[Node], dim: int) -> Node:
    return concatenated([unsqueezed(v, [dim]) for v in values], dim)


@aten("split")
def split(x: Node, size: int, dim: int) -> Sequence[Node]:
    axis = _axis(dim, x)
    extent = dims_of(x)[axis]
    assert isinstance(extent, int)
    starts = range(0, extent, size)
    return split_at(x, axis, [min(size, extent - s) for s in starts])


@aten("slice")
def slice_(x: Node, dim: int, start: int, end: int | None, step: int) -> Node:
    return sliced(x, [AxisRange(_axis(dim, x), start, FAR if end is None else end, step)])


@aten("head")
def head(x: Node, count: Node, sizes: MeasuredSizes) -> Node:
    """Not an operator of torch: x[:count] with a `count` that only a run knows."""
    return sliced_at_run(x, [AxisRange(0, 0, count)], sizes.measure)


@aten("select")
def select(x: Node, dim: int, index: int) -> Node:
    axis = _axis(dim, x)
    end = index + 1 if index != -1 else FAR
    return squeezed(sliced(x, [AxisRange(axis, index, end)]), [axis])


@aten("constant_pad_nd")
def constant_pad_nd(x: Node, pad: Sequence[int], value: float) -> Node:
    before, after = [0] * len(dims_of(x)), [0] * len(dims_of(x))
    for k in range(len(pad) // 2):
        before[-1 - k], after[-1 - k] = pad[2 * k], pad[2 * k + 1]
    return padded(x, before, after, value=value)


def _window(kernel: Sequence[int], *steps: Sequence[int]) -> Window:
    stride, padding, dilation = steps
    return window_of(kernel, stride or kernel, dilation, padding)


@aten("convolution")
def convolution(
    x: Node,
    w: Node,
    bias: Node | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    is_transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Node:
    kernel = tensor_type(w.type).static_shape[2:]
    window = window_of(kernel, stride, dilation, padding)
    if is_transposed:
        made = conv.transposed_convolved(x, w, window, groups, output_padding)
    else:
        made = conv.convolved(x, w, window, groups)
    return conv.with_bias(made, bias)


@aten("max_pool2d")
def max_pool2d(
    x: Node,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> Node:
    return pool.max_pooled(x, _window(kernel, stride, padding, dilation), ceil_mode=ceil_mode)


@aten("avg_pool2d")
def avg_pool2d(
    x: Node,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
) -> Node:
    window = _window(kernel, stride, padding, (1,) * len(kernel))
    return pool.average_pooled(x, window, ceil_mode=ceil_mode, count_include_pad=count_include_pad)


@aten("batch_norm")
def batch_norm(x: Node, *channels: Any) -> Node:
    *vectors, epsilon = channels
    return batch_normalized(x, ChannelStatistics(*vectors), epsilon)


@aten("layer_norm")
def layer_norm(
    x: Node, shape: Sequence[int], scale: Node | None, shift: Node | None, epsilon: float
) -> Node:
    return layer_normalized(x, len(dims_of(x)) - len(shape), scale, shift, epsilon)


@aten("group_norm")
def group_norm(
    x: Node, groups: int, scale: Node | None, shift: Node | None, epsilon: float
) -> Node:
    return group_normalized(x, groups, scale, shift, epsilon)


@aten("upsample_nearest2d")
def upsample_nearest2d(x: Node, size: Sequence[int]) -> Node:
    target = resize.target_by_sizes(x, dict(enumerate(size, start=2)))
    return resize.resized(x, target, resize.Sampling("nearest", "asymmetric", "floor"))


@aten("upsample_bilinear2d")
def upsample_bilinear2d(x: Node, size: Sequence[int], align_corners: bool) -> Node:
    target = resize.target_by_sizes(x, dict(enumerate(size, start=2)))
    rule = "align_corners" if align_corners else "half_pixel"
    return resize.resized(x, target, resize.Sampling("linear", rule))


@aten("scaled_dot_product_attention")
def scaled_dot_product_attention(
    q: Node, k: Node, v: Node, mask: Node | None, is_causal: bool, scale: float | None
) -> Node:
    added = [] if mask is None else [mask]
    return attention.attended(q, k, v, scale=scale, added=added, causal=is_causal)


def _directions(
    order: Sequence[int], weights: Sequence[Node], states: Sequence[Node]
) -> list[recurrent.DirectionWeights]:
    """Return the directions of one layer: torch lists w_ih, w_hh, b_ih, b_hh of each."""
    made = []
    for d in range(len(weights) // 4):
        parts = [recurrent.with_gates(w, order) for w in weights[4 * d : 4 * d + 4]]
        start = tuple(recurrent.row_of(s, d, 0) for s in states)
        made.append(recurrent.DirectionWeights(*parts, start=start, backwards=d == 1))
    return made


def _as_torch(states: Node, *last: Node) -> list[Node]:
    """Return [steps, directions, batch, hidden] as [steps, batch, directions * hidden]."""
    return [flattened(transposed(states, (0, 2, 1, 3)), 2, 4), *last]


@aten("lstm")
def lstm(x: Node, states: Sequence[Node], weights: Sequence[Node]) -> Sequence[Node]:
    directions = _directions((0, 3, 1, 2), weights, states)
    return _as_torch(*recurrent.lstm(recurrent.Sequences(x), directions))


@aten("gru")
def gru(x: Node, state: Node, weights: Sequence[Node]) -> Sequence[Node]:
    directions = _directions((1, 0, 2), weights, [state])
    over = recurrent.Sequences(x)
    return _as_torch(*recurrent.gru(over, directions, linear_before_reset=True))
