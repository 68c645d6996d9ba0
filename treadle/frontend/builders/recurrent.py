# SPDX-License-Identifier: Apache-2.0
"""Builders of recurrent layers: their time steps are unrolled, or a loop of the plan.

The products of all inputs by their weights are one matrix product; every step then adds a product
of the state before it. The kernels of all steps are alike, so they are compiled once. A sequence of
symbolic or great length is a loop whose body is one step, and so is a short one of long steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from treadle.dtype import to_numpy
from treadle.errors import ModelError
from treadle.frontend.builders.activations import Activation, activation
from treadle.frontend.builders.basic import (
    broadcast,
    dims_of,
    element_type,
    reshaped,
    scalar_like,
    shape_of,
    transposed,
)
from treadle.frontend.builders.closure import repeat
from treadle.frontend.symbolic import sizes_node
from treadle.graph.nodes import Constant, Node, TupleItem, Var, operands, topological
from treadle.graph.types import Dim, normal_size
from treadle.ops import elementwise, indexing, matmul, movement, sizes
from treadle.ops.control import CONDITION, COUNT

UNROLLED_LIMIT = 128
"""A longer sequence is a loop: on two cores, a bidirectional LSTM of 100 unrolled steps takes 2 s
to compile, of 500 steps 18 s."""

LONG_STEP = 50_000
"""Multiply-adds of a step with a state from which on it does not matter that an iteration of a loop
costs 0.2 us of its own: a step of an LSTM with 112 hidden units takes 3 us."""

FEW_STEPS = 16
"""What is unrolled in any case: fewer instructions than there are in many a layer."""

Product: TypeAlias = Callable[[Node], Node]
"""product(rows [n, k]) -> [n, gates * hidden]: by the weights of one direction."""


@dataclass(frozen=True, slots=True)
class Sequences:
    """What a recurrent layer runs over: `x` is [steps, batch, features].

    `lengths` [batch] says how many steps each sequence has, all where it is None. `mask` [steps,
    batch] says of each step whether it is one: the others leave the states as they are, and give
    the state before them, or zero where `masked_are_zero`. Loops are named after `name`.
    """

    x: Node
    lengths: Node | None = None
    name: str = "recurrent"
    mask: Node | None = None
    masked_are_zero: bool = False

    @property
    def steps(self) -> Dim:
        """How many steps the longest sequence has."""
        return dims_of(self.x)[0]

    @property
    def batch(self) -> Dim:
        """How many sequences there are."""
        return dims_of(self.x)[1]


@dataclass(frozen=True, slots=True)
class DirectionWeights:
    """The parameters of one direction of a recurrent layer.

    The gates of weights, recurrence and biases lie one behind the other: of an LSTM input, output,
    forget, cell; of a GRU update, reset, new (see `with_gates` for other orders). `start` are the
    first states [batch, hidden], zeros where it is empty or has None. `functions` are the
    activations: of an LSTM those of the gates, of the new cell and of the cell that is shown; of a
    GRU those of the gates and of the new state. `peepholes` [3 * hidden] of an LSTM are of input,
    output, forget. `products` multiply inputs and states where the weights have another form.
    """

    weights: Node
    """[gates * hidden, features]"""
    recurrence: Node
    """[gates * hidden, hidden]"""
    bias: Node | None = None
    """[gates * hidden], added to the products of the inputs"""
    state_bias: Node | None = None
    """[gates * hidden], added to the products of the state"""
    start: tuple[Node | None, ...] = ()
    functions: tuple[Activation, ...] = ()
    backwards: bool = False
    peepholes: Node | None = None
    products: tuple[Product, Product] | None = None

    @property
    def hidden(self) -> int:
        """How many elements a state has."""
        return shape_of(self.recurrence)[-1]


GATES = activation("sigmoid")
STATES = activation("tanh")


def with_gates(x: Node, order: Sequence[int]) -> Node:
    """Return weights or a bias [gates * hidden, ...] with its gates in another order.

    PyTorch's LSTM has input, forget, cell, output: the order (0, 3, 1, 2) makes it that of
    `DirectionWeights`; its GRU has reset, update, new: (1, 0, 2).
    """
    hidden = shape_of(x)[0] // len(order)
    parts = [_piece(x, 0, k * hidden, (k + 1) * hidden) for k in order]
    return _joined(parts, 0)


def row_of(x: Node, k: int, axis: int) -> Node:
    """Return entry `k` of an axis, which it loses."""
    shape = dims_of(x)
    kept = (*shape[:axis], *shape[axis + 1 :])
    if shape[axis] == 1:
        return reshaped(x, kept)
    return reshaped(_piece(x, axis, k, k + 1), kept)


def _piece(x: Node, axis: int, begin: int, end: int) -> Node:
    return movement.slice_(x, begin=(begin,), end=(end,), strides=(1,), axes=(axis,))


def rnn(over: Sequences, directions: Sequence[DirectionWeights]) -> list[Node]:
    """Return the simple layer, H = f(X W' + H R' + b): all states, and the last.

    All states are [steps, directions, batch, hidden], the last are [directions, batch, hidden].
    """
    runs = []
    for weights in directions:
        one = _direction(over, weights, 1, _one_bias(weights))
        (f,) = weights.functions or (STATES,)

        def step(x: Node, s: State, one: _Direction = one, f: Activation = f) -> State:
            return (f(one.with_state(x, s[0])),)

        runs.append(_run(one, _start(over, weights, 1), step))
    return _results(over, runs)


def lstm(
    over: Sequences,
    directions: Sequence[DirectionWeights],
    *,
    coupled: bool = False,
    cell_clip: float = 0.0,
) -> list[Node]:
    """Return the long short-term memory: all hidden states, the last, and the last cells.

    With `coupled` the forget gate is 1 - the input gate. A `cell_clip` above 0 bounds the cells
    that steps hand on. Shapes are those of `rnn`.
    """
    runs = []
    for weights in directions:
        one = _direction(over, weights, 4, _one_bias(weights))
        functions = weights.functions or (GATES, STATES, STATES)
        cell = _Cell(one, functions, coupled, weights.peepholes, cell_clip)
        runs.append(_run(one, _start(over, weights, 2), cell.step))
    return _results(over, runs)


def gru(
    over: Sequences, directions: Sequence[DirectionWeights], *, linear_before_reset: bool = False
) -> list[Node]:
    """Return the gated recurrent unit: all states, and the last, of the shapes of `rnn`.

    The reset gate acts before the product with the state, or after it (as in PyTorch).
    """
    runs = []
    for weights in directions:
        one = _direction(over, weights, 3, weights.bias)
        functions = weights.functions or (GATES, STATES)
        unit = _Unit(one, functions, linear_before_reset, weights.state_bias)
        runs.append(_run(one, _start(over, weights, 1), unit.step))
    return _results(over, runs)


def _one_bias(weights: DirectionWeights) -> Node | None:
    given = [b for b in (weights.bias, weights.state_bias) if b is not None]
    return elementwise.add(*given) if len(given) == 2 else next(iter(given), None)


def _start(over: Sequences, weights: DirectionWeights, count: int) -> State:
    """Return the first states [batch, hidden]; zeros where none are given."""
    given = weights.start or (None,) * count
    if len(given) != count:
        raise ModelError(f"{len(given)} first states for a layer that has {count}")
    return tuple(_zeros(over, weights.hidden) if s is None else s for s in given)


def _zeros(over: Sequences, hidden: int) -> Node:
    if isinstance(over.batch, int):
        return Constant.of(np.zeros((over.batch, hidden), to_numpy(element_type(over.x))))
    return broadcast(scalar_like(0.0, over.x), (over.batch, hidden))


@dataclass(slots=True)
class _Direction:
    """One direction of a layer: its products with the inputs, and what the steps need."""

    over: Sequences
    gate_count: int
    hidden: int
    backwards: bool
    recurrence: Node
    inputs: Node
    """The inputs times their weights: [steps, batch, gates * hidden]."""
    product: Product | None = None
    """What multiplies a state by the weights where that is not `recurrence`."""

    def gates(self, value: Node) -> list[Node]:
        """Cut [batch, n * hidden] into gates."""
        width = dims_of(value)[1]
        assert isinstance(width, int)  # weights are of known sizes
        return [_piece(value, 1, k, k + self.hidden) for k in range(0, width, self.hidden)]

    def with_state(self, x: Node, state: Node) -> Node:
        """Return a step's input product `x` plus its state product: [batch, gates * hidden]."""
        if self.product is not None:
            return elementwise.add(self.product(state), x)
        return elementwise.add(matmul.matmul(state, self.recurrence), x)


