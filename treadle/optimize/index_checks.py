# SPDX-License-Identifier: Apache-2.0
"""Checks of indices that need no run: of constants, and where the user wants none."""

from __future__ import annotations

from treadle.graph.nodes import Call, Constant, Function, Node, rewrite
from treadle.graph.operator import bodies_of, with_bodies
from treadle.ops.index_checks import CheckAttrs, check_indices
from treadle.optimize.rule import Rule, Uses


def _drop_known(call: Call, uses: Uses) -> Node | None:
    """check_indices(constant) -> constant, where all extents are known and hold it."""
    indices = call.args[0]
    assert isinstance(call.attrs, CheckAttrs)
    if not isinstance(indices, Constant):
        return None
    if not all(isinstance(extent, int) for extent in call.attrs.extents):
        return None
    check_indices.reference(call.attrs, indices.value)
    return indices


RULES = (Rule("drop_known_checks", (check_indices,), _drop_known),)


def drop_index_checks(function: Function) -> Function:
    """Return `function` without checks of indices, also in the bodies of branches and loops."""

    def drop(node: Node) -> Node | None:
        if not isinstance(node, Call):
            return None
        if node.op is check_indices:
            return node.args[0]
        bodies = bodies_of(node)
        if not bodies:
            return None
        changed = {body: drop_index_checks(body) for body in bodies}
        return Call(node.op, node.args, with_bodies(node.attrs, changed), node.type, node.origin)

    return rewrite(function, drop)
