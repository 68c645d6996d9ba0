# SPDX-License-Identifier: Apache-2.0
"""Bodies of control flow as functions: what they use from outside becomes their parameters."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from treadle.expr.nodes import Var as SizeVar
from treadle.frontend.builders.basic import dims_of
from treadle.graph.nodes import (
    Constant,
    Function,
    Node,
    Tuple,
    TupleItem,
    Var,
    operands,
    topological,
    with_operands,
)
from treadle.graph.symbols import decided_by, used_symbols
from treadle.graph.types import Dim
from treadle.ops.control import (
    IfAttrs,
    LoopAttrs,
    branch_dims,
    if_,
    loop,
    loop_dims,
)
from treadle.ops.reshaping import reshape
from treadle.ops.select import bind_size, depend_on


def reached(results: Sequence[Node], outside: Collection[Node]) -> tuple[list[Node], list[Node]]:
    """Return the nodes a body makes, operands first, and those of `outside` that they use."""
    made: dict[Node, None] = {}
    used: dict[Node, None] = {}
    stack: list[tuple[Node, bool]] = [(r, False) for r in reversed(results)]
    while stack:
        node, ready = stack.pop()
        if node in made or node in used:
            continue
        if not isinstance(node, Constant) and node in outside:
            used[node] = None
        elif ready:
            made[node] = None
        else:
            stack.append((node, True))
            stack.extend((o, False) for o in reversed(operands(node)))
    return list(made), list(used)


def function_of(
    name: str, params: Sequence[Var], results: Sequence[Node], captures: Sequence[Node]
) -> Function:
    """Return the function of a body: `params`, then one parameter per captured value."""
    inner = [Var(f"outer_{k}", c.type, c.origin) for k, c in enumerate(captures)]
    made, _ = reached(results, {*params, *captures})
    done: dict[Node, Node] = {**dict(zip(captures, inner, strict=True)), **{p: p for p in params}}
    for node in made:
        done[node] = with_operands(node, [done[o] for o in operands(node)])
    body = Tuple.of(done[r] for r in results)
    return Function((*params, *inner), body, name)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Fresh symbolic sizes for the extents of results that are not known."""

    origin: str

    def for_(self, dims: Sequence[Sequence[Dim | None]]) -> tuple[Dim, ...]:
        """Return a size for every extent that is None, from left to right."""
        missing = sum(d is None for row in dims for d in row)
        return tuple(SizeVar(f"{self.origin}_{k}", "int64") for k in range(missing))


def branch(
    condition: Node,
    results: tuple[Sequence[Node], Sequence[Node]],
    outside: Collection[Node],
    origin: str,
) -> list[Node]:
    """Return the results of an if whose two branches give `results`."""
    captures = _captures([*results[0], *results[1]], outside)
    then, orelse = (
        function_of(f"{origin}_{name}", (), values, captures)
        for name, values in zip(("then", "else"), results, strict=True)
    )
    sizes = _Sizes(origin).for_(branch_dims(then, orelse))
    call = if_.call(IfAttrs(then, orelse, sizes), (condition, *captures), origin=origin)
    return [TupleItem.of(call, k) for k in range(len(results[0]))]


def repeat(
    start: tuple[Node, Node, Sequence[Node]],
    params: Sequence[Var],
    results: Sequence[Node],
    outside: Collection[Node],
    origin: str,
) -> list[Node]:
    """Return the results of a loop from its limit, condition and states.

    The body takes `params` (iteration, condition, states) and gives `results` (condition, states,
    rows).
    """
    limit, condition, states = start
    captures = _captures(results, [n for n in outside if n not in params])
    body = function_of(f"{origin}_body", params, results, captures)
    dims = loop_dims(body, len(states))
    count = SizeVar(f"{origin}_count", "int64")
    sizes = [*_Sizes(origin).for_(dims[: len(states)])]
    for row in dims[len(states) :]:
        sizes += [count, *_Sizes(f"{origin}_row").for_([row[1:]])]
    attrs = LoopAttrs(body, len(states), tuple(sizes))
    call = loop.call(attrs, (limit, condition, *states, *captures), origin=origin)
    return [TupleItem.of(call, k) for k in range(len(results) - 1)]


def shaped_as_before(after: Node, before: Node) -> Node:
    """Return a state after an iteration with the shape it had before, which a run checks.

    Sizes that a run computes are not known to be those that a loop keeps.
    """
    shape, wanted = dims_of(after), dims_of(before)
    if len(shape) != len(wanted) or all(isinstance(d, int) for d in shape):
        return after
    return reshape(after, shape=wanted)


def decided_sizes(results: Sequence[Node]) -> dict[SizeVar, Node]:
    """Return the sizes that a branch or loop decides, each with one of its results."""
    items = [r for r in results if isinstance(r, TupleItem)]
    return {s: item for item in reversed(items) for s in decided_by(item.value)}


def anchored(results: Sequence[Node], sizes: Mapping[SizeVar, Node]) -> list[Node]:
    """Return results of which one says which values the sizes they speak of are the numbers of.

    `sizes` are numbers, and results of branches and loops that decide sizes: those are computed
    first, also where nothing else of them is used.
    """
    made = list(results)
    at = next((k for k, r in enumerate(made) if not isinstance(r, (Constant, Tuple))), None)
    if at is None:
        return made
    decided = {s for s, value in sizes.items() if s in decided_by(_call_of(value))}
    used: dict[SizeVar, None] = {}
    seen: dict[Node, None] = {}
    waiting: list[SizeVar] = []
    stack = list(made)
    while stack or waiting:
        if not stack:
            value = sizes[waiting.pop()]
            if _call_of(value) not in seen:
                made[at] = depend_on(made[at], value, origin=made[at].origin)
                stack.append(value)
            continue
        for node in topological([stack.pop()]):
            if node in seen:
                continue
            seen[node] = None
            fresh = [s for s in used_symbols(node) if s in sizes and s not in used]
            used |= dict.fromkeys(fresh)
            waiting += [s for s in fresh if s in decided]
            stack += [sizes[s] for s in fresh if s not in decided]
    for size in used:
        if size not in decided:
            made[at] = bind_size(made[at], sizes[size], size=size, origin=made[at].origin)
    return made


def _call_of(value: Node) -> Node:
    return value.value if isinstance(value, TupleItem) else value


def _captures(results: Sequence[Node], outside: Collection[Node]) -> list[Node]:
    return reached(results, {*outside})[1]


def visible(values: Mapping[str, Node]) -> Iterator[Node]:
    """Yield the values a body can see, those of tuples one by one too."""
    for value in values.values():
        yield value
        if isinstance(value, Tuple):
            yield from visible({str(k): f for k, f in enumerate(value.fields)})
