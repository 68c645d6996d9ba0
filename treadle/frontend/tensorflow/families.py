# SPDX-License-Identifier: Apache-2.0
"""The list of converter files; a file that is not listed here converts nothing."""

from __future__ import annotations

from treadle.frontend.importer import ConverterTable
from treadle.frontend.tensorflow.core import (
    blocks,
    conv,
    elementwise,
    matmul,
    movement,
    norm,
    pool,
    quantize,
    reduce,
    resize,
    select,
    shape,
)
from treadle.frontend.tensorflow.node import CONVERTERS, ConvertFn

FAMILIES = (
    blocks, conv, elementwise, matmul, movement, norm, pool, quantize, reduce, resize, select,
    shape,
)  # fmt: skip


def converters() -> ConverterTable[ConvertFn]:
    """Return the converter table, filled by every family."""
    return CONVERTERS
