# SPDX-License-Identifier: Apache-2.0
"""The list of converter files; a file that is not listed here converts nothing."""

from __future__ import annotations

from treadle.frontend.torch.core import (
    attention,
    bags,
    checks,
    complex_math,
    complex_movement,
    conv,
    counting,
    creation,
    distances,
    elementwise,
    fourier,
    functions,
    indexing,
    linalg,
    losses,
    matmul,
    movement,
    norm,
    order,
    pool,
    primitives,
    quantized,
    recurrent,
    reduce,
    resize,
    scatter,
    selection,
    special,
    views,
)

FAMILIES = (
    attention, bags, checks, complex_math, complex_movement, conv, counting, creation, distances,
    elementwise, fourier, functions, indexing, linalg, losses, matmul, movement, norm, order,
    pool, primitives, quantized, recurrent, reduce, resize, scatter, selection, special, views,
)  # fmt: skip
