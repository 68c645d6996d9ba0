# SPDX-License-Identifier: Apache-2.0
"""Which operands of a kernel its result may overwrite.

The last sum of a residual block reads an element of what it adds exactly when it writes that
element of the result. If nothing else needs the operand any more, both can have the same memory:
the network touches less of it, and a core finds the lines it writes in its cache.
"""

from __future__ import annotations

from collections.abc import Iterable

from treadle.graph import nodes as g
from treadle.graph.nodes import Call, Function, Node
from treadle.graph.operator import POINTWISE, Operator
from treadle.graph.types import TensorType


def overwritable(function: Function) -> tuple[int, ...]:
    """Return the positions of the parameters of a fused function that its result may overwrite.

    Those are read only by element-wise calls of the shape of the result, up to the result: element
    i of the parameter is read for element i of the result alone.
    """
    if not isinstance(function.body, Call) or not isinstance(function.body.type, TensorType):
        return ()
    calls = [n for n in g.topological([function.body]) if isinstance(n, Call)]
    others = {a for c in calls if not _keeps_elements(c, function.body.type) for a in c.args}
    reached = _operands_of(reversed(calls), function.body, others)
    return tuple(
        i
        for i, param in enumerate(function.params)
        if param in reached and param not in others and param.type == function.body.type
    )


def _operands_of(calls: Iterable[Call], result: Node, others: set[Node]) -> set[Node]:
    """Return what is used for elements of the result at the same place only; users come first."""
    reached: set[Node] = {result}
    spoiled = set(others)
    for call in calls:
        if call in reached and call not in spoiled:
            reached.update(call.args)
        else:
            spoiled.update(call.args)
    return reached - spoiled


def _keeps_elements(call: Call, result: TensorType) -> bool:
    """True where element i of a call is made of elements i of the operands of its shape."""
    operator = call.op
    is_pointwise = isinstance(operator, Operator) and operator.fusion in POINTWISE
    return is_pointwise and isinstance(call.type, TensorType) and call.type.shape == result.shape
