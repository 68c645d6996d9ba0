# SPDX-License-Identifier: Apache-2.0
"""Converters of recurrent layers: their time steps are unrolled, or a loop of the plan.

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
from treadle.frontend.builders.basic import (
    broadcast,
    dims_of,
    reshaped,
    scalar_like,
    shape_of,
    transposed,
)
from treadle.frontend.builders.closure import repeat
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.frontend.symbolic import sizes_node
from treadle.graph.nodes import Constant, Node, TupleItem, Var, operands, topological
from treadle.graph.types import Dim, normal_size
from treadle.ops import elementwise, matmul, movement, sizes
from treadle.ops.control import CONDITION, COUNT

UNROLLED_LIMIT = 128
"""A longer sequence is a loop: on two cores, a bidirectional LSTM of 100 unrolled steps takes 2 s
to compile, of 500 steps 18 s."""

LONG_STEP = 50_000
"""Multiply-adds of a step with a state from which on it does not matter that an iteration of a loop
costs 0.2 us of its own: a step of an LSTM with 112 hidden units takes 3 us."""

FEW_STEPS = 16
"""What is unrolled in any case: fewer instructions than there are in many a layer."""

Activation: TypeAlias = Callable[[Node], Node]

Product: TypeAlias = Callable[[Node], Node]
"""product(rows [n, k]) -> [n, gates * hidden]: by the weights of one direction."""


def _affine(x: Node, alpha: float, beta: float) -> Node:
    scaled = elementwise.multiply(x, scalar_like(alpha, x))
    return elementwise.add(scaled, scalar_like(beta, x))


def _scaled_tanh(x: Node, alpha: float, beta: float) -> Node:
    inner = elementwise.tanh(elementwise.multiply(x, scalar_like(beta, x)))
    return elementwise.multiply(inner, scalar_like(alpha, x))


_ACTIVATIONS: dict[str, tuple[Callable[[Node, float, float], Node], float | None, float | None]] = {
    "relu": (lambda x, a, b: elementwise.relu(x), None, None),
    "tanh": (lambda x, a, b: elementwise.tanh(x), None, None),
    "sigmoid": (lambda x, a, b: elementwise.sigmoid(x), None, None),
    "softsign": (lambda x, a, b: elementwise.softsign(x), None, None),
    "softplus": (lambda x, a, b: elementwise.softplus(x), None, None),
    "leakyrelu": (lambda x, a, b: elementwise.leaky_relu(x, alpha=a), 0.01, None),
    "thresholdedrelu": (lambda x, a, b: elementwise.thresholded_relu(x, alpha=a), 1.0, None),
    "elu": (lambda x, a, b: elementwise.elu(x, alpha=a), 1.0, None),
    "affine": (_affine, 1.0, 0.0),
    "scaledtanh": (_scaled_tanh, 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: elementwise.hard_sigmoid(x, alpha=a, beta=b), 0.2, 0.5),
}
"""Function, default alpha and default beta (None: it takes none), by name in lower case."""


def _activations(node: OnnxNode, default: Sequence[str], directions: int) -> list[Activation]:
    """Return the functions of all directions, clipped as the node says."""
    names = node.texts("activations") or tuple(default) * directions
    if len(names) != len(default) * directions:
        raise ModelError(f"{node.op} needs {len(default) * directions} activations, not {names}")
    alphas = list(node.numbers("activation_alpha") or ())
    betas = list(node.numbers("activation_beta") or ())
    clip = node.number("clip", 0.0)
    found = []
    for k, name in enumerate(names):
        if name.lower() not in _ACTIVATIONS:
            raise ModelError(f"the activation {name!r} of {node.op} is not defined")
        function, alpha, beta = _ACTIVATIONS[name.lower()]
        a = alphas.pop(0) if alpha is not None and alphas else alpha
        b = betas.pop(0) if beta is not None and betas else beta
        # As onnxruntime does it, the third function (of the cell state) is not clipped.
        found.append(_clipped(function, a or 0.0, b or 0.0, clip if k % len(default) < 2 else 0.0))
    return found


def _clipped(
    function: Callable[[Node, float, float], Node], a: float, b: float, clip: float
) -> Activation:
    if clip <= 0:
        return lambda x: function(x, a, b)
    return lambda x: function(elementwise.clip(x, min=-clip, max=clip), a, b)


@dataclass(frozen=True, slots=True)
class _Layer:
    """The sizes of a recurrent layer, and its inputs with time first."""

    node: OnnxNode
    x: Node
    gates: int
    batch_first: bool

    @property
    def steps(self) -> Dim:
        return dims_of(self.x)[0]

    @property
    def batch(self) -> Dim:
        return dims_of(self.x)[1]

    @property
    def hidden(self) -> int:
        return self.node.shape(2)[-1]

    @property
    def directions(self) -> int:
        return self.node.shape(1)[0]

    def part(self, index: int, direction: int) -> Node | None:
        """Return one direction of an optional input [directions, ...]."""
        value = self.node.optional(index)
        return None if value is None else row_of(value, direction, 0)

    def start(self, index: int, direction: int) -> Node:
        """Return an initial state [batch, hidden]; zeros where none is given."""
        value = self.node.optional(index)
        if value is not None:
            return row_of(value, direction, 1 if self.batch_first else 0)
        if isinstance(self.batch, int):
            zeros = np.zeros((self.batch, self.hidden), to_numpy(self.node.type(0).dtype))
            return Constant.of(zeros)
        return broadcast(scalar_like(0.0, self.x), (self.batch, self.hidden))


def row_of(x: Node, k: int, axis: int) -> Node:
    """Return entry `k` of an axis, which it loses."""
    shape = dims_of(x)
    kept = (*shape[:axis], *shape[axis + 1 :])
    if shape[axis] == 1:
        return reshaped(x, kept)
    return reshaped(_piece(x, axis, k, k + 1), kept)


def _piece(x: Node, axis: int, begin: int, end: int) -> Node:
    return movement.slice_(x, begin=(begin,), end=(end,), strides=(1,), axes=(axis,))


def _read_layer(node: OnnxNode, gates: int) -> _Layer:
    layout = node.integer("layout", 0) if node.version >= 14 else 0
    x = node.input(0)
    if layout not in (0, 1) or node.type(0).ndim != 3:
        raise ModelError(f"{node.op} takes [steps, batch, features] in layout 0 or 1, not {x.type}")
    layer = _Layer(node, transposed(x, (1, 0, 2)) if layout else x, gates, bool(layout))
    hidden, directions = layer.hidden, layer.directions
    if node.integer("hidden_size", hidden) != hidden:
        raise ModelError(f"hidden_size does not fit the recurrence weights {node.input(2).type}")
    features = node.dims(0)[-1]
    if node.shape(1) != (directions, gates * hidden, features) or node.shape(2) != (
        directions,
        gates * hidden,
        hidden,
    ):
        raise ModelError(f"weights {node.type(1)} and {node.type(2)} do not fit {node.type(0)}")
    if layer.steps == 0:
        raise ModelError(f"{node.op} over no steps is not supported")
    return layer


def _order(node: OnnxNode, directions: int) -> list[bool]:
    """Return for every direction whether it runs backwards."""
    kinds = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    direction = node.text("direction", "forward")
    if direction not in kinds or len(kinds[direction]) != directions:
        raise ModelError(f"direction={direction!r} does not fit {directions} sets of weights")
    return kinds[direction]


@dataclass(slots=True)
class _Direction:
    """One direction of a layer: its products with the inputs, and what the steps need."""

    layer: _Layer
    index: int
    backwards: bool
    recurrence: Node
    inputs: Node
    """The inputs times their weights: [steps, batch, gates * hidden]."""
    product: Product | None = None
    """What multiplies a state by the weights where that is not `recurrence`."""

    def gates(self, value: Node) -> list[Node]:
        """Cut [batch, n * hidden] into gates."""
        hidden, width = self.layer.hidden, dims_of(value)[1]
        assert isinstance(width, int)  # weights are of known sizes
        return [_piece(value, 1, k, k + hidden) for k in range(0, width, hidden)]

    def with_state(self, x: Node, state: Node) -> Node:
        """Return a step's input product `x` plus its state product: [batch, gates * hidden]."""
        if self.product is not None:
            return elementwise.add(self.product(state), x)
        return elementwise.add(matmul.matmul(state, self.recurrence), x)


