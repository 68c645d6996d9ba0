# SPDX-License-Identifier: Apache-2.0
"""Operators that run subgraphs: IF, WHILE, CALL and CALL_ONCE.

A subgraph sees its arguments alone. A branch whose condition is known is inlined.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, reshaped
from treadle.frontend.builders.closure import branch, repeat, shaped_as_before
from treadle.frontend.tflite.node import Options, TfliteNode
from treadle.graph.nodes import Constant, Node, Var
from treadle.ops.control import CONDITION, COUNT

_NO_LIMIT = int(np.iinfo(np.int64).max)


class Subgraphs(ABC):
    """What control flow needs of an import."""

    @abstractmethod
    def converted(self, number: int, arguments: Sequence[Node], prefix: str) -> list[Node]:
        """Return the results of a subgraph for some arguments."""


@dataclass(frozen=True, slots=True)
class Control:
    """An operator that runs subgraphs: which ones its options name, and its conversion."""

    subgraphs: Callable[[Options], tuple[int, ...]]
    convert: Callable[[Subgraphs, TfliteNode], list[Node]]


def _reads(*names: str) -> Callable[[Options], tuple[int, ...]]:
    return lambda options: tuple(options.integer(name) for name in names)


def _branch(subgraphs: Subgraphs, node: TfliteNode) -> list[Node]:
    condition, arguments = _truth(node.input(0)), node.all_inputs()[1:]
    numbers = CONTROL["IF"].subgraphs(node.options)
    if isinstance(condition, Constant):
        chosen = numbers[0] if condition.value else numbers[1]
        return subgraphs.converted(chosen, arguments, node.origin + "/")
    then, orelse = (
        subgraphs.converted(number, arguments, f"{node.origin}/{name}/")
        for number, name in zip(numbers, ("then", "else"), strict=True)
    )
    if len(then) != len(orelse):
        raise ModelError(f"the branches give {len(then)} and {len(orelse)} results")
    return branch(condition, (then, orelse), set(arguments), node.origin)


def _loop(subgraphs: Subgraphs, node: TfliteNode) -> list[Node]:
    states = node.all_inputs() if node.inputs else []
    test, body = CONTROL["WHILE"].subgraphs(node.options)

    def goes_on(values: Sequence[Node]) -> Node:
        (made,) = subgraphs.converted(test, values, f"{node.origin}/condition/")
        return _truth(made)

    params = [Var("iteration", COUNT), Var("condition", CONDITION)]
    params += [Var(f"state_{k}", s.type) for k, s in enumerate(states)]
    after = subgraphs.converted(body, params[2:], f"{node.origin}/body/")
    if len(after) != len(states):
        raise ModelError(f"the body gives {len(after)} values for {len(states)} states")
    after = [shaped_as_before(a, s) for a, s in zip(after, states, strict=True)]
    start = (Constant.of(_NO_LIMIT, "int64"), goes_on(states), states)
    return repeat(start, params, [goes_on(after), *after], (), node.origin)


def _call(subgraphs: Subgraphs, node: TfliteNode) -> list[Node]:
    (number,) = CONTROL["CALL"].subgraphs(node.options)
    return subgraphs.converted(number, node.all_inputs(), node.origin + "/")


def _truth(condition: Node) -> Node:
    """Return a condition as a truth value of rank 0."""
    return converted(reshaped(condition, ()), "bool")


CONTROL: Mapping[str, Control] = {
    "IF": Control(_reads("then_subgraph_index", "else_subgraph_index"), _branch),
    "WHILE": Control(_reads("cond_subgraph_index", "body_subgraph_index"), _loop),
    "CALL": Control(_reads("subgraph"), _call),
}
"""The operators that run subgraphs."""
