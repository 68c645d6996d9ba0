# SPDX-License-Identifier: Apache-2.0
"""What the host does of a kernel for a GPU: one launch after the other, some only for some sizes.

Outside of all loops there are sequences, memory that lives between launches, and conditions on
sizes. All else is a launch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from treadle.expr.conditions import as_number
from treadle.expr.nodes import Expr, Var
from treadle.expr.traversal import free_vars, reads_memory
from treadle.loop import nodes as lp
from treadle.loop.nodes import Allocate, For, If, Let, Seq, Stmt


def map_launches(s: Stmt, sizes: Collection[Var], change: Callable[[Stmt], Stmt]) -> Stmt:
    """Return a body of a function with `change` of each of its launches."""
    if not is_of_host(s, sizes):
        return change(s)
    return lp.map_children(s, lambda inner: map_launches(inner, sizes, change))


def is_of_host(s: Stmt, sizes: Collection[Var]) -> bool:
    """True for a statement outside of all loops that the host can take apart."""
    if isinstance(s, Seq):
        return True
    if isinstance(s, Allocate):
        return s.buffer.scope == "workspace"
    if isinstance(s, If):
        return is_of_sizes(s.cond, sizes) and as_number(s.cond) is not None
    return isinstance(s, Let) and is_of_sizes(s.value, sizes)


def is_of_sizes(e: Expr, sizes: Collection[Var]) -> bool:
    """True for a value that the host knows before anything runs."""
    return not reads_memory(e) and all(v in sizes for v in free_vars(e))


def thread_loops(s: Stmt) -> list[For]:
    """Return the loops of a statement that are bound to a hardware index, outermost first."""
    return [x for x in lp.walk_stmts(s) if isinstance(x, For) and x.kind == "thread"]
