# SPDX-License-Identifier: Apache-2.0
"""Operators that run functions: calls, If and Case, While.

Functions see their arguments alone. A branch whose condition is known is inlined. What a loop hands
from iteration to iteration unchanged is no state of it: weights and variables stay what they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, dims_of, element_type, reshaped, scalar_like
from treadle.frontend.builders.closure import branch, repeat, shaped_as_before
from treadle.frontend.tensorflow.context import Context, SpecialFn, SpecialNode
from treadle.frontend.tensorflow.graph import FunctionDef
from treadle.frontend.tensorflow.values import Element, TensorList, Value, Variable
from treadle.graph.nodes import Constant, Node, Var
from treadle.ops import elementwise
from treadle.ops.control import CONDITION, COUNT

_NO_LIMIT = int(np.iinfo(np.int64).max)


def _same(context: Context, use: SpecialNode) -> Sequence[Value]:
    return list(use.inputs)


def _nothing(context: Context, use: SpecialNode) -> Sequence[Value]:
    return []


def _call(context: Context, use: SpecialNode) -> Sequence[Value]:
    return context.called(use.attributes.function("f"), use.inputs, use.origin + "/")


def _if(context: Context, use: SpecialNode) -> Sequence[Value]:
    """Convert a choice between two functions."""
    names = [use.attributes.function(n) for n in ("then_branch", "else_branch")]
    condition = _truth(use.tensor(0))
    arguments = use.inputs[1:]
    if isinstance(condition, Constant):
        chosen = names[0] if condition.value else names[1]
        return context.called(chosen, arguments, use.origin + "/")
    made = [
        context.called(name, arguments, f"{use.origin}/{word}/")
        for name, word in zip(names, ("then", "else"), strict=True)
    ]
    return _either(condition, (made[0], made[1]), arguments, use.origin)


def _case(context: Context, use: SpecialNode) -> Sequence[Value]:
    """Convert a choice among functions by number: the last one where there is none of it."""
    names = use.attributes.functions("branches")
    if not names:
        raise ModelError("a choice has no branches")
    index, arguments = reshaped(use.tensor(0), ()), use.inputs[1:]
    if isinstance(index, Constant):
        number = int(index.value)
        chosen = names[number if 0 <= number < len(names) else -1]
        return context.called(chosen, arguments, use.origin + "/")
    made: Sequence[Value] = context.called(names[-1], arguments, f"{use.origin}/last/")
    for k in range(len(names) - 2, -1, -1):
        here = context.called(names[k], arguments, f"{use.origin}/{k}/")
        chosen_here = elementwise.equal(index, scalar_like(k, index))
        made = _either(chosen_here, (here, made), arguments, f"{use.origin}_{k}")
    return made


def _either(
    condition: Node,
    results: tuple[Sequence[Value], Sequence[Value]],
    arguments: Sequence[Value],
    origin: str,
) -> Sequence[Value]:
    """Return the results of one of two branches."""
    if len(results[0]) != len(results[1]):
        raise ModelError(f"the branches give {len(results[0])} and {len(results[1])} results")
    outside = {n for a in arguments for n in _nodes(a)}
    pairs = list(zip(*results, strict=True))
    for then, orelse in pairs:
        if type(then) is not type(orelse) and not (
            isinstance(then, Node) and isinstance(orelse, Node)
        ):
            raise ModelError("the branches give values of different kinds")
        if isinstance(then, Variable) and then != orelse:
            raise ModelError("the branches give different variables, which is not supported")
    moved = [p for p in pairs if not isinstance(p[0], Variable)]
    both = ([_as_tensor(t) for t, _ in moved], [_as_tensor(o) for _, o in moved])
    made = iter(branch(condition, both, outside, origin))
    return [t if isinstance(t, Variable) else _like(t, next(made)) for t, _ in pairs]


def _nodes(value: Value) -> list[Node]:
    if isinstance(value, TensorList):
        return [] if value.stacked is None else [value.stacked]
    return [value] if isinstance(value, Node) else []


def _as_tensor(value: Value) -> Node:
    if isinstance(value, TensorList):
        return value.tensor()
    assert isinstance(value, Node)
    return value


def _like(value: Value, made: Node) -> Value:
    """Return a tensor as what it stands for: itself, or the elements of a list."""
    if isinstance(value, TensorList):
        length, *shape = dims_of(made)
        return TensorList(length, Element(element_type(made), tuple(shape)), made)
    return made


def _while(context: Context, use: SpecialNode) -> Sequence[Value]:
    """Convert a loop: a function of the states says whether another one runs again."""
    test, body = (use.attributes.function(n) for n in ("cond", "body"))
    states = list(use.inputs)
    moving = _changing(context.function(body), states)
    _learn_elements(context, body, states, moving, use.origin)

    def all_of(values: Sequence[Node]) -> list[Value]:
        made = list(states)
        for k, v in zip(moving, values, strict=True):
            made[k] = _like(states[k], v)
        return made

    def goes_on(values: Sequence[Node]) -> Node:
        (made,) = context.called(test, all_of(values), f"{use.origin}/condition/")
        return _truth(_as_tensor(made))

    start = [_as_tensor(states[k]) for k in moving]
    params = [Var("iteration", COUNT), Var("condition", CONDITION)]
    params += [Var(f"state_{k}", s.type) for k, s in enumerate(start)]
    after = context.called(body, all_of(params[2:]), f"{use.origin}/body/")
    if len(after) != len(states):
        raise ModelError(f"the body gives {len(after)} values for {len(states)} states")
    ends = [shaped_as_before(_as_tensor(after[k]), s) for k, s in zip(moving, start, strict=True)]
    begin = (Constant.of(_NO_LIMIT, "int64"), goes_on(start), start)
    outside = {n for v in states for n in _nodes(v)}
    made = repeat(begin, params, [goes_on(ends), *ends], outside, use.origin)
    return all_of(made)


def _changing(body: FunctionDef, states: Sequence[Value]) -> list[int]:
    """Return which states an iteration may change.

    Raises: ModelError for a variable among them.
    """
    if len(body.results) != len(states) or len(body.arguments) != len(states):
        raise ModelError(
            f"the body takes {len(body.arguments)} and gives {len(body.results)} values for "
            f"{len(states)} states"
        )
    made = []
    for k, at in enumerate(body.results):
        for _ in range(len(body.nodes)):
            node = body.nodes.get(at.node)
            if node is None or node.op != "Identity" or not node.inputs:
                break
            at = node.inputs[0]
        if at.node != body.arguments[k]:
            made.append(k)
            if isinstance(states[k], Variable):
                raise ModelError("a loop goes from one variable to another: this is not supported")
    return made


def _learn_elements(
    context: Context, body: str, states: list[Value], moving: Sequence[int], origin: str
) -> None:
    """Run the body once where only its first iteration says what shape elements of lists have."""
    unknown = [
        k for k in moving if isinstance(s := states[k], TensorList) and s.element.shape is None
    ]
    if not unknown:
        return
    params: list[Value] = list(states)
    for k in moving:
        state = states[k]
        if isinstance(state, Node):
            params[k] = Var(f"state_{k}", state.type)
    after = context.called(body, params, f"{origin}/body/")
    for k in unknown:
        state, made = states[k], after[k]
        assert isinstance(state, TensorList)
        if not isinstance(made, TensorList) or made.element.shape is None:
            raise ModelError("nothing says what shape the elements of a loop's list have")
        states[k] = replace(state, element=Element(state.element.dtype, made.element.shape))


def _truth(condition: Node) -> Node:
    """Return a condition as a truth value of rank 0."""
    return converted(reshaped(condition, ()), "bool")


CONTROL: Mapping[str, SpecialFn] = {
    "PartitionedCall": _call,
    "StatefulPartitionedCall": _call,
    "If": _if,
    "StatelessIf": _if,
    "Case": _case,
    "StatelessCase": _case,
    "While": _while,
    "StatelessWhile": _while,
    "Identity": _same,
    "IdentityN": _same,
    "NoOp": _nothing,
}
"""The operators that run functions, and those that hand values on as they are."""
