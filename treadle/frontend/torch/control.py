# SPDX-License-Identifier: Apache-2.0
"""torch's operators whose operands are graphs: cond, while_loop, scan and map.

Each converter is called with a function that gives the results of a graph for values, the operands
of the operator, and what torch says of its results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from torch import fx

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, dims_of, reshaped
from treadle.frontend.builders.closure import branch, repeat
from treadle.frontend.builders.movement import taken
from treadle.frontend.symbolic import sizes_node
from treadle.graph.nodes import Constant, Node, Var
from treadle.graph.types import Dim, TensorType, tensor_type
from treadle.ops.control import CONDITION, COUNT
from treadle.ops.reshaping import reshape

Value: TypeAlias = Any
"""A graph node, a size, a number, or a list of them."""

Inline: TypeAlias = Callable[[fx.GraphModule, Sequence[Value]], list[Node]]
"""Returns the results of a graph that is given values."""

Shapes: TypeAlias = Sequence[tuple[Dim, ...]]
"""The shapes of an operator's results, as torch says them."""

Control: TypeAlias = Callable[[Inline, Sequence[Value], Shapes, str], list[Node]]

_NO_LIMIT = 2**63 - 1


def nodes_in(values: Iterable[Value]) -> Iterable[Node]:
    """Yield the graph nodes among values, those in lists too."""
    for value in values:
        if isinstance(value, Node):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from nodes_in(value)


def _conditional(inline: Inline, args: Sequence[Value], shapes: Shapes, origin: str) -> list[Node]:
    """Convert torch.cond: one branch where the condition is known, else both."""
    condition, then, other, operands = args
    if condition is None:
        raise ModelError("a branch on a size that only a run knows is not supported")
    if isinstance(condition, bool):
        return inline(then if condition else other, operands)
    chosen = _truth(condition)
    if isinstance(chosen, Constant):
        return inline(then if chosen.value else other, operands)
    results = (inline(then, operands), inline(other, operands))
    return branch(chosen, results, list(nodes_in(operands)), origin)


def _while_loop(inline: Inline, args: Sequence[Value], shapes: Shapes, origin: str) -> list[Node]:
    """Convert while_loop: states that a body changes as long as a condition on them holds."""
    test, body, carried, *rest = args
    constant = rest[0] if rest else ()
    states = _tensors(carried)

    def goes_on(values: Sequence[Value]) -> Node:
        (made,) = inline(test, [*values, *constant])
        return _truth(made)

    params = _params(states)
    after = inline(body, [*params[2:], *constant])
    after = [_shaped(a, dims_of(s)) for a, s in zip(after, states, strict=True)]
    start = (Constant.of(_NO_LIMIT, "int64"), goes_on(states), states)
    made = repeat(start, params, [goes_on(after), *after], _outside(states, constant), origin)
    return [_shaped(m, shape) for m, shape in zip(made, shapes, strict=True)]


def _scan(inline: Inline, args: Sequence[Value], shapes: Shapes, origin: str) -> list[Node]:
    """Convert scan: states that follow from the rows of tensors, and a row of results for each."""
    body, carried, sequences, *rest = args
    return _over_rows(inline, body, (carried, sequences, rest[0] if rest else ()), shapes, origin)


def _map(inline: Inline, args: Sequence[Value], shapes: Shapes, origin: str) -> list[Node]:
    """Convert map: a row of results for each row of tensors."""
    body, sequences, *rest = args
    return _over_rows(inline, body, ((), sequences, rest[0] if rest else ()), shapes, origin)


def _over_rows(
    inline: Inline,
    body: fx.GraphModule,
    operands: tuple[Sequence[Value], Sequence[Value], Sequence[Value]],
    shapes: Shapes,
    origin: str,
) -> list[Node]:
    """Return the results of a body for each row of sequences: states at the end, and rows."""
    carried, sequences, constant = operands
    states, rows = _tensors(carried), _tensors(sequences)
    params = _params(states)
    given = [taken(x, params[0], 0, origin) for x in rows]
    results = inline(body, [*params[2:], *given, *constant])
    after = [_shaped(a, dims_of(s)) for a, s in zip(results, states, strict=False)]
    always = Constant.of(True, "bool")
    start = (sizes_node((dims_of(rows[0])[0],), ()), always, states)
    made = repeat(
        start,
        params,
        [always, *after, *results[len(states) :]],
        _outside([*states, *rows], constant),
        origin,
    )
    return [_shaped(m, shape) for m, shape in zip(made, shapes, strict=True)]


def _params(states: Sequence[Node]) -> list[Var]:
    """Return the parameters of a body: the iteration, the condition and the states."""
    named = (Var(f"state_{k}", s.type) for k, s in enumerate(states))
    return [Var("iteration", COUNT), Var("condition", CONDITION), *named]


def _outside(states: Sequence[Node], constant: Sequence[Value]) -> list[Node]:
    return [*states, *nodes_in(constant)]


def _tensors(values: Sequence[Value]) -> list[Node]:
    """Return the operands of a loop. Raises: ModelError for numbers among them."""
    found = [v for v in values if isinstance(v, Node)]
    if len(found) < len(values):
        raise ModelError(
            "a loop over numbers is not supported", hint="carry them as tensors: torch.tensor(n)"
        )
    return found


def _truth(condition: Value) -> Node:
    """Return a condition as a truth value of rank 0."""
    return reshaped(converted(condition, "bool"), ())


def _shaped(x: Node, wanted: Sequence[Dim]) -> Node:
    """Return a value with the shape that torch says, which a run checks where it is not known."""
    kind: TensorType = tensor_type(x.type)
    is_known = all(isinstance(d, int) for d in kind.shape)
    return x if is_known or len(kind.shape) != len(wanted) else reshape(x, shape=tuple(wanted))


CONTROL: Mapping[str, Control] = {
    "cond": _conditional,
    "while_loop": _while_loop,
    "scan": _scan,
    "map_impl": _map,
}
"""Converters by the names of torch's higher-order operators."""
