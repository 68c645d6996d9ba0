# SPDX-License-Identifier: Apache-2.0
"""How a kernel slides over data: the record that convolutions and pools of all importers share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from treadle.errors import ModelError
from treadle.expr.nodes import convert, maximum
from treadle.frontend.builders.basic import dims_of
from treadle.frontend.builders.movement import padded
from treadle.graph.nodes import Node
from treadle.graph.types import Dim, known_sizes, normal_size
from treadle.ops import sizes


@dataclass(frozen=True, slots=True)
class Window:
    """How a kernel slides over the spatial axes, one entry per axis, nothing left out.

    `before` and `after` are how many elements of padding an axis gets; below 0 elements are cut
    off. An amount that depends on a symbolic size is at least 0 and less than the kernel's extent.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[Dim, ...]
    after: tuple[Dim, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """How many elements the kernel spans per axis, dilation included."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def known_pads(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The padding before and after as ints. Raises TypeMismatch when an amount is symbolic."""
        return known_sizes(self.before, "the padding"), known_sizes(self.after, "the padding")

    @property
    def has_known_pads(self) -> bool:
        """True unless an amount of padding depends on a symbolic size."""
        return all(isinstance(p, int) for p in (*self.before, *self.after))


def window_of(
    kernel: Sequence[int],
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    before: Sequence[int] | None = None,
    after: Sequence[int] | None = None,
) -> Window:
    """Return a window with what is left out written out: strides and dilations of 1, no padding.

    `after` is as `before` where it is left out.

    Raises: ModelError unless there is one number per axis, strides and dilations above 0.
    """
    n = len(kernel)
    start = _padding(before, n)
    end = start if after is None else _padding(after, n)
    return Window(
        tuple(kernel), _steps("strides", strides, n), _steps("dilations", dilations, n), start, end
    )


def _steps(name: str, values: Sequence[int] | None, n: int) -> tuple[int, ...]:
    """Return a positive integer per axis, 1 where nothing is given."""
    if values is None:
        return (1,) * n
    if len(values) != n or min(values, default=1) < 1:
        raise ModelError(f"{name} {list(values)} must be one positive number for each of {n} axes")
    return tuple(values)


def _padding(pads: Sequence[int] | None, n: int) -> tuple[int, ...]:
    if pads is None:
        return (0,) * n
    if len(pads) != n:
        raise ModelError(f"pads {list(pads)} must have an entry for each of {n} axes")
    return tuple(pads)


def padded_to_same(window: Window, spatial: Sequence[Dim], *, odd_first: bool) -> Window:
    """Return a window padded so that there are ceil(size / stride) of it on every axis.

    The odd one of an odd number of elements goes before the data if `odd_first`, else after it.
    """
    totals = [
        _same_total(d, s, e)
        for d, s, e in zip(spatial, window.strides, window.extents, strict=True)
    ]
    return with_total_padding(window, totals, odd_first=odd_first)


def with_total_padding(window: Window, totals: Sequence[Dim], *, odd_first: bool) -> Window:
    """Return a window with `totals` elements of padding per axis, half of them before the data."""
    before = tuple(normal_size((convert(t) + int(odd_first)) // 2) for t in totals)
    after = tuple(normal_size(t - b) for t, b in zip(totals, before, strict=True))
    return replace(window, before=before, after=after)


def _same_total(size: Dim, stride: int, extent: int) -> Dim:
    if isinstance(size, int):
        return max((-(-size // stride) - 1) * stride + extent - size, 0)
    if stride == 1:
        return extent - 1
    windows = (convert(size) + (stride - 1)) // stride
    return normal_size(maximum((windows - 1) * stride + extent - size, 0))


def padded_where_symbolic(x: Node, window: Window, fill: float) -> tuple[Node, Window]:
    """Return data [n, c, ...] and a window over it whose padding is known.

    Padding that each run decides becomes data: as much as there may ever be, cut to size.
    """
    if window.has_known_pads:
        return x, window
    n = len(window.kernel)
    most = (0, 0, *(e - 1 for e in window.extents))
    ends = zip(dims_of(x)[2:], window.before, window.after, strict=True)
    whole = sizes.dynamic_slice(
        padded(x, most, most, value=fill),
        begin=tuple(normal_size(m - b) for m, b in zip(most[2:], window.before, strict=True)),
        sizes=tuple(normal_size(d + b + a) for d, b, a in ends),
        strides=(1,) * n,
        axes=tuple(range(2, n + 2)),
    )
    return whole, replace(window, before=(0,) * n, after=(0,) * n)
