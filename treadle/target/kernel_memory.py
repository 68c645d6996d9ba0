# SPDX-License-Identifier: Apache-2.0
"""Where the buffers of a lowered CPU kernel lie, for every back end that prints one."""

from __future__ import annotations

from treadle.dtype import itemsize
from treadle.errors import InternalError, TargetError
from treadle.expr.nodes import Expr
from treadle.loop.nodes import Buffer, PrimFunc
from treadle.target.base import Target
from treadle.target.llvm_facts import flat_size


def shared_params(func: PrimFunc) -> set[int]:
    """Return the numbers of the params that may lie in the same memory."""
    operands = func.attrs.get("overwritable", ())
    assert isinstance(operands, tuple)
    return {*operands, len(func.params) - 1} if operands else set()


def workspace_offset(func: PrimFunc, buffer: Buffer) -> int | Expr:
    """Return where a workspace buffer begins in the lent memory, in bytes.

    Raises: InternalError where it has no place, or not one of its alignment.
    """
    offsets = func.attrs.get("workspace_offsets", {})
    offset = offsets.get(buffer.name) if isinstance(offsets, dict) else None
    if isinstance(offset, Expr):
        return offset  # plan_workspace makes them multiples of its alignment
    if not isinstance(offset, int):
        raise InternalError(
            f"workspace buffer {buffer.name} has no offset", at=f"kernel {func.name}"
        )
    if offset % buffer.align:
        raise InternalError(
            f"workspace buffer {buffer.name} is not aligned to {buffer.align} bytes",
            at=f"kernel {func.name}",
        )
    return offset


def local_size(func: PrimFunc, buffer: Buffer, target: Target) -> int:
    """Return the elements of a buffer on the stack, at least 1.

    Raises: TargetError where the target has no room for it. InternalError where its size is not
    known.
    """
    size, most = flat_size(buffer), target.machine.stack_bytes
    if size is None:
        raise InternalError(f"local buffer {buffer} is of unknown size", at=f"kernel {func.name}")
    nbytes = size * itemsize(buffer.dtype)
    if nbytes > most:
        option = f", or say that there is room: -stack-bytes={nbytes}"
        raise TargetError(
            f"local buffer {buffer} takes {nbytes:,} bytes of the stack, where a buffer may take "
            f"{most:,}",
            at=f"kernel {func.name}",
            hint=f"compute it inside of another loop{option if target.family == 'cpu' else ''}",
        )
    return max(size, 1)
