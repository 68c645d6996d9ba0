# SPDX-License-Identifier: Apache-2.0
"""Where no threads run a kernel, its buffers keep within the stack: the largest are lent."""

from __future__ import annotations

from functools import partial

import pytest

from tests.lower.nests import IN, OUT, I, J, func, loop, same
from treadle.expr.nodes import Const, Expr, Var, load
from treadle.loop import nodes as lp
from treadle.loop.nodes import Allocate, Buffer, For, PrimFunc, Stmt, Store, seq
from treadle.lower.limit_stack import limit_stack, stack_bytes
from treadle.lower.plan_workspace import plan_workspace

pytestmark = pytest.mark.tiny

ZERO = Const.of(0)


def local(name: str, count: int, dtype: str = "float32", align: int = 64) -> Buffer:
    return Buffer(name, dtype, (Const.of(count),), "local", None, align)


def through(buffer: Buffer, at: Expr) -> Stmt:
    """Copy an element of A to B by way of a buffer."""
    return seq(Store(buffer, (ZERO,), load(IN, (at,))), Store(OUT, (at,), load(buffer, (ZERO,))))


def within(*buffers: Buffer, body: Stmt) -> Stmt:
    for buffer in reversed(buffers):
        body = Allocate(buffer, body)
    return body


def scopes(f: PrimFunc) -> dict[str, str]:
    found = (s.buffer for s in lp.walk_stmts(f.body) if isinstance(s, Allocate))
    return {b.name: b.scope for b in found}


def nest(*buffers: Buffer, kind: lp.ForKind = "parallel") -> PrimFunc:
    """Copy 40 elements, one after the other, through each of the buffers."""
    parts = [through(b, I * 4 + k) for k, b in enumerate(buffers)]
    return func(loop(I, 10, within(*buffers, body=seq(*parts)), kind=kind))


def test_the_largest_are_lent_until_the_others_fit() -> None:
    f = nest(local("small", 16), local("large", 200), local("middle", 100))
    assert stack_bytes(f) == 64 + 832 + 448
    for most, lent in (
        (1344, ()),
        (1343, ("large",)),
        (512, ("large",)),
        (511, ("large", "middle")),
    ):
        made = same(f, partial(limit_stack, most=most))
        assert [name for name, scope in scopes(made).items() if scope == "workspace"] == [*lent]
        assert stack_bytes(made) <= most
        planned = plan_workspace(made)
        assert planned.workspace_bytes == sum({"large": 832, "middle": 448}[name] for name in lent)


def test_loops_run_in_order_then() -> None:
    kinds = [s.kind for s in lp.walk_stmts(limit_stack(nest(local("b", 1)), 64).body)
             if isinstance(s, For)]  # fmt: skip
    assert kinds == ["serial"]


def test_with_threads_nothing_changes() -> None:
    f = nest(local("b", 1 << 20))
    assert limit_stack(f) is f


def test_what_does_not_exist_at_once_shares_the_stack() -> None:
    one, other = local("one", 100), local("other", 90)
    f = func(loop(I, 9, within(one, body=through(one, I))),
             loop(J, 9, within(other, body=through(other, J))))  # fmt: skip
    assert stack_bytes(f) == 448
    assert scopes(limit_stack(f, 448)) == {"one": "local", "other": "local"}
    assert scopes(limit_stack(f, 400)) == {"one": "workspace", "other": "local"}


def test_alignment_takes_room() -> None:
    assert stack_bytes(nest(local("a", 1, align=64), local("b", 3, "int8", align=4))) == 64 + 4


def test_lent_buffers_of_one_name_have_places_of_their_own() -> None:
    """And a buffer that several parts of the body allocate has one."""
    twice, other = local("b", 100), local("b", 90)
    k = Var("k")
    f = func(
        loop(I, 3, within(twice, other, body=seq(through(twice, I), through(other, I + 3)))),
        loop(k, 3, within(twice, body=through(twice, k + 6))),
    )
    made = same(f, partial(limit_stack, most=0))
    assert scopes(made) == {"b": "workspace", "b.2": "workspace"}
    assert plan_workspace(made).attrs["workspace_offsets"] == {"b": 0, "b.2": 448}