def _direction(
    layer: _Layer,
    index: int,
    backwards: bool,
    bias: Node | None,
    products: tuple[Product, Product] | None = None,
) -> _Direction:
    """Return a direction; `products` multiply inputs and states by weights of another form."""
    weights, recurrence = layer.part(1, index), layer.part(2, index)
    assert weights is not None  # both are required inputs
    assert recurrence is not None
    steps, batch, features = dims_of(layer.x)
    rows = reshaped(layer.x, (normal_size(steps * batch), features))
    by_inputs, by_state = products or (None, None)
    product: Node
    if by_inputs is None:
        product = matmul.matmul(rows, transposed(weights, (1, 0)))
    else:
        product = by_inputs(rows)
    if bias is not None:
        product = elementwise.add(product, bias)
    whole = reshaped(product, (steps, batch, layer.gates * layer.hidden))
    return _Direction(layer, index, backwards, transposed(recurrence, (1, 0)), whole, by_state)


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
    steps = direction.layer.steps
    if isinstance(steps, int) and steps <= _unrolled_steps(direction.layer):
        return _unrolled(direction, steps, start, step)
    whole, last = _looped(direction, start, step)
    return [whole], last


def _unrolled_steps(layer: _Layer) -> int:
    """Return how many steps of a layer are unrolled: few of long ones."""
    batch = layer.batch if isinstance(layer.batch, int) else 1
    work = batch * layer.gates * layer.hidden**2
    return FEW_STEPS if work >= LONG_STEP else UNROLLED_LIMIT


