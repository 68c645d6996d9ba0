# SPDX-License-Identifier: Apache-2.0
"""Control flow that is decided at run time: branches and bodies of loops as functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx

from treadle.errors import ModelError, TypeMismatch
from treadle.expr.nodes import Var as SizeVar
from treadle.frontend.builders.basic import converted, dims_of, reshaped, transposed
from treadle.frontend.builders.closure import (
    anchored,
    branch,
    reached,
    repeat,
)
from treadle.frontend.onnx.control.unrolled_loops import ScanEnds
from treadle.frontend.onnx.core.sequence import form_of, grouped, tensors_of
from treadle.frontend.onnx.node import OnnxNode, RuntimeValueError
from treadle.frontend.symbolic import sizes_node
from treadle.graph.nodes import Constant, Node, Tuple, Var, topological
from treadle.graph.symbols import decided_by, symbols_in
from treadle.graph.types import Dim, TensorType, normal_size, same_dim, tensor_type
from treadle.ops import elementwise, indexing, sizes
from treadle.ops.control import CONDITION, COUNT, RefuseAttrs, refuse

_NO_LIMIT = int(np.iinfo(np.int64).max)


def branched(
    origin: str,
    condition: Node,
    results: Sequence[Sequence[Node]],
    outside: Collection[Node],
) -> list[Node]:
    """Return the results of an If from those of its two branches.

    Raises:
        RuntimeValueError: the branches give values of different kinds, so that the condition would
            have to be known.
    """
    forms = [[form_of(r) for r in side] for side in results]
    then, orelse = ([t for r in side for t in tensors_of(r)] for side in results)
    try:
        if forms[0] != forms[1]:
            raise TypeMismatch("the branches of this If give sequences of different lengths")
        made = branch(_scalar(condition, "bool"), (then, orelse), outside, origin)
    except TypeMismatch as e:
        error = RuntimeValueError(
            f"{e.problem}; that is not supported where its condition is computed at run time",
            hint=e.hint or "export the model for inference with fixed input shapes",
        )
        error.source = condition
        raise error from None
    tensors = iter(made)
    return [grouped(form, tensors) for form in forms[0]]


def refused(
    condition: Node, like: Sequence[Node], outside: Collection[Node], reason: str, origin: str
) -> list[Node]:
    """Return the results of a branch that a run may not take: of the types of the other's."""
    made, _ = reached(like, outside)
    inner = {s for node in made for s in decided_by(node)}
    results: list[Node] = []
    for node in like:
        type_ = tensor_type(node.type)
        shape = [1 if not inner.isdisjoint(symbols_in([d])) else d for d in type_.shape]
        given = _scalar(condition, "bool")
        attrs = RefuseAttrs(tuple(shape), type_.dtype, reason)
        results.append(refuse.call(attrs, (given,), origin=origin))
    return results


def _scalar(x: Node, dtype: str) -> Node:
    return converted(reshaped(x, ()), dtype)


class LoopParameters:
    """What the parameters of loop bodies stand for: the operands of their loops."""

    def __init__(self) -> None:
        self._operands: dict[Node, tuple[Node, ...]] = {}

    def add(self, params: Iterable[Node], operands: Sequence[Node | None]) -> None:
        """Note the operands of the loop whose body takes `params`."""
        given = tuple(o for o in operands if o is not None)
        self._operands |= {p: given for p in params if p not in given}

    def inputs_of(self, source: Node | None) -> tuple[str, ...]:
        """Return the names of the graph inputs that a value depends on, through loops too."""
        found: dict[str, None] = {}
        seen: set[Node] = set()
        stack = [] if source is None else [source]
        while stack:
            for node in topological([stack.pop()]):
                if not isinstance(node, Var) or node in seen:
                    continue
                seen.add(node)
                if node in self._operands:
                    stack += self._operands[node]
                else:
                    found[node.name] = None
        return tuple(found)


def _unchanged(
    body: onnx.GraphProto, states: Sequence[str], outputs: Sequence[onnx.ValueInfoProto]
) -> set[int]:
    """Return which states a body hands through, by their places; `outputs` begin with them."""
    copies = {n.output[0]: n.input[0] for n in body.node if n.op_type == "Identity" and n.input}

    def source(name: str) -> str:
        while name in copies:
            name = copies.pop(name)
        return name

    return {k for k, (state, made) in enumerate(zip(states, outputs, strict=False))
            if source(made.name) == state}  # fmt: skip


