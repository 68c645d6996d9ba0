# SPDX-License-Identifier: Apache-2.0
"""The list of converter files; a file that is not listed here converts nothing."""

from __future__ import annotations

from treadle.frontend.torch.core import (
    attention,
    checks,
    conv,
    creation,
    elementwise,
    functions,
    indexing,
    matmul,
    movement,
    norm,
    pool,
    primitives,
    recurrent,
    reduce,
    resize,
    scatter,
    views,
)

FAMILIES = (
    attention, checks, conv, creation, elementwise, functions, indexing, matmul, movement, norm,
    pool, primitives, recurrent, reduce, resize, scatter, views,
)  # fmt: skip
