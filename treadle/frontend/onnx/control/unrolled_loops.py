# SPDX-License-Identifier: Apache-2.0
"""Loops that are unrolled at import: what each iteration of a Loop or Scan is given and gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import onnx

from treadle.dtype import to_numpy
from treadle.errors import ModelError
from treadle.frontend.builders.basic import dims_of, reshaped
from treadle.frontend.onnx.node import OnnxNode, RuntimeValueError
from treadle.frontend.onnx.tensors import dtype_of
from treadle.graph.nodes import Constant, Node, TupleItem
from treadle.graph.types import known_sizes
from treadle.ops import movement


class Repetition(Protocol):
    """A loop in progress: ask for `inputs`, run the body, `take` its results, until inputs end."""

    body: onnx.GraphProto
    done: int
    """How many iterations are finished."""
    is_batched: bool
    """Whether iterations go over a batch too, which only unrolled ones can."""

    @property
    def certain(self) -> int:
        """How many iterations there are for certain; 0 where only running it tells."""

    def inputs(self) -> list[Node] | None:
        """Return what the next iteration is given, None when there is none."""

    def take(self, results: Sequence[Node]) -> None:
        """Note the results of an iteration."""

    def outputs(self) -> list[Node]:
        """Return the results of the loop."""


def repetition_of(node: OnnxNode, attributes: Mapping[str, onnx.AttributeProto]) -> Repetition:
    """Return the loop that a Loop or Scan stands for."""
    body = attributes["body"].g if "body" in attributes else None
    if body is None:
        raise ModelError(f"{node.op} lacks its attribute 'body'")
    if node.op == "Loop":
        return _Loop(node, body)
    return _BatchedScan(node, body) if node.version == 8 else _Scan(node, body)


class _Loop:
    """At most M iterations, as long as the condition holds."""

    is_batched = False

    def __init__(self, node: OnnxNode, body: onnx.GraphProto) -> None:
        self.body = body
        self.done = 0
        self._limit = int(node.constant_scalar(0, "trip count")) if node.has_input(0) else None
        self._goes_on = bool(node.constant_scalar(1, "condition")) if node.has_input(1) else True
        self._states = [node.input(k) for k in range(2, len(node.inputs))]
        self._rows: list[list[Node]] = [[] for _ in body.output[len(self._states) + 1 :]]
        _check_body(node, body, 2 + len(self._states))

    @property
    def certain(self) -> int:
        """The trip count, where no iteration decides whether there is another."""
        return max(self._limit or 0, 0) if self._goes_on and _goes_on(self.body) else 0

    def inputs(self) -> list[Node] | None:
        """Return the iteration number, the condition and the states."""
        if not self._goes_on or (self._limit is not None and self.done >= self._limit):
            return None
        return [Constant.of(self.done, "int64"), Constant.of(True, "bool"), *self._states]

    def take(self, results: Sequence[Node]) -> None:
        """Keep the states, and the rows of what is collected."""
        condition, count = results[0], len(self._states)
        if not isinstance(condition, Constant) or condition.value.size != 1:
            error = RuntimeValueError(
                "a Loop whose end is decided by values computed at run time is not supported",
                hint="export the model with a fixed number of iterations",
            )
            error.source = condition
            raise error
        self.done += 1
        self._goes_on = bool(condition.value.reshape(()))
        self._states = list(results[1 : 1 + count])
        for row, value in zip(self._rows, results[1 + count :], strict=True):
            row.append(value)

    def outputs(self) -> list[Node]:
        """Return the last states, then the collected values stacked along a new first axis."""
        declared = self.body.output[len(self._states) + 1 :]
        stacked = [_stacked(r, 0, d) for r, d in zip(self._rows, declared, strict=True)]
        return [*self._states, *stacked]


@dataclass(frozen=True, slots=True)
class ScanEnds:
    """Along which axes a Scan cuts and joins values, and which of them run from the end."""

    first: int
    """How many states there are; the other inputs are scanned."""
    input_axes: tuple[int, ...]
    inputs_reversed: tuple[int, ...]
    output_axes: tuple[int, ...]
    """May be negative: they count axes of the joined value."""
    outputs_reversed: tuple[int, ...]

    @classmethod
    def of(cls, node: OnnxNode, body: onnx.GraphProto) -> ScanEnds:
        """Return those of a node whose body takes and gives as many values as it should."""
        _check_body(node, body, len(node.inputs))
        count = node.integer("num_scan_inputs")
        first = len(node.inputs) - count
        rows = len(body.output) - first
        axes = enumerate(_per_value(node, "scan_input_axes", count), first)
        return cls(
            first,
            tuple(node.axis(axis, node.type(k).ndim) for k, axis in axes),
            _per_value(node, "scan_input_directions", count),
            _per_value(node, "scan_output_axes", rows),
            _per_value(node, "scan_output_directions", rows),
        )


class _Scan:
    """One iteration per slice of the scan inputs."""

    is_batched = False

    def __init__(self, node: OnnxNode, body: onnx.GraphProto) -> None:
        self.body = body
        self.done = 0
        self._ends = ScanEnds.of(node, body)
        first = self._ends.first
        self._states = [node.input(k) for k in range(first)]
        scanned = enumerate(self._ends.input_axes, first)
        if not all(isinstance(node.dims(k)[axis], int) for k, axis in scanned):
            raise RuntimeValueError("a Scan over a length that each run decides is not unrolled")
        ways = zip(self._ends.input_axes, self._ends.inputs_reversed, strict=True)
        self._slices = [_slices(node.input(first + k), *way) for k, way in enumerate(ways)]
        self._steps = _common_length(node, self._slices)
        self._rows: list[list[Node]] = [[] for _ in self._ends.output_axes]

    @property
    def certain(self) -> int:
        """The length of what is scanned."""
        return self._steps

    def inputs(self) -> list[Node] | None:
        """Return the states and the next slice of every scan input."""
        if self.done >= self._steps:
            return None
        return [*self._states, *(s[self.done] for s in self._slices)]

    def take(self, results: Sequence[Node]) -> None:
        """Keep the states, and the rows of what is collected."""
        count = len(self._states)
        self._states = list(results[:count])
        for row, value in zip(self._rows, results[count:], strict=True):
            row.append(value)
        self.done += 1

    def outputs(self) -> list[Node]:
        """Return the last states, then the collected values stacked along their axes."""
        declared = self.body.output[len(self._states) :]
        stacked = [
            _stacked(r[::-1] if backwards else r, axis, d)
            for r, axis, backwards, d in zip(
                self._rows,
                self._ends.output_axes,
                self._ends.outputs_reversed,
                declared,
                strict=True,
            )
        ]
        return [*self._states, *stacked]


class _BatchedScan:
    """Scan of opset 8: every value has a batch axis that the body does not see."""

    is_batched = True

    def __init__(self, node: OnnxNode, body: onnx.GraphProto) -> None:
        if node.has_input(0):
            raise ModelError("Scan-8 with sequence lengths is not supported")
        self.body = body
        self.done = 0
        count = node.integer("num_scan_inputs")
        values = [node.input(k) for k in range(1, len(node.inputs))]
        _check_body(node, body, len(values))
        backwards = node.integers("directions") or (0,) * count
        first = len(values) - count
        self._starts = [_slices(v, 0, 0) for v in values[:first]]
        self._slices = [
            [_slices(row, 0, backwards[k]) for row in _slices(v, 0, 0)]
            for k, v in enumerate(values[first:])
        ]
        self._batch = _common_length(node, self._slices)
        self._steps = len(self._slices[0][0]) if self._batch else 0
        self._states: list[Node] = []
        self._finals: list[list[Node]] = [[] for _ in range(first)]
        self._rows: list[list[list[Node]]] = []

    @property
    def certain(self) -> int:
        """The steps of all entries of the batch."""
        return self._batch * self._steps

    def inputs(self) -> list[Node] | None:
        """Return the states and slices of the next step of a batch entry."""
        if self.done >= self._batch * self._steps:
            return None
        entry, step = divmod(self.done, self._steps)
        if step == 0:
            self._states = [s[entry] for s in self._starts]
            self._rows.append([])
        return [*self._states, *(s[entry][step] for s in self._slices)]

    def take(self, results: Sequence[Node]) -> None:
        """Keep the states; at the end of a batch entry they are its final ones."""
        count = len(self._starts)
        self._states = list(results[:count])
        self._rows[-1].append(list(results[count:]))
        self.done += 1
        if self.done % self._steps == 0:
            for final, state in zip(self._finals, self._states, strict=True):
                final.append(state)

    def outputs(self) -> list[Node]:
        """Return the final states and the collected values, stacked over steps and the batch."""
        if not self._rows:
            raise ModelError("a Scan-8 over nothing is not supported")
        declared = self.body.output[len(self._starts) :]
        collected = []
        for k, d in enumerate(declared):
            entries = [_stacked([step[k] for step in rows], 0, d) for rows in self._rows]
            collected.append(_stacked(entries, 0, d))
        return [*(_stacked(f, 0, self.body.output[0]) for f in self._finals), *collected]


def _goes_on(body: onnx.GraphProto) -> bool:
    """True where the condition that a body gives is the one it is given, or a constant."""
    made = {name: n for n in body.node for name in n.output}
    name = body.output[0].name
    while name in made and made[name].op_type == "Identity":
        name = made[name].input[0]
    if name in made:
        return str(made[name].op_type) == "Constant"
    return name == body.input[1].name or name in {i.name for i in body.initializer}


def _check_body(node: OnnxNode, body: onnx.GraphProto, given: int) -> None:
    if len(body.input) != given:
        raise ModelError(f"the body of {node.op} has {len(body.input)} inputs, it gets {given}")


def _per_value(node: OnnxNode, name: str, count: int) -> tuple[int, ...]:
    values = node.integers(name) or (0,) * count
    if len(values) != count:
        raise ModelError(f"{name} {list(values)} of {node.op} must have {count} entries")
    return values


def _common_length(node: OnnxNode, values: Sequence[Sequence[object]]) -> int:
    lengths = {len(v) for v in values}
    if len(lengths) != 1:
        raise ModelError(f"the scan inputs of {node.op} have different lengths: {sorted(lengths)}")
    return lengths.pop()


def _slices(x: Node, axis: int, backwards: int) -> list[Node]:
    """Return the slices of `x` along an axis, which they lose; from the end when `backwards`.

    They are the parts of one split, so that every iteration reads a whole value of its own and
    the kernels of all iterations are the same.
    """
    shape = dims_of(x)
    (count,), rest = known_sizes(shape[axis : axis + 1]), (*shape[:axis], *shape[axis + 1 :])
    if isinstance(x, Constant):
        made: list[Node] = [Constant.of(v) for v in np.moveaxis(x.value, axis, 0)]
    elif count <= 1:
        made = [reshaped(x, rest)] * count
    else:
        parts = movement.split(x, sections=(1,) * count, axis=axis)
        made = [reshaped(TupleItem.of(parts, k), rest) for k in range(count)]
    return made[::-1] if backwards else made


def _stacked(rows: Sequence[Node], axis: int, declared: onnx.ValueInfoProto) -> Node:
    """Return values joined along a new axis."""
    if not rows:
        return _nothing(declared)
    shape = dims_of(rows[0])
    at = axis % (len(shape) + 1)
    wide = [reshaped(r, (*shape[:at], 1, *shape[at:])) for r in rows]
    return wide[0] if len(wide) == 1 else movement.concat(*wide, axis=at)


def _nothing(declared: onnx.ValueInfoProto) -> Node:
    """Return what a loop without iterations collects: no rows of the declared shape."""
    kind = declared.type.tensor_type
    dims = [d.dim_value for d in kind.shape.dim]
    if not kind.HasField("shape") or any(not d.HasField("dim_value") for d in kind.shape.dim):
        raise ModelError(
            f"a loop that never runs gives {declared.name!r}, whose shape is not declared"
        )
    return Constant.of(np.zeros((0, *dims), to_numpy(dtype_of(kind.elem_type))))
