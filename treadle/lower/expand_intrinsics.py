# SPDX-License-Identifier: Apache-2.0
"""The pass that writes out what an intrinsic means where the target has no instruction for it."""

from __future__ import annotations

from collections.abc import Callable

from treadle.expr.nodes import Apply, Expr
from treadle.expr.references import Instruction
from treadle.expr.traversal import rewrite
from treadle.expr.vocabulary import HAS_CALL
from treadle.loop.nodes import PrimFunc, map_stmt


def expand_intrinsics(
    func: PrimFunc, *, is_kept: Callable[[Instruction], bool] = lambda _: False
) -> PrimFunc:
    """Return the kernel with every intrinsic but those that are kept written out.

    before: C[0] = dot(C[0], A[0], A[1], B[0], B[1])
    after:  C[0] = C[0] + A[0] * B[0] + A[1] * B[1]
    """
    memo: dict[Expr, Expr] = {}

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, Apply) or is_kept(e.instruction):
            return None
        return e.instruction.expand(e.args)

    def expanded(e: Expr) -> Expr:
        return rewrite(e, rule, memo, HAS_CALL)

    return func.with_body(map_stmt(func.body, expanded))