class RunningLoop:
    """A Loop whose number of iterations is known at run time only.

    States start with the types of their first values. Where an iteration changes an extent it
    becomes a symbolic size, and the body is converted again. Those that are `unchanged`, by their
    place among the states, are what they were outside: weights that are handed through are known.
    """

    def __init__(
        self,
        origin: str,
        body: onnx.GraphProto,
        limit: Node,
        condition: Node,
        states: list[Node],
        unchanged: Collection[int],
    ) -> None:
        self.body = body
        self._unchanged = unchanged
        self._origin, self._limit, self._condition, self._states = origin, limit, condition, states
        for state in states:
            if isinstance(state, Tuple):
                error = RuntimeValueError(
                    "a Loop that changes a sequence needs a number of iterations that is known "
                    "when the model is compiled",
                    hint="let the loop collect its results as scan outputs",
                )
                error.source = Tuple.of([self._limit, self._condition])
                raise error
        self.params = [Var("iteration", COUNT), Var("condition", CONDITION)]
        self.params += [Var(f"state_{k}", s.type) for k, s in enumerate(states)]
        self._varying = [k for k in range(len(states)) if k not in unchanged]

    @classmethod
    def of(cls, node: OnnxNode, attributes: Mapping[str, onnx.AttributeProto]) -> RunningLoop:
        """Return the loop of a node."""
        limit = node.optional(0) or Constant.of(_NO_LIMIT, "int64")
        condition = node.optional(1) or Constant.of(True, "bool")
        states = [node.input(k) for k in range(2, len(node.inputs))]
        body = attributes["body"].g
        unchanged = _unchanged(body, [i.name for i in body.input[2:]], body.output[1:])
        return cls(node.origin, body, limit, condition, states, unchanged)

    @property
    def values(self) -> list[Node]:
        """What iteration, condition and states are in the body."""
        first = 2
        of_states = [
            s if k in self._unchanged else self.params[first + k]
            for k, s in enumerate(self._states)
        ]
        return [*self.params[:first], *of_states]

    def given(self) -> dict[str, Node]:
        """Return what the inputs of the body stand for."""
        return dict(zip((i.name for i in self.body.input), self.values, strict=False))

    def widen(self, results: Sequence[Node]) -> bool:
        """Make extents that an iteration changes symbolic; true when there were any."""
        changed = False
        for k in self._varying:
            param, result = self.params[2 + k], results[1 + k]
            type_ = self._widened(tensor_type(param.type), tensor_type(result.type))
            if type_ is not None:
                self.params[2 + k] = Var(param.name, type_)
                changed = True
        return changed

    def _widened(self, before: TensorType, after: TensorType) -> TensorType | None:
        if (before.dtype, before.ndim) != (after.dtype, after.ndim):
            raise ModelError(f"a state of this Loop changes from {before} to {after}")
        varies = [
            not same_dim(d, e) and not self._is_own(d)
            for d, e in zip(before.shape, after.shape, strict=True)
        ]
        if not any(varies):
            return None
        sizes = zip(before.shape, varies, strict=True)
        return before.with_shape(SizeVar(self._size_name, "int64") if v else d for d, v in sizes)

    def _check_end(self, condition: Node) -> None:
        """Raise ModelError for a loop that goes on for ever once it has started."""
        stays = condition is self.params[1]
        if isinstance(condition, Constant):
            stays = bool(condition.value.all())
        limit = self._limit
        if stays and isinstance(limit, Constant) and limit.value.reshape(()) == _NO_LIMIT:
            raise ModelError(
                "this Loop never ends: it has no trip count, and its condition stays true",
                hint="give it a trip count, or a condition that its body computes",
            )

    @property
    def _size_name(self) -> str:
        return f"{self._origin}_state"

    def _is_own(self, dim: Dim) -> bool:
        return isinstance(dim, SizeVar) and dim.name == self._size_name

    def results(
        self,
        results: Sequence[Node],
        outside: Collection[Node],
        sizes: Mapping[SizeVar, Node],
    ) -> list[Node]:
        """Return the final states and the collected rows; `sizes` are those the body measures."""
        if any(isinstance(r, Tuple) for r in results):
            raise ModelError("a Loop cannot collect sequences")
        self._check_end(results[0])
        condition = _scalar(results[0], "bool")
        varying, rows = self._varying, results[1 + len(self._states) :]
        states = [self._states[k] for k in varying]
        params = [*self.params[:2], *(self.params[2 + k] for k in varying)]
        start = (_scalar(self._limit, "int64"), _scalar(self._condition, "bool"), states)
        whole = anchored([condition, *(results[1 + k] for k in varying), *rows], sizes)
        around = {*outside, *self._states}
        made = iter(repeat(start, params, whole, around, self._origin))
        last = {k: next(made) for k in varying}
        return [*(last.get(k, s) for k, s in enumerate(self._states)), *made]


