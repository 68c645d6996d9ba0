# SPDX-License-Identifier: Apache-2.0
"""Turn groups of calls into functions: the part of fusion that builds, not the part that decides.

before:  %1 = conv(%x, const[0]); %2 = add(%1, const[1]); %3 = relu(%2)       group {%1, %2, %3}
after:   %1 = fused_conv_add_relu(%x, const[0], const[1])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.graph.nodes import (
    Call,
    Constant,
    Function,
    Node,
    Var,
    operands,
    topological,
    with_operands,
)
from treadle.graph.operator import Fusion, Operator
from treadle.limits import NAMED_CALLS


def outline(function: Function, groups: Mapping[Call, Sequence[Call]]) -> Function:
    """Return `function` with each group replaced by one call of a function.

    `groups` maps the last call of a group, the only one that is used outside it, to all its calls
    in topological order. Groups of the same structure share one function. Values from outside
    become parameters, tensors of weights too; constants of one element are part of the function.
    """
    builder = _Builder()
    done: dict[Node, Node] = {}
    inner = {c for calls in groups.values() for c in calls} - set(groups)
    for node in topological([function.body]):
        if node in inner:
            continue
        if isinstance(node, Call) and node in groups:
            done[node] = builder.call(groups[node], done)
        else:
            done[node] = with_operands(node, [done[o] for o in operands(node)])
    return Function(function.params, done[function.body], function.name, dict(function.attrs))


class _Builder:
    """Makes the functions; remembers them by structure and by name."""

    def __init__(self) -> None:
        self._by_structure: dict[tuple[object, ...], Function] = {}
        self._names: dict[str, int] = {}

    def call(self, calls: Sequence[Call], done: Mapping[Node, Node]) -> Call:
        """Return the call that replaces a group; `done` maps outside values to their new form."""
        inputs = _inputs_of(calls)
        key = _structure(calls, inputs)
        callee = self._by_structure.get(key)
        if callee is None:
            callee = _function_of(calls, inputs, self._unique_name(calls))
            self._by_structure[key] = callee
        args = tuple(done[i] for i in inputs)
        return Call(callee, args, None, calls[-1].type, _joined_origin(calls))

    def _unique_name(self, calls: Sequence[Call]) -> str:
        told = [c for c in calls if not _is_move(c)] if len(calls) > NAMED_CALLS else calls
        words = [_operator_name(c).strip("_") for c in told]
        rest = len(words) - NAMED_CALLS
        tail = [f"and_{rest}_more"] if rest > 0 else []
        name = "_".join(["fused", *words[:NAMED_CALLS], *tail])
        number = self._names.get(name, 0)
        self._names[name] = number + 1
        return f"{name}_{number}" if number else name


def is_embedded(node: Node) -> bool:
    """True for constants that become part of a function: those of one element."""
    return isinstance(node, Constant) and node.value.size == 1


def _inputs_of(calls: Sequence[Call]) -> list[Node]:
    """Return the distinct values a group uses from outside, in order of first use."""
    members = set(calls)
    found: dict[Node, None] = {}
    for call in calls:
        for arg in call.args:
            if arg not in members and not is_embedded(arg):
                found[arg] = None
    return list(found)


def _structure(calls: Sequence[Call], inputs: Sequence[Node]) -> tuple[object, ...]:
    """Return a key that two groups share only if one function can serve both."""
    place: dict[Node, object] = {n: ("input", k) for k, n in enumerate(inputs)}
    place.update({n: ("call", k) for k, n in enumerate(calls)})
    for call in calls:
        for arg in call.args:
            if arg not in place and isinstance(arg, Constant):
                place[arg] = ("constant", arg.type, arg.value.tobytes())
    # The repr tells 0.0 from -0.0 and True from 1; equality tells symbols of one name apart.
    rows = [(c.op, c.attrs, repr(c.attrs), *(place[a] for a in c.args)) for c in calls]
    return (tuple(n.type for n in inputs), *rows)


def _function_of(calls: Sequence[Call], inputs: Sequence[Node], name: str) -> Function:
    params = tuple(Var(f"p{k}", n.type, n.origin) for k, n in enumerate(inputs))
    done: dict[Node, Node] = dict(zip(inputs, params, strict=True))
    for call in calls:
        args = tuple(done.get(a, a) for a in call.args)
        done[call] = Call(call.op, args, call.attrs, call.type, call.origin)
    return Function(params, done[calls[-1]], name, {"primitive": True})


def _operator_name(call: Call) -> str:
    return call.op.name or "function"


def _is_move(call: Call) -> bool:
    return isinstance(call.op, Operator) and call.op.fusion is Fusion.INJECTIVE


def _joined_origin(calls: Sequence[Call]) -> str:
    return "+".join(dict.fromkeys(c.origin for c in calls if c.origin))