def _direction(
    over: Sequences, given: DirectionWeights, gates: int, bias: Node | None
) -> _Direction:
    """Return a direction with the products of all its inputs."""
    steps, batch, features = dims_of(over.x)
    rows = reshaped(over.x, (normal_size(steps * batch), features))
    by_inputs, by_state = given.products or (None, None)
    product: Node
    if by_inputs is None:
        product = matmul.matmul(rows, transposed(given.weights, (1, 0)))
    else:
        product = by_inputs(rows)
    if bias is not None:
        product = elementwise.add(product, bias)
    whole = reshaped(product, (steps, batch, gates * given.hidden))
    recurrence = transposed(given.recurrence, (1, 0))
    return _Direction(over, gates, given.hidden, given.backwards, recurrence, whole, by_state)


def _per_step(x: Node, steps: int) -> list[Node]:
    shape = dims_of(x)[1:]
    if steps == 1:
        return [reshaped(x, shape)]
    parts = movement.split(x, sections=(1,) * steps, axis=0)
    return [reshaped(TupleItem.of(parts, k), shape) for k in range(steps)]


State: TypeAlias = tuple[Node, ...]
"""The hidden state first; then what else is handed on."""

Step: TypeAlias = Callable[[Node, State], State]
"""step(product of the inputs [batch, gates * hidden], state) -> state."""


