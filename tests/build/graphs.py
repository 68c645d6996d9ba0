# SPDX-License-Identifier: Apache-2.0
"""Random image networks out of graph operators: everything derives from one seed."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from treadle.graph.nodes import Constant, Function, Node, Tuple, Var
from treadle.graph.types import TensorType, tensor_type
from treadle.ops import activation
from treadle.ops import elementwise as ew
from treadle.ops.conv import conv
from treadle.ops.indexing import gather
from treadle.ops.matmul import matmul
from treadle.ops.movement import concat, pad, slice_
from treadle.ops.norm import softmax
from treadle.ops.pool import avg_pool, max_pool
from treadle.ops.reduce import max_, mean, sum_
from treadle.ops.reshaping import reshape, transpose

CHANNELS = (1, 3, 5, 8, 12, 16, 17, 20, 24, 32, 33)
MOST_ELEMENTS = 6000


def shape_of(node: Node) -> tuple[int, ...]:
    return tensor_type(node.type).static_shape


class Network:
    """A random function of one or two images; `inputs` are arrays for its parameters."""

    def __init__(self, seed: int, steps: int = 8) -> None:
        self.chance = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.dtype = self.chance.choice(("float32",) * 4 + ("float64",))
        self.params: list[Var] = []
        self.values: list[Node] = []
        self._input()
        for _ in range(self.chance.randint(2, steps)):
            self._step()
        self.function = Function(tuple(self.params), self._outputs(), "main")
        self.inputs = {p.name: self.array(*shape_of(p)) for p in self.params}

    def array(self, *shape: int) -> np.ndarray:
        """Return small integers in halves: sums of their products are exact."""
        return (self.numbers.integers(-4, 5, shape) / 2).astype(self.dtype)

    def constant(self, *shape: int) -> Constant:
        return Constant.of(self.array(*shape))

    def _input(self) -> Node:
        shape = (
            self.chance.choice((1, 1, 1, 2)),
            self.chance.choice(CHANNELS),
            self.chance.randint(2, 8),
            self.chance.randint(2, 8),
        )
        param = Var(f"x{len(self.params)}", TensorType(shape, self.dtype))
        self.params.append(param)
        self.values.append(param)
        return param

    def _outputs(self) -> Node:
        chance, values = self.chance, self.values
        results = [values[-1]]
        while chance.random() < 0.35:
            results.append(chance.choice(values))
        if chance.random() < 0.08:
            results.append(results[0])
        if chance.random() < 0.05:
            results.append(self.constant(3, 2))
        return results[0] if len(results) == 1 else Tuple.of(results)

    def _step(self) -> None:
        pool = self.values if self.chance.random() < 0.25 else self.values[-2:]
        x = self.chance.choice(pool)
        if len(shape_of(x)) != 4:
            made = self._flat(x)
        else:
            makers: list[Callable[[Node], Node | None]] = [
                self._conv, self._conv, self._conv, self._depthwise, self._grouped, self._unary,
                self._unary, self._residual, self._residual, self._by_constant, self._concat,
                self._concat, self._pool, self._squeeze, self._reduced, self._sliced,
                self._sliced, self._shuffled, self._padded, self._flattened, self._transposed,
            ]  # fmt: skip
            made = self.chance.choice(makers)(x)
        if made is not None and 0 < tensor_type(made.type).size <= MOST_ELEMENTS:
            self.values.append(made)

    # -- convolutions ----------------------------------------------------------------------------

    def _conv_of(self, x: Node, filters: int, groups: int) -> Node | None:
        _, channels, height, width = shape_of(x)
        chance = self.chance
        kernel = (chance.choice((1, 1, 3, 2)), chance.choice((1, 3, 3)))
        before = tuple(chance.randint(0, k - 1) for k in kernel)
        after = tuple(chance.randint(0, k - 1) for k in kernel)
        strides = (chance.choice((1, 1, 2)), chance.choice((1, 1, 2)))
        dilations = (chance.choice((1, 1, 2)), 1)
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        if height + before[0] + after[0] < reach[0] or width + before[1] + after[1] < reach[1]:
            return None
        weights = self.constant(filters, channels // groups, *kernel)
        made: Node = conv(
            x, weights, strides=strides, pads_before=before, pads_after=after,
            dilations=dilations, groups=groups,
        )  # fmt: skip
        if chance.random() < 0.5:
            made = ew.add(made, self.constant(1, filters, 1, 1))
        return ew.relu(made) if chance.random() < 0.4 else made

    def _conv(self, x: Node) -> Node | None:
        return self._conv_of(x, self.chance.choice(CHANNELS), 1)

    def _depthwise(self, x: Node) -> Node | None:
        channels = shape_of(x)[1]
        return self._conv_of(x, channels, channels)

    def _grouped(self, x: Node) -> Node | None:
        channels = shape_of(x)[1]
        groups = self.chance.choice([g for g in (1, 2, 3, 4, 5, 8) if channels % g == 0])
        return self._conv_of(x, groups * self.chance.choice((1, 2, 3, 4, 8, 16)), groups)

    # -- element by element ----------------------------------------------------------------------

    def _unary(self, x: Node) -> Node:
        kind = self.chance.randrange(6)
        if kind == 0:
            return ew.relu(x)
        if kind == 1:
            return ew.clip(x, min=-3.0, max=6.0)
        if kind == 2:
            return ew.sigmoid(x)
        if kind == 3:
            positive = ew.add(ew.abs(x), Constant.of(1.0, self.dtype))
            return self.chance.choice((ew.sqrt, ew.log, ew.rsqrt, ew.reciprocal))(positive)
        if kind == 4:
            return activation.leaky_relu(x)
        return ew.negative(x)

    def _binary(self, a: Node, b: Node) -> Node:
        kind = self.chance.randrange(6)
        if kind == 5:
            return ew.divide(a, ew.add(ew.abs(b), Constant.of(0.5, self.dtype)))
        return (ew.add, ew.add, ew.subtract, ew.multiply, ew.maximum)[kind](a, b)

    def _residual(self, x: Node) -> Node | None:
        """With another value of the same shape, or with an image of the right channels."""
        same = [v for v in self.values if v is not x and shape_of(v) == shape_of(x)]
        if not same:
            n, _, height, width = shape_of(x)
            same = [
                v for v in self.values
                if len(shape_of(v)) == 4 and shape_of(v)[0] == n and shape_of(v)[1] == 1
                and shape_of(v)[2:] == (height, width) and v is not x
            ]  # fmt: skip
        if not same:
            return None
        pair = [x, self.chance.choice(same)]
        self.chance.shuffle(pair)
        return self._binary(*pair)

    def _by_constant(self, x: Node) -> Node:
        _, channels, height, width = shape_of(x)
        shape = self.chance.choice(
            [(), (1,), (channels, 1, 1), (1, channels, 1, 1), (height, width), (1, 1, height, 1)]
        )
        return self._binary(x, self.constant(*shape))

    # -- moves -----------------------------------------------------------------------------------

    def _concat(self, x: Node) -> Node | None:
        axis = self.chance.choice((1, 1, 1, 1, 2, 0))
        shape = shape_of(x)
        fits = [
            v for v in self.values
            if len(shape_of(v)) == 4
            and all(shape_of(v)[k] == shape[k] for k in range(4) if k != axis)
        ]  # fmt: skip
        parts = [x, *self.chance.choices(fits, k=self.chance.randint(1, 2))]
        self.chance.shuffle(parts)
        return concat(*parts, axis=axis)

    def _sliced(self, x: Node) -> Node:
        axis = self.chance.choice((1, 1, 2, 3))
        extent = shape_of(x)[axis]
        begin = self.chance.choice([b for b in (0, 1, 8, 16) if b < extent])
        end = self.chance.randint(begin + 1, extent)
        step = self.chance.choice((1, 1, 1, 2))
        return slice_(x, begin=(begin,), end=(end,), strides=(step,), axes=(axis,))

    def _shuffled(self, x: Node) -> Node:
        n, channels, height, width = shape_of(x)
        groups = self.chance.choice([g for g in (1, 2, 3, 4) if channels % g == 0])
        if self.chance.random() < 0.3:
            order = self.numbers.permutation(channels)
            return gather(x, Constant.of(order.astype(np.int64)), axis=1)
        split = reshape(x, shape=(n, groups, channels // groups, height, width))
        moved = transpose(split, perm=(0, 2, 1, 3, 4))
        return reshape(moved, shape=(n, channels, height, width))

    def _padded(self, x: Node) -> Node:
        amount = [self.chance.randint(0, 2) for _ in range(4)]
        value = self.chance.choice((0.0, 0.0, 1.5))
        return pad(x, before=(0, 0, *amount[:2]), after=(0, 0, *amount[2:]), value=value)

    def _flattened(self, x: Node) -> Node:
        shape = shape_of(x)
        return reshape(x, shape=(shape[0], int(np.prod(shape[1:]))))

    def _transposed(self, x: Node) -> Node:
        return transpose(x, perm=(0, 1, 3, 2))

    # -- combinations ----------------------------------------------------------------------------

    def _pool(self, x: Node) -> Node | None:
        _, _, height, width = shape_of(x)
        if min(height, width) < 2:
            return None
        operator = self.chance.choice((max_pool, avg_pool))
        kernel = self.chance.choice(((2, 2), (1, 2), (2, 1)))
        strides = (self.chance.randint(1, 2), self.chance.randint(1, 2))
        before = (0, self.chance.randint(0, kernel[1] - 1))
        return operator(x, kernel=kernel, strides=strides, pads_before=before, pads_after=(0, 0))

    def _reduced(self, x: Node) -> Node:
        operator = self.chance.choice((mean, sum_, max_))
        axes = self.chance.choice(((2, 3), (2, 3), (1,), (3,)))
        return operator(x, axes=axes, keepdims=self.chance.random() < 0.6)

    def _squeeze(self, x: Node) -> Node:
        """Squeeze and excite: an image scaled by what its mean says."""
        channels = shape_of(x)[1]
        small = mean(x, axes=(2, 3), keepdims=True)
        weights = self.constant(channels, channels, 1, 1)
        return ew.multiply(x, ew.sigmoid(conv(small, weights)))

    def _flat(self, x: Node) -> Node | None:
        kind = self.chance.randrange(4)
        if kind == 0 and len(shape_of(x)) == 2:
            wide = self.chance.choice((1, 4, 10, 16, 33))
            return matmul(x, self.constant(shape_of(x)[1], wide))
        if kind == 1 and shape_of(x):
            return softmax(x, axis=len(shape_of(x)) - 1)
        if kind == 2:
            return ew.relu(x)
        return self._input()
