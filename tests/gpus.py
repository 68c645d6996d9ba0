# SPDX-License-Identifier: Apache-2.0
"""Written GPUs, kernels for them, and their results by the interpreter of threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tests import loop_threads
from treadle.build.kernel import Kernel
from treadle.expr.nodes import Const
from treadle.graph.nodes import Function, Node, Var
from treadle.graph.types import Dim, TensorType
from treadle.loop import nodes as lp
from treadle.loop.nodes import PrimFunc
from treadle.lower.bind_loops import bind_loops
from treadle.lower.simplify_loops import simplify_loops
from treadle.target.parse import parse_target
from treadle.te.knobs import DEFAULTS, Config

H100 = parse_target("cuda -arch=sm_90")
CUDA = parse_target("cuda -arch=sm_80")
OPENCL = parse_target("opencl")

GPUS = {"cuda": H100, "opencl": OPENCL}
"""By the name that a parametrised test shows."""


def variables(*shapes: tuple[Dim, ...], dtype: str = "float32") -> list[Var]:
    """Return variables x0, x1, ... of these shapes."""
    return [Var(f"x{k}", TensorType(s, dtype)) for k, s in enumerate(shapes)]


def kernel_of(body: Node, params: Sequence[Var], config: Config = DEFAULTS) -> Kernel:
    """Return the kernel of a value for an H100."""
    return Kernel(Function(tuple(params), body, "kernel"), H100, config)


def interpreted(
    func: PrimFunc,
    arrays: Sequence[np.ndarray],
    result: np.ndarray,
    sizes: Sequence[int] = (),
) -> np.ndarray:
    """Return what a loop nest with all its threads makes of arrays, in the form of `result`."""
    made = np.full_like(result, 0)
    bound = bind_loops(func)
    if sizes:
        known = dict(zip(func.sizes, sizes, strict=True))
        body = lp.substitute(bound.body, {v: Const.of(n) for v, n in known.items()})
        bound = simplify_loops(bound.with_body(body))
    loop_threads.run(bound, [*arrays, made], dict(zip(func.sizes, sizes, strict=True)))
    return made


def flat_result(
    func: PrimFunc, arrays: Mapping[str, np.ndarray] | Sequence[np.ndarray], size: int
) -> np.ndarray:
    """Return what a lowered kernel, whose buffers have one dimension, makes of float32 arrays."""
    values = arrays.values() if isinstance(arrays, Mapping) else arrays
    made = np.full(size, np.nan, np.float32)
    loop_threads.run(func, [*(np.ascontiguousarray(a).reshape(-1) for a in values), made])
    return made