def _run(direction: _Direction, start: State, step: Step) -> tuple[list[Node], State]:
    """Return the hidden states in order of time, and the last states.

    They are one value per step, or one for all steps of a loop: [steps, batch, hidden].
    """
    steps = direction.over.steps
    if isinstance(steps, int) and steps <= _unrolled_steps(direction):
        return _unrolled(direction, steps, start, step)
    whole, last = _looped(direction, start, step)
    return [whole], last


def _unrolled_steps(direction: _Direction) -> int:
    """Return how many steps of a layer are unrolled: few of long ones."""
    batch = direction.over.batch if isinstance(direction.over.batch, int) else 1
    work = batch * direction.gate_count * direction.hidden**2
    return FEW_STEPS if work >= LONG_STEP else UNROLLED_LIMIT


def _unrolled(
    direction: _Direction, steps: int, start: State, step: Step
) -> tuple[list[Node], State]:
    state = start
    inputs = _per_step(direction.inputs, steps)
    outputs: list[Node] = []
    for k in reversed(range(steps)) if direction.backwards else range(steps):
        number = Constant.of(k, "int64")
        output, state = _advanced(direction.over, number, step(inputs[k], state), state)
        outputs.append(output)
    return outputs[::-1] if direction.backwards else outputs, state


def _looped(direction: _Direction, start: State, step: Step) -> tuple[Node, State]:
    """Return the states of a loop of the plan, one iteration per step."""
    over, inputs = direction.over, direction.inputs
    last = normal_size(over.steps - 1)
    params = [Var("iteration", COUNT), Var("condition", CONDITION)]
    params += [Var(f"state_{k}", s.type) for k, s in enumerate(start)]
    number: Node = params[0]
    if direction.backwards:
        number = elementwise.subtract(sizes_node((last,), ()), number)
    before = tuple(params[2:])
    row = indexing.gather(inputs, number, axis=0)
    output, after = _advanced(over, number, step(row, before), before)
    results = [Constant.of(True, "bool"), *after, output]
    made = repeat(
        (sizes_node((over.steps,), ()), Constant.of(True, "bool"), start),
        params,
        results,
        _varying([inputs, *start, *results], params),
        f"{over.name}_{'backward' if direction.backwards else 'forward'}",
    )
    begin, stride = (last, -1) if direction.backwards else (0, 1)
    whole = sizes.dynamic_slice(
        made[-1], begin=(begin,), sizes=(over.steps,), strides=(stride,), axes=(0,)
    )
    return whole, tuple(made[:-1])


def _varying(roots: Sequence[Node], params: Sequence[Var]) -> list[Node]:
    """Return what a loop takes from outside: what each run computes, but not in the loop.

    Weights and what is computed from them stay in the body, where they are folded.
    """
    inside: set[Node] = {*params}
    given: dict[Node, None] = {}
    for node in topological(roots):
        parts = operands(node)
        if any(p in inside for p in parts):
            inside.add(node)
        elif node not in inside and (isinstance(node, Var) or any(p in given for p in parts)):
            given[node] = None
    return list(given)


def _advanced(over: Sequences, number: Node, fresh: State, state: State) -> tuple[Node, State]:
    """Return the output and the states after step `number`.

    Where a sequence of the batch has ended, the state stays and the output is zero.
    """
    if over.mask is not None:
        return _masked(over, number, fresh, state)
    if over.lengths is None:
        return fresh[0], fresh
    wide = elementwise.cast(reshaped(over.lengths, (over.batch, 1)), dtype="int64")
    runs = elementwise.less(number, wide)
    after = tuple(elementwise.where(runs, f, s) for f, s in zip(fresh, state, strict=True))
    return elementwise.where(runs, fresh[0], scalar_like(0.0, fresh[0])), after


def _masked(over: Sequences, number: Node, fresh: State, state: State) -> tuple[Node, State]:
    """Return the output and the states after a step that only some sequences take."""
    assert over.mask is not None
    runs = reshaped(indexing.gather(over.mask, number, axis=0), (over.batch, 1))
    after = tuple(elementwise.where(runs, f, s) for f, s in zip(fresh, state, strict=True))
    if not over.masked_are_zero:
        return after[0], after
    return elementwise.where(runs, fresh[0], scalar_like(0.0, fresh[0])), after


