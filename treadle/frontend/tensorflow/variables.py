# SPDX-License-Identifier: Apache-2.0
"""Variables: they have their saved values in every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.errors import ModelError
from treadle.frontend.builders.basic import dims_of
from treadle.frontend.builders.movement import taken
from treadle.frontend.symbolic import sizes_node
from treadle.frontend.tensorflow.context import Context, SpecialFn, SpecialNode
from treadle.frontend.tensorflow.restore import variable_name
from treadle.frontend.tensorflow.values import Value, Variable
from treadle.ops import indexing

_WRITES = ("Assign", "ResourceScatter", "Resource", "Scatter")
_READS = frozenset({"ResourceGather", "ResourceGatherNd"})


def _handle(context: Context, use: SpecialNode) -> Sequence[Value]:
    return [Variable(variable_name(use.node))]


def _same(context: Context, use: SpecialNode) -> Sequence[Value]:
    return [use.value(0)]


def _read(context: Context, use: SpecialNode) -> Sequence[Value]:
    _check_unwritten(use)
    return [context.variable(use.variable(0).name)]


def _old_variable(context: Context, use: SpecialNode) -> Sequence[Value]:
    return [context.variable(variable_name(use.node))]


def _gathered(context: Context, use: SpecialNode) -> Sequence[Value]:
    _check_unwritten(use)
    table = context.variable(use.variable(0).name)
    if use.attributes.integer("batch_dims"):
        raise ModelError("a choice of rows of a variable by batch is not supported")
    return [taken(table, use.tensor(1), 0, use.node.op)]


def _gathered_nd(context: Context, use: SpecialNode) -> Sequence[Value]:
    _check_unwritten(use)
    return [indexing.gather_nd(context.variable(use.variable(0).name), use.tensor(1))]


def _shape(context: Context, use: SpecialNode) -> Sequence[Value]:
    dims = dims_of(context.variable(use.variable(0).name))
    return [sizes_node(dims, (len(dims),), use.attributes.dtype("out_type", "int32"))]


def _check_unwritten(use: SpecialNode) -> None:
    """Raise ModelError for a read after a write in the same run."""
    for name in use.node.after:
        before = use.nodes.get(name)
        writes = before is not None and before.op not in _READS and before.op.startswith(_WRITES)
        if writes:
            raise ModelError(
                f"the variable {use.variable(0).name!r} is read after it is changed by {name!r}",
                hint="export the model for inference: variables keep their saved values",
            )


VARIABLES: Mapping[str, SpecialFn] = {
    "VarHandleOp": _handle,
    "DisableCopyOnRead": _same,
    "ReadVariableOp": _read,
    "ResourceGather": _gathered,
    "ResourceGatherNd": _gathered_nd,
    "VariableShape": _shape,
    "VariableV2": _old_variable,
    "Variable": _old_variable,
}
"""The operators on variables."""
