# SPDX-License-Identifier: Apache-2.0
"""Tables whose rows are looked up and with whose transpose values are multiplied, held once.

    gather(table, indices), matmul(x, table^T)  ->  gather_packed(panels, indices),
                                                    dense_packed(x, panels)

Language models look words up in the table that scores them at the end; it is a third of a small
model's weights. A looked-up row is strided in the panels, which costs a cache line per element:
little compared with a product with the whole table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from treadle.graph import nodes as g
from treadle.graph.nodes import Call, Constant, DeferredConstant, Function, Node, rewrite
from treadle.ops.indexing import gather
from treadle.ops.lowered.gather_packed import gather_packed
from treadle.ops.movement import AxisAttrs


def look_up_in_panels(function: Function, packed: Mapping[Constant, Constant]) -> Function:
    """Return `function` with rows of tables read from panels that hold the whole table.

    `packed` are the panels [n/nb, k, nb] made of matrices [k, n]. Tables that anything else reads
    stay as they are: nothing would be saved.
    """
    tables = _tables(function, packed)
    if not tables:
        return function

    def look_up(node: Node) -> Node | None:
        if not isinstance(node, Call) or not _is_look_up(node) or node.args[0] not in tables:
            return None
        table, indices = node.args
        assert isinstance(table, Constant)
        rows = table.type.static_shape[0]
        return gather_packed(tables[table], indices, n=rows, origin=node.origin)

    return rewrite(function, look_up)


def _tables(function: Function, packed: Mapping[Constant, Constant]) -> dict[Node, Constant]:
    """Return the panels of tables that are in use for the product and only looked up besides."""
    nodes = list(g.topological([function.body]))
    present = set(nodes)
    panels = {place_of(matrix): made for matrix, made in packed.items() if made in present}
    found: dict[Node, Constant] = {}
    for node in nodes:
        if isinstance(node, Constant) and node.type.ndim == 2 and place_of(node, flip=True):
            made = panels.get(place_of(node, flip=True))
            if made is not None:
                found[node] = made
    for node in nodes:
        for place, operand in enumerate(g.operands(node)):
            if operand in found and not (place == 0 and _is_look_up(node)):
                del found[operand]
    return found


def _is_look_up(node: Node) -> bool:
    return isinstance(node, Call) and node.op is gather and node.attrs == AxisAttrs(0)


def looked_up(nodes: Iterable[Node]) -> frozenset[object]:
    """Return the places of the matrices [k, n] whose transpose is a table that rows are read of."""
    tables = (n.args[0] for n in nodes if isinstance(n, Call) and _is_look_up(n))
    places = (place_of(t, flip=True) for t in tables if isinstance(t, Constant))
    return frozenset(place for place in places if place is not None)


def place_of(constant: Constant, *, flip: bool = False) -> tuple[object, ...] | None:
    """Return where the elements of a matrix, or of its transpose, lie in memory."""
    if isinstance(constant, DeferredConstant):
        return None
    value: np.ndarray = constant.value.T if flip else constant.value
    return value.__array_interface__["data"][0], value.shape, value.strides, value.dtype
