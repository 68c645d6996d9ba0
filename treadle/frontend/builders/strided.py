# SPDX-License-Identifier: Apache-2.0
"""Slices with steps as TensorFlow has them: bits of masks leave bounds out, add and drop axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.errors import ModelError
from treadle.expr.nodes import int_value
from treadle.frontend.builders.basic import axis_from_front, dims_of, reshaped
from treadle.frontend.builders.dynamic_operands import AxisRange, Measure, sliced_at_run
from treadle.frontend.builders.movement import sliced
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, normal_size
from treadle.ops import elementwise

_FAR = 1 << 40
"""A position behind the end of any axis."""


@dataclass(frozen=True, slots=True)
class Masks:
    """Bit k of a mask is about entry k of a slice.

    The entry has no begin, or no end; it stands for the axes that no other entry is of; it makes
    a new axis; or it chooses one element of an axis, which is dropped.
    """

    begin: int = 0
    end: int = 0
    ellipsis: int = 0
    new_axis: int = 0
    shrink_axis: int = 0


@dataclass(frozen=True, slots=True)
class StridedSpec:
    """The entries of a slice: begin, end and step of each, and the masks that change their meaning.

    Raises: ModelError where there are more begins than ends or steps, or fewer.
    """

    begins: Sequence[Dim | Node]
    ends: Sequence[Dim | Node]
    steps: Sequence[int]
    masks: Masks

    def __post_init__(self) -> None:
        if not len(self.begins) == len(self.ends) == len(self.steps):
            raise ModelError("begins, ends and steps of the slice have different lengths")

    def ranges(self, ndim: int) -> tuple[list[AxisRange], list[int | None]]:
        """Return the range of every axis, and which axis each of the result is, None a new one."""
        masks = self.masks
        ranges: list[AxisRange] = []
        shape: list[int | None] = []
        axis = 0
        for k in range(len(self.steps)):
            if masks.ellipsis >> k & 1:
                rest = range(k + 1, len(self.steps))
                used = sum(not masks.new_axis >> j & 1 for j in rest)
                until = max(ndim - used, axis)
                shape += range(axis, until)
                axis = until
            elif masks.new_axis >> k & 1:
                shape.append(None)
            else:
                axis_from_front(axis, ndim, "the slice")
                ranges.append(self._range(k, axis))
                shape += [] if masks.shrink_axis >> k & 1 else [axis]
                axis += 1
        return ranges, [*shape, *range(axis, ndim)]

    def _range(self, k: int, axis: int) -> AxisRange:
        begin, end, step = self.begins[k], self.ends[k], self.steps[k]
        if self.masks.shrink_axis >> k & 1:
            return _one_place(begin, axis)
        first = (0 if step > 0 else _FAR) if self.masks.begin >> k & 1 else begin
        last = (_FAR if step > 0 else -_FAR) if self.masks.end >> k & 1 else end
        return AxisRange(axis, first, last, step)


def _one_place(begin: Dim | Node, axis: int) -> AxisRange:
    """Return the range of one element, which may count from the end."""
    if isinstance(begin, Node):
        last = elementwise.equal(begin, Constant.of(-1, "int64"))
        after = elementwise.add(begin, Constant.of(1, "int64"))
        end = elementwise.where(last, Constant.of(_FAR, "int64"), after)
        return AxisRange(axis, begin, end)
    if int_value(begin) == -1:
        return AxisRange(axis, -1, _FAR)
    return AxisRange(axis, begin, normal_size(begin + 1))


def strided(x: Node, spec: StridedSpec, measure: Measure) -> Node:
    """Return a slice; `measure` makes sizes of bounds that a run computes.

    Raises: ModelError for entries that do not fit the value.
    """
    ranges, shape = spec.ranges(len(dims_of(x)))
    if any(isinstance(b, Node) for r in ranges for b in (r.start, r.end)):
        made = sliced_at_run(x, ranges, measure)
    else:
        made = sliced(x, ranges)
    rest = dims_of(made)
    return reshaped(made, [1 if axis is None else rest[axis] for axis in shape])
