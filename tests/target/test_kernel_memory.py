# SPDX-License-Identifier: Apache-2.0
"""Buffers of a kernel lie in the workspace at their offsets, or on the stack where it has room."""

from __future__ import annotations

import pytest

from treadle import te
from treadle.build.te_build import build
from treadle.errors import InternalError, TargetError
from treadle.expr.nodes import Const, Expr, Var
from treadle.loop.nodes import Buffer, PrimFunc, Scope, Seq
from treadle.target.kernel_memory import local_size, shared_params, workspace_offset
from treadle.target.parse import parse_target

pytestmark = pytest.mark.tiny

SMALL = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver5 -stack-bytes=4K")


def buffer(count: Expr, scope: Scope = "local") -> Buffer:
    return Buffer("b", "float32", (count,), scope)


def kernel(**attrs: object) -> PrimFunc:
    return PrimFunc("f", (buffer(Const.of(4), "global"),) * 3, (), Seq(()), attrs=attrs)


def test_the_stack_takes_what_the_target_has_room_for() -> None:
    assert local_size(kernel(), buffer(Const.of(1024)), SMALL) == 1024
    assert local_size(kernel(), buffer(Const.of(0)), SMALL) == 1
    with pytest.raises(TargetError) as error:
        local_size(kernel(), buffer(Const.of(1025)), SMALL)
    assert "takes 4,100 bytes of the stack, where a buffer may take 4,096" in error.value.problem
    assert error.value.at == "kernel f"
    assert error.value.hint is not None
    assert error.value.hint.endswith("-stack-bytes=4100")
    with pytest.raises(InternalError, match="is of unknown size"):
        local_size(kernel(), buffer(Var("n")), SMALL)


@pytest.mark.parametrize("kind", ["llvm", "c"])
def test_a_schedule_that_needs_more_is_refused(kind: str) -> None:
    a = te.placeholder((8, 2000), name="a")
    b = te.compute((8, 2000), lambda i, j: a[i, j] + 1.0, name="b")
    c = te.compute((8, 2000), lambda i, j: b[i, 1999 - j] * 2.0, name="c")
    s = te.create_schedule(c.op)
    s[b].compute_at(s[c], c.op.axis[0])
    with pytest.raises(TargetError, match="takes 8,000 bytes of the stack"):
        build(s, [a, c], target=f"{kind} -stack-bytes=4K")


def test_a_workspace_buffer_has_its_offset() -> None:
    lent = buffer(Const.of(4), "workspace")
    assert workspace_offset(kernel(workspace_offsets={"b": 128}), lent) == 128
    n = Var("n")
    assert workspace_offset(kernel(workspace_offsets={"b": n}), lent) is n
    with pytest.raises(InternalError, match="has no offset"):
        workspace_offset(kernel(), lent)
    with pytest.raises(InternalError, match="is not aligned to 64 bytes"):
        workspace_offset(kernel(workspace_offsets={"b": 32}), lent)


def test_the_result_may_lie_where_an_operand_does() -> None:
    assert shared_params(kernel()) == set()
    assert shared_params(kernel(overwritable=(0,))) == {0, 2}
