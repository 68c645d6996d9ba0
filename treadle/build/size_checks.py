# SPDX-License-Identifier: Apache-2.0
"""What a model asks of its sizes where that cannot be proved: every run checks it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from treadle.errors import ModelError
from treadle.graph.nodes import Call, Function, topological
from treadle.graph.operator import POINTWISE, Operator
from treadle.graph.size_rules import SizeRule, aligned
from treadle.graph.types import TensorType, tensor_type


@dataclass(frozen=True, slots=True)
class SizeCheck:
    """A rule that sizes must satisfy for the node `origin` to have a meaning."""

    rule: SizeRule
    origin: str


def size_checks(function: Function) -> list[SizeCheck]:
    """Return what every run must check before a kernel may trust the shapes it was made for.

    Calls in fused groups count; those in the bodies of branches and loops do not: the plan of a
    body has checks of its own.
    """
    found: dict[SizeRule, SizeCheck] = {}
    functions = [function]
    while functions:
        for node in topological([functions.pop().body]):
            if not isinstance(node, Call):
                continue
            if isinstance(node.op, Function):
                functions.append(node.op)
                continue
            for rule in _rules(node, node.op):
                if not rule.always_holds:
                    found.setdefault(rule, SizeCheck(rule, _place(rule, node.origin)))
    return list(found.values())


def _place(rule: SizeRule, origin: str) -> str:
    """Return what the message of a refusal names: the node, or what the model asks for."""
    if rule.rule == "asked":
        return rule.reason
    return f"{origin}: {rule.reason}" if rule.reason else origin


def refuse_broken(checks: Sequence[SizeCheck]) -> None:
    """Raise ModelError where sizes that are known break a rule: no kernel may be made for them."""
    for check in checks:
        if check.rule.never_holds:
            node = f"node {check.origin} " if check.origin else "a node "
            raise ModelError(
                f"{node}{check.rule}", hint="check the shapes of the inputs (--input-shapes)"
            )


def _rules(call: Call, operator: Operator[Any]) -> Iterator[SizeRule]:
    if operator.rules is not None:
        yield from operator.rules(call.attrs, call.type, *(a.type for a in call.args))
    elif operator.fusion in POINTWISE and isinstance(call.type, TensorType):
        for a in call.args:
            yield from aligned(tensor_type(a.type).shape, call.type.shape)