def _unrolled(
    direction: _Direction, steps: int, start: State, step: Step
) -> tuple[list[Node], State]:
    state = start
    inputs = _per_step(direction.inputs, steps)
    outputs: list[Node] = []
    for k in reversed(range(steps)) if direction.backwards else range(steps):
        number = Constant.of(k, "int64")
        output, state = _advanced(direction.layer, number, step(inputs[k], state), state)
        outputs.append(output)
    return outputs[::-1] if direction.backwards else outputs, state


def _looped(direction: _Direction, start: State, step: Step) -> tuple[Node, State]:
    """Return the states of a loop of the plan, one iteration per step."""
    layer, inputs = direction.layer, direction.inputs
    last = normal_size(layer.steps - 1)
    params = [Var("iteration", COUNT), Var("condition", CONDITION)]
    params += [Var(f"state_{k}", s.type) for k, s in enumerate(start)]
    number: Node = params[0]
    if direction.backwards:
        number = elementwise.subtract(sizes_node((last,), ()), number)
    before = tuple(params[2:])
    row = movement.gather(inputs, number, axis=0)
    output, after = _advanced(layer, number, step(row, before), before)
    results = [Constant.of(True, "bool"), *after, output]
    made = repeat(
        (sizes_node((layer.steps,), ()), Constant.of(True, "bool"), start),
        params,
        results,
        _varying([inputs, *start, *results], params),
        f"{layer.node.origin}_{'backward' if direction.backwards else 'forward'}",
    )
    begin, stride = (last, -1) if direction.backwards else (0, 1)
    whole = sizes.cut(made[-1], begin=(begin,), sizes=(layer.steps,), strides=(stride,), axes=(0,))
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


def _advanced(layer: _Layer, number: Node, fresh: State, state: State) -> tuple[Node, State]:
    """Return the output and the states after step `number`.

    Where a sequence of the batch has ended, the state stays and the output is zero.
    """
    lengths = layer.node.optional(4)
    if lengths is None:
        return fresh[0], fresh
    wide = elementwise.cast(reshaped(lengths, (layer.batch, 1)), dtype="int64")
    runs = elementwise.less(number, wide)
    after = tuple(elementwise.where(runs, f, s) for f, s in zip(fresh, state, strict=True))
    return elementwise.where(runs, fresh[0], scalar_like(0.0, fresh[0])), after


def _results(
    layer: _Layer, outputs: Sequence[Sequence[Node]], finals: Sequence[State]
) -> list[Node]:
    """Return [steps, directions, batch, hidden] and the last states, in the node's layout."""
    size = (layer.batch, layer.hidden)
    if len(outputs[0]) == layer.steps:
        rows = [reshaped(o, (1, *size)) for step in zip(*outputs, strict=True) for o in step]
        joined = reshaped(_joined(rows, 0), (layer.steps, layer.directions, *size))
    else:
        joined = _joined([reshaped(o, (layer.steps, 1, *size)) for (o,) in outputs], 1)
    last = [
        _joined([reshaped(s, (1, *size)) for s in states], 0)
        for states in zip(*finals, strict=True)
    ]
    if not layer.batch_first:
        return [joined, *last]
    return [transposed(joined, (2, 0, 1, 3)), *(transposed(x, (1, 0, 2)) for x in last)]


def _joined(parts: Sequence[Node], axis: int) -> Node:
    return parts[0] if len(parts) == 1 else movement.concat(*parts, axis=axis)


