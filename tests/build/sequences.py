# SPDX-License-Identifier: Apache-2.0
"""Random networks over sequences, as transformers are: everything derives from one seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.build.graphs import Network, shape_of
from treadle.graph.nodes import Constant, Node, Var
from treadle.graph.types import TensorType
from treadle.ops import elementwise as ew
from treadle.ops.indexing import gather
from treadle.ops.matmul import matmul
from treadle.ops.movement import concat, pad, slice_
from treadle.ops.norm import layer_norm, softmax
from treadle.ops.reduce import max_, mean, sum_
from treadle.ops.reshaping import broadcast_to, reshape, transpose

WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 17, 24, 32, 33)


class Sequence(Network):
    """A random function of tensors of rank 0 to 5."""

    def _input(self) -> Node:
        rank = self.chance.choice((0, 1, 2, 3, 3, 3, 4))
        shape = tuple(self.chance.choice(WIDTHS[:9]) for _ in range(rank))
        param = Var(f"x{len(self.params)}", TensorType(shape, self.dtype))
        self.params.append(param)
        self.values.append(param)
        return param

    def _step(self) -> None:
        pool = self.values if self.chance.random() < 0.25 else self.values[-2:]
        x = self.chance.choice(pool)
        makers: list[Callable[[Node], Node | None]] = [
            self._product, self._product, self._attention, self._unary, self._unary, self._both,
            self._both, self._turned, self._reshaped, self._normed, self._soft, self._part,
            self._joined, self._picked, self._combined, self._widened, self._bordered, self._chosen,
            lambda _: self._input(),
        ]  # fmt: skip
        made = self.chance.choice(makers)(x)
        if made is not None and 0 < int(np.prod(shape_of(made))) <= 4000:
            self.values.append(made)

    def _axis(self, x: Node) -> int | None:
        rank = len(shape_of(x))
        return self.chance.randrange(rank) if rank else None

    def _product(self, x: Node) -> Node | None:
        shape = shape_of(x)
        if len(shape) < 2:
            return None
        made = matmul(x, self.constant(shape[-1], self.chance.choice(WIDTHS)))
        return ew.add(made, self.constant(shape_of(made)[-1]))

    def _attention(self, x: Node) -> Node | None:
        shape = shape_of(x)
        if len(shape) < 2:
            return None
        last = len(shape) - 1
        perm = (*range(last - 1), last, last - 1)
        scores = matmul(x, transpose(x, perm=perm))
        return matmul(softmax(scores, axis=last), x)

    def _both(self, x: Node) -> Node | None:
        shape = shape_of(x)
        fits = [v for v in self.values if _broadcasts(shape_of(v), shape)]
        other = self.chance.choice(fits) if fits and self.chance.random() < 0.7 else None
        if other is None:
            kept = shape[self.chance.randint(0, len(shape)) :]
            other = self.constant(*(1 if self.chance.random() < 0.3 else d for d in kept))
        return self._binary(*((x, other) if self.chance.random() < 0.5 else (other, x)))

    def _turned(self, x: Node) -> Node | None:
        perm = list(range(len(shape_of(x))))
        self.chance.shuffle(perm)
        return transpose(x, perm=tuple(perm)) if perm else None

    def _reshaped(self, x: Node) -> Node | None:
        shape = list(shape_of(x))
        axis = self._axis(x)
        if axis is None or len(shape) >= 5:
            return reshape(x, shape=(int(np.prod(shape)),))
        if axis + 1 < len(shape) and self.chance.random() < 0.5:
            shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
        else:
            factor = self.chance.choice([f for f in (1, 2, 3, 4, 8) if shape[axis] % f == 0])
            shape[axis : axis + 1] = [shape[axis] // factor, factor]
        return reshape(x, shape=tuple(shape))

    def _normed(self, x: Node) -> Node | None:
        shape = shape_of(x)
        if not shape:
            return None
        width = shape[-1]
        return layer_norm(x, self.constant(width), self.constant(width), axis=len(shape) - 1)

    def _soft(self, x: Node) -> Node | None:
        axis = self._axis(x)
        return None if axis is None else softmax(x, axis=axis)

    def _part(self, x: Node) -> Node | None:
        axis = self._axis(x)
        if axis is None:
            return None
        extent = shape_of(x)[axis]
        begin = self.chance.randrange(extent)
        end = self.chance.randint(begin + 1, extent)
        step = self.chance.choice((1, 1, 2))
        return slice_(x, begin=(begin,), end=(end,), strides=(step,), axes=(axis,))

    def _joined(self, x: Node) -> Node | None:
        axis = self._axis(x)
        if axis is None:
            return None
        fits = [
            v for v in self.values
            if len(shape_of(v)) == len(shape_of(x))
            and all(a == b or k == axis
                    for k, (a, b) in enumerate(zip(shape_of(v), shape_of(x), strict=True)))
        ]  # fmt: skip
        return concat(x, *self.chance.choices(fits, k=self.chance.randint(1, 2)), axis=axis)

    def _picked(self, x: Node) -> Node | None:
        axis = self._axis(x)
        if axis is None:
            return None
        shape = self.chance.choice(((), (3,), (2, 2)))
        return gather(x, Constant.of(self.numbers.integers(0, shape_of(x)[axis], shape)), axis=axis)

    def _combined(self, x: Node) -> Node | None:
        axis = self._axis(x)
        if axis is None:
            return None
        operator = self.chance.choice((sum_, mean, max_))
        axes = (axis,) if self.chance.random() < 0.7 else tuple(range(len(shape_of(x))))
        return operator(x, axes=axes, keepdims=self.chance.random() < 0.5)

    def _widened(self, x: Node) -> Node:
        shape = tuple(2 if d == 1 else d for d in shape_of(x))
        return broadcast_to(x, shape=(self.chance.randint(1, 3), *shape))

    def _bordered(self, x: Node) -> Node | None:
        axis = self._axis(x)
        if axis is None:
            return None
        before, after = [0] * len(shape_of(x)), [0] * len(shape_of(x))
        before[axis], after[axis] = self.chance.randint(0, 2), self.chance.randint(0, 2)
        return pad(x, before=tuple(before), after=tuple(after), value=0.5)

    def _chosen(self, x: Node) -> Node:
        test = ew.less(x, Constant.of(0.5, self.dtype))
        if self.chance.random() < 0.5:
            return ew.cast(test, dtype=self.dtype)
        return ew.where(test, x, ew.multiply(x, Constant.of(2.0, self.dtype)))


def _broadcasts(small: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    if len(small) > len(whole):
        return False
    tail = whole[len(whole) - len(small) :]
    return all(a in (1, b) for a, b in zip(small, tail, strict=True))