def _results(over: Sequences, runs: Sequence[tuple[list[Node], State]]) -> list[Node]:
    """Return [steps, directions, batch, hidden] and the last states [directions, batch, hidden]."""
    outputs, finals = [o for o, _ in runs], [s for _, s in runs]
    size = dims_of(finals[0][0])
    if len(outputs[0]) == over.steps:
        rows = [reshaped(o, (1, *size)) for step in zip(*outputs, strict=True) for o in step]
        joined = reshaped(_joined(rows, 0), (over.steps, len(runs), *size))
    else:
        joined = _joined([reshaped(o, (over.steps, 1, *size)) for (o,) in outputs], 1)
    last = [
        _joined([reshaped(s, (1, *size)) for s in states], 0)
        for states in zip(*finals, strict=True)
    ]
    return [joined, *last]


def _joined(parts: Sequence[Node], axis: int) -> Node:
    return parts[0] if len(parts) == 1 else movement.concat(*parts, axis=axis)


@dataclass(frozen=True, slots=True)
class _Cell:
    """An LSTM cell: `functions` are of the gates, the new cell and the cell that is shown."""

    direction: _Direction
    functions: Sequence[Activation]
    coupled: bool
    peepholes: Node | None
    clip: float = 0.0

    def step(self, x: Node, state: State) -> State:
        """Return the hidden and the cell state after a step whose input product is `x`."""
        f, g, h = self.functions
        hidden, cell = state
        i, o, forget, c = self.direction.gates(self.direction.with_state(x, hidden))
        i = f(self._peep(i, cell, 0))
        if self.coupled:
            forget = elementwise.subtract(scalar_like(1.0, i), i)
        else:
            forget = f(self._peep(forget, cell, 2))
        kept = elementwise.multiply(forget, cell)
        cell = elementwise.add(kept, elementwise.multiply(i, g(c)))
        if self.clip > 0:
            cell = elementwise.clip(cell, min=-self.clip, max=self.clip)
        o = f(self._peep(o, cell, 1))
        return elementwise.multiply(o, h(cell)), cell

    def _peep(self, gate: Node, cell: Node, which: int) -> Node:
        if self.peepholes is None:
            return gate
        hidden = self.direction.hidden
        weights = _piece(self.peepholes, 0, which * hidden, (which + 1) * hidden)
        return elementwise.add(gate, elementwise.multiply(weights, cell))


@dataclass(frozen=True, slots=True)
class _Unit:
    """A gated recurrent unit; `bias` [3 * hidden] is that of the products with the state."""

    direction: _Direction
    functions: Sequence[Activation]
    linear_before_reset: bool
    bias: Node | None

    def step(self, x: Node, state: State) -> State:
        """Return the hidden state after a step whose input product is `x`."""
        f, g = self.functions
        (hidden,) = state
        parts = self.direction.gates(x)
        update, reset, new = self._gates(parts, hidden, f)
        fresh = g(elementwise.add(parts[2], self._candidate(hidden, reset, new)))
        kept = elementwise.multiply(update, hidden)
        rest = elementwise.subtract(scalar_like(1.0, update), update)
        return (elementwise.add(elementwise.multiply(rest, fresh), kept),)

    def _gates(
        self, x: Sequence[Node], hidden: Node, f: Activation
    ) -> tuple[Node, Node, Node | None]:
        """Return update and reset gate, and the state's share of the third where it is ready."""
        width = self.direction.hidden * (3 if self.linear_before_reset else 2)
        recurrence = self.direction.recurrence
        if not self.linear_before_reset:
            recurrence = _piece(recurrence, 1, 0, width)
        product: Node = matmul.matmul(hidden, recurrence)
        if self.bias is not None:
            product = elementwise.add(product, _piece(self.bias, 0, 0, width))
        h = self.direction.gates(product)
        update, reset = f(elementwise.add(x[0], h[0])), f(elementwise.add(x[1], h[1]))
        return update, reset, h[2] if self.linear_before_reset else None

    def _candidate(self, hidden: Node, reset: Node, ready: Node | None) -> Node:
        if ready is not None:
            return elementwise.multiply(reset, ready)
        size = self.direction.hidden
        weights = _piece(self.direction.recurrence, 1, 2 * size, 3 * size)
        product: Node = matmul.matmul(elementwise.multiply(reset, hidden), weights)
        if self.bias is None:
            return product
        return elementwise.add(product, _piece(self.bias, 0, 2 * size, 3 * size))