def _all_biases(layer: _Layer, direction: int) -> tuple[Node, Node] | None:
    """Return the biases of the inputs and of the state, [gates * hidden] each."""
    bias = layer.part(3, direction)
    if bias is None:
        return None
    half = layer.gates * layer.hidden
    if shape_of(bias) != (2 * half,):
        raise ModelError(f"the bias {bias.type} must have {2 * half} entries per direction")
    return _piece(bias, 0, 0, half), _piece(bias, 0, half, 2 * half)


def _one_bias(layer: _Layer, direction: int) -> Node | None:
    both = _all_biases(layer, direction)
    return None if both is None else elementwise.add(*both)


@converter("RNN", since=(7, 14, 22))
def rnn(node: OnnxNode) -> list[Node]:
    """Convert the simple layer: H = f(X W' + H R' + b)."""
    layer = _read_layer(node, 1)
    order = _order(node, layer.directions)
    functions = _activations(node, ["Tanh"], layer.directions)
    runs = []
    for d, backwards in enumerate(order):
        one = _direction(layer, d, backwards, _one_bias(layer, d))

        def step(x: Node, s: State, one: _Direction = one, f: Activation = functions[d]) -> State:
            return (f(one.with_state(x, s[0])),)

        runs.append(_run(one, (layer.start(5, d),), step))
    return _results(layer, [o for o, _ in runs], [s for _, s in runs])


@converter("LSTM", since=(7, 14, 22))
def lstm(node: OnnxNode) -> list[Node]:
    """Convert the long short-term memory, with peepholes and coupled gates where given."""
    return lstm_by_products(node)


def lstm_by_products(
    node: OnnxNode, products: Callable[[int], tuple[Product, Product]] | None = None
) -> list[Node]:
    """Return a long short-term memory.

    `products(direction)` multiply its inputs and states where its weights have another form than
    those of the standard's operator.
    """
    layer = _read_layer(node, 4)
    order = _order(node, layer.directions)
    functions = _activations(node, ["Sigmoid", "Tanh", "Tanh"], layer.directions)
    coupled = node.flag("input_forget")
    runs = []
    for d, backwards in enumerate(order):
        own = None if products is None else products(d)
        one = _direction(layer, d, backwards, _one_bias(layer, d), own)
        cell = _Cell(one, functions[3 * d : 3 * d + 3], coupled, layer.part(7, d))
        runs.append(_run(one, (layer.start(5, d), layer.start(6, d)), cell.step))
    return _results(layer, [o for o, _ in runs], [s for _, s in runs])


@dataclass(frozen=True, slots=True)
class _Cell:
    """An LSTM cell: gates are f, g and h of ONNX; `peepholes` [3 * hidden] are of i, o and f."""

    direction: _Direction
    functions: Sequence[Activation]
    coupled: bool
    peepholes: Node | None

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
        o = f(self._peep(o, cell, 1))
        return elementwise.multiply(o, h(cell)), cell

    def _peep(self, gate: Node, cell: Node, which: int) -> Node:
        if self.peepholes is None:
            return gate
        hidden = self.direction.layer.hidden
        weights = _piece(self.peepholes, 0, which * hidden, (which + 1) * hidden)
        return elementwise.add(gate, elementwise.multiply(weights, cell))


@converter("GRU", since=(3, 7, 14, 22))
def gru(node: OnnxNode) -> list[Node]:
    """Convert the gated recurrent unit; the reset gate acts before or after its product."""
    layer = _read_layer(node, 3)
    order = _order(node, layer.directions)
    functions = _activations(node, ["Sigmoid", "Tanh"], layer.directions)
    linear = node.flag("linear_before_reset")
    runs = []
    for d, backwards in enumerate(order):
        both = _all_biases(layer, d)
        one = _direction(layer, d, backwards, None if both is None else both[0])
        unit = _Unit(one, functions[2 * d : 2 * d + 2], linear, None if both is None else both[1])
        runs.append(_run(one, (layer.start(5, d),), unit.step))
    return _results(layer, [o for o, _ in runs], [s for _, s in runs])


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
        width = self.direction.layer.hidden * (3 if self.linear_before_reset else 2)
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
        size = self.direction.layer.hidden
        weights = _piece(self.direction.recurrence, 1, 2 * size, 3 * size)
        product: Node = matmul.matmul(elementwise.multiply(reset, hidden), weights)
        if self.bias is None:
            return product
        return elementwise.add(product, _piece(self.bias, 0, 2 * size, 3 * size))
