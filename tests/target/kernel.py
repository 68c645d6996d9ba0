# SPDX-License-Identifier: Apache-2.0
"""Runs hand-built lowered kernels on NumPy arrays, through a pool or without one."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

import numpy as np

from treadle.dtype import to_numpy
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr
from treadle.loop.nodes import Buffer, PrimFunc, Store
from treadle.runtime.native import Env, KernelCall
from treadle.target.backend import backend_of
from treadle.target.base import Target
from treadle.target.llvm import compile_ir, disable_machine_scheduler
from treadle.target.parse import parse_target

BODY = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_int32,
)
PARALLEL = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
)


@cache
def native() -> Target:
    disable_machine_scheduler()
    return parse_target("llvm -num-cores=2")


def flat(name: str, dtype: str, size: int, scope: str = "global") -> Buffer:
    return Buffer(name, dtype, (Const.of(size),), scope)  # type: ignore[arg-type]


def aligned(size: int, dtype: str, offset: int = 0) -> np.ndarray:
    """Return zeros whose address is a multiple of 64 bytes plus `offset`."""
    item = to_numpy(dtype).itemsize
    raw = np.zeros(size * item + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    return raw[start : start + size * item].view(to_numpy(dtype))


@cache
def native_c() -> Target:
    return parse_target("c -num-cores=2")


def run(
    func: PrimFunc,
    arrays: Sequence[np.ndarray],
    dims: Sequence[int] = (),
    *,
    env: Env | None = None,
    target: Target | None = None,
    written_for: Target | None = None,
    workspace: int = 0,
) -> None:
    """Call a kernel on copies of the arrays with the right alignment; results are copied back.

    Without `env` its loops run in order. Its text may be that of another machine than the one it
    is compiled for. Raises: InternalError with the kernel's code.
    """
    target = target or native()
    backend = backend_of(target)
    text = backend.emit(func, written_for or target)
    if backend.kind == "llvm":  # in this process: quicker for one kernel
        code = compile_ir(text)
    else:
        code = backend.compile([(func.name, text)], target, None)[func.name]
    loaded = backend.load([code])
    placed = [aligned(a.size, str(a.dtype)) for a in arrays]
    for mine, theirs in zip(placed, arrays, strict=True):
        mine[:] = theirs.ravel()
    if workspace:
        placed.append(aligned(workspace, "uint8"))
    pointers = [a.ctypes.data for a in placed]
    try:
        KernelCall(loaded.address(func.name), env, pointers, dims).run()
    finally:
        for mine, theirs in zip(placed, arrays, strict=False):
            theirs.ravel()[:] = mine


def pool_of(chunks: int, calls: list[tuple[int, int]], fail_at: int | None = None) -> Env:
    """Return an environment whose pool runs chunks one after the other and notes their ranges."""

    def parallel(env: int, body: int, closure: int, count: int) -> int:
        step = -(-count // chunks)
        for worker, begin in enumerate(range(0, count, step)):
            end = min(begin + step, count)
            calls.append((begin, end))
            result = BODY(body)(env, closure, begin, end, worker)
            if result or worker == fail_at:
                return result or 7
        return 0

    made = Env(num_threads=chunks)
    made.callback = PARALLEL(parallel)  # type: ignore[attr-defined]  # lives as long as `made`
    made.parallel = ctypes.cast(made.callback, ctypes.c_void_p)  # type: ignore[attr-defined]
    return made


def padded(lanes: int, at: Expr, cond: Expr, size: int) -> np.ndarray:
    """Return if_then_else(cond, x[at], -1) for x = 1, 2, ..."""
    source, out = flat("x", "float32", size), flat("out", "float32", lanes)
    value = ex.select(cond, ex.load(source, [at]), Const.of(-1.0, "float32"), lazy=True)
    index = ex.ramp(0, 1, lanes)
    result = np.zeros(lanes, np.float32)
    x = np.arange(1, size + 1, dtype=np.float32)
    body = Store(out, (index,), value)
    run(PrimFunc("k", (source, out), (), body), [x, result])
    return result


FAR = 1 << 40
"""An index whose address no process has."""
