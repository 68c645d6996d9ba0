# SPDX-License-Identifier: Apache-2.0
"""Sliding windows: what convolution and pooling share about output extents and padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Const, Expr, convert, minimum
from treadle.graph.size_rules import SizeRule
from treadle.graph.types import Dim, TensorType, normal_size
from treadle.ops.numeric import dims_of


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """One spatial axis that a window slides along; `before` and `after` are its padding."""

    size: Dim
    kernel: int
    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1

    @property
    def extent(self) -> int:
        """How many elements the window spans, skipped elements of a dilation included."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def out(self) -> Dim:
        """How many windows fit completely into the padded axis; none where it lacks one stride."""
        spare = self.before + self.after - self.extent
        if isinstance(self.size, int) and 0 > self.size + spare != -self.stride:
            raise TypeMismatch(
                f"a window of {self.extent} does not fit into {self.size} elements padded by "
                f"{self.before} and {self.after}",
                hint="check kernel shape, dilations and pads",
            )
        if self.stride == 1:
            return grown(self.size, spare + 1)
        return grown(self.size, spare) // self.stride + 1

    @property
    def is_padded(self) -> bool:
        """True when the axis has padding on either side."""
        return self.before != 0 or self.after != 0

    def position(self, window: Expr, tap: Expr) -> Expr:
        """Return the index into the padded axis of element `tap` of window number `window`."""
        return scaled(window, self.stride) + scaled(tap, self.dilation)

    def taps(self, outputs: int) -> list[slice]:
        """Return for every tap the slice of the padded axis that all windows read with it."""
        last = (outputs - 1) * self.stride + 1
        starts = [k * self.dilation for k in range(self.kernel)]
        return [slice(s, s + last if outputs else s, self.stride) for s in starts]


def grown(size: Dim, amount: int) -> Dim:
    """Return size + amount; `size` itself where amount is 0."""
    return size if amount == 0 else size + amount


def scaled(index: Expr, factor: int) -> Expr:
    """Return index * factor, written without the product where factor is 1."""
    return index if factor == 1 else index * factor


def window_axes(
    sizes: Sequence[Dim],
    kernel: Sequence[int],
    strides: Sequence[int],
    pads_before: Sequence[int],
    pads_after: Sequence[int],
    dilations: Sequence[int],
) -> tuple[WindowAxis, ...]:
    """Return the axes of a window over `sizes`; an empty attribute means 1 (0 for pads) everywhere.

    Raises:
        TypeMismatch: an attribute has the wrong number of entries or an impossible value.
    """
    n = len(sizes)
    return tuple(
        map(
            WindowAxis,
            sizes,
            per_axis("kernel", kernel, n, least=1),
            per_axis("strides", strides, n, least=1),
            per_axis("pads_before", pads_before, n, least=0),
            per_axis("pads_after", pads_after, n, least=0),
            per_axis("dilations", dilations, n, least=1),
        )
    )


def whole_rules(axes: Sequence[WindowAxis], first: int = 2) -> Iterator[SizeRule]:
    """Yield the rules that an axis that is smaller than the window lacks whole strides.

    Then the quotient is exact, and there are none or a negative number of windows; else the
    implementations of ONNX disagree about whether one that hangs over counts.
    """
    for k, axis in enumerate(axes, start=first):
        whole = convert(grown(axis.size, axis.before + axis.after))
        span = whole - axis.extent
        low, high = span // axis.stride, (span + (axis.stride - 1)) // axis.stride
        hangs = minimum(high, 0) - minimum(low, 0)  # 1 where the quotient is rounded, else 0
        yield SizeRule("within", normal_size(hangs * axis.extent), normal_size(whole), k)


def per_axis(name: str, values: Sequence[int], n: int, *, least: int | None) -> tuple[int, ...]:
    """Return `values` checked to be one per spatial axis; empty means the default everywhere.

    The default is `least`, or 0 where any value is allowed (`least` is None).
    """
    if not values:
        return (least or 0,) * n
    if len(values) != n:
        raise TypeMismatch(f"{name} {tuple(values)} must have one entry for each of {n} axes")
    if least is not None and min(values) < least:
        raise TypeMismatch(f"{name} {tuple(values)} must not be below {least}")
    return tuple(values)


def inside(index: Expr, size: Dim, before: int, after: int) -> list[Expr]:
    """Return what must hold for `index`, taken `before` elements early, to be in [0, size)."""
    checks: list[Expr] = []
    if before > 0:
        checks.append(index >= before)
    if after > 0:
        checks.append(index < grown(size, before))
    return checks


def shifted(index: Expr, before: int) -> Expr:
    """Return index - before; `index` itself where before is 0."""
    return index if before == 0 else index - before


def pad_stage(x: te.Tensor, before: Sequence[int], after: Sequence[int]) -> te.Tensor | None:
    """Return the stage "pad": x with zeros around it, negative amounts crop; None if unpadded.

    `before` and `after` have one entry per dimension of `x`.
    """
    if not any(before) and not any(after):
        return None
    sizes = dims_of(x)
    shape = [grown(d, b + a) for d, b, a in zip(sizes, before, after, strict=True)]

    def element(*index: Expr) -> Expr:
        checks: list[Expr] = []
        for i, size, b, a in zip(index, sizes, before, after, strict=True):
            checks += inside(i, size, b, a)
        value = x[tuple(map(shifted, index, before))]
        if not checks:
            return value
        return te.if_then_else(te.all(*checks), value, Const.of(0, x.dtype))

    return te.compute_one(shape, element, name="pad")


def known(dims: Iterable[Dim]) -> tuple[int, ...]:
    """Return extents that must be ints, such as those of arrays."""
    return TensorType(tuple(dims), "bool").static_shape


def positions(
    axes: Sequence[WindowAxis], windows: Sequence[Expr], taps: Sequence[Expr]
) -> tuple[Expr, ...]:
    """Return the index into the padded axes of a tap of a window."""
    return tuple(a.position(o, k) for a, o, k in zip(axes, windows, taps, strict=True))


def kernel_axes(kernel: Sequence[int], name: str = "k") -> tuple[te.IterVar, ...]:
    """Return reduction axes over a window, called kh and kw in two dimensions."""
    names = ("h", "w") if len(kernel) == 2 else tuple(map(str, range(len(kernel))))
    return tuple(te.reduce_axis((0, k), f"{name}{n}") for k, n in zip(kernel, names, strict=True))


def pad_array(x: np.ndarray, first: int, axes: Sequence[WindowAxis], value: object) -> np.ndarray:
    """Return `x` padded with `value` along dimensions first, first + 1, ... as `axes` say."""
    if not any(a.is_padded for a in axes):
        return x
    width = [(0, 0)] * x.ndim
    width[first : first + len(axes)] = [(a.before, a.after) for a in axes]
    return np.pad(x, width, constant_values=value)  # type: ignore[call-overload, no-any-return]


def tap_views(
    x: np.ndarray, axes: Sequence[WindowAxis], outputs: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """Yield every tap of a window with what all windows read with it: [..., *outputs].

    The axes are the last dimensions of `x`, which is padded as far as the windows reach.
    """
    lead = (slice(None),) * (x.ndim - len(axes))
    slices = [a.taps(o) for a, o in zip(axes, outputs, strict=True)]
    for tap in product(*(range(a.kernel) for a in axes)):
        at = tuple(s[k] for s, k in zip(slices, tap, strict=True))
        yield tap, x[lead + at]