class RunningScan:
    """A Scan over a length that each run decides: a loop that reads its slices one by one."""

    def __init__(self, node: OnnxNode, attributes: Mapping[str, onnx.AttributeProto]) -> None:
        self.body = attributes["body"].g
        self._ends = ScanEnds.of(node, self.body)
        axes = dict(enumerate(self._ends.input_axes, self._ends.first))
        lengths = [node.dims(k)[axis] for k, axis in axes.items()]
        self._steps = next((d for d in lengths if isinstance(d, int)), lengths[0])
        self._scanned = [self._cut(node, k, axis) for k, axis in axes.items()]
        states = [node.input(k) for k in range(self._ends.first)]
        limit, always = sizes_node((self._steps,), ()), Constant.of(True, "bool")
        names = [i.name for i in self.body.input[: len(states)]]
        unchanged = _unchanged(self.body, names, self.body.output)
        self._loop = RunningLoop(node.origin, self.body, limit, always, states, unchanged)

    def _cut(self, node: OnnxNode, index: int, axis: int) -> Node:
        """Return an input of which a run may know only that it is long enough."""
        if same_dim(node.dims(index)[axis], self._steps):
            return node.input(index)
        return sizes.dynamic_slice(
            node.input(index), begin=(0,), sizes=(self._steps,), strides=(1,), axes=(axis,)
        )

    def given(self) -> dict[str, Node]:
        """Return what the inputs of the body stand for."""
        iteration, _, *states = self._loop.values
        last = sizes_node((normal_size(self._steps - 1),), ())
        back = elementwise.subtract(last, iteration)
        ends = zip(self._scanned, self._ends.input_axes, self._ends.inputs_reversed, strict=True)
        slices = [indexing.gather(x, back if t else iteration, axis=a) for x, a, t in ends]
        return dict(zip((i.name for i in self.body.input), [*states, *slices], strict=True))

    def widen(self, results: Sequence[Node]) -> bool:
        """Make extents that an iteration changes symbolic; true when there were any."""
        return self._loop.widen([self._loop.params[1], *results])

    def results(
        self,
        results: Sequence[Node],
        outside: Collection[Node],
        sizes: Mapping[SizeVar, Node],
    ) -> list[Node]:
        """Return the final states and the collected rows; `sizes` are those the body measures."""
        given = {*outside, *self._scanned}
        made = self._loop.results([self._loop.params[1], *results], given, sizes)
        first = self._ends.first
        ends = zip(made[first:], self._ends.output_axes, self._ends.outputs_reversed, strict=True)
        return [*made[:first], *(self._collected(*end) for end in ends)]

    def _collected(self, rows: Node, axis: int, backwards: int) -> Node:
        """Return rows along the first axis as the node has them."""
        whole = reshaped(rows, (self._steps, *dims_of(rows)[1:]))
        ndim = len(dims_of(whole))
        if backwards:
            last = normal_size(self._steps - 1)
            whole = sizes.dynamic_slice(
                whole, begin=(last,), sizes=(self._steps,), strides=(-1,), axes=(0,)
            )
        order = list(range(1, ndim))
        order.insert(axis % ndim, 0)
        return transposed(whole, order)


Running: TypeAlias = RunningLoop | RunningScan


def running_of(node: OnnxNode, attributes: Mapping[str, onnx.AttributeProto]) -> Running:
    """Return the Loop or Scan (since opset 9) of a node as one that is decided at run time."""
    if node.op == "Loop":
        return RunningLoop.of(node, attributes)
    return RunningScan(node, attributes)
