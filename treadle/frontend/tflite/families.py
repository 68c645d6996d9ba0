# SPDX-License-Identifier: Apache-2.0
"""The list of converter files; a file that is not listed here converts nothing."""

from __future__ import annotations

from treadle.frontend.importer import ConverterTable
from treadle.frontend.tflite.core import (
    activation,
    conv,
    detection,
    elementwise,
    matmul,
    movement,
    pool,
    quantize,
    recurrent,
    reduce,
    resize,
    select,
    shape,
)
from treadle.frontend.tflite.node import CONVERTERS, ConvertFn

FAMILIES = (
    activation, conv, detection, elementwise, matmul, movement, pool, quantize, recurrent, reduce,
    resize, select, shape,
)  # fmt: skip


def converters() -> ConverterTable[ConvertFn]:
    """Return the converter table, filled by every family."""
    return CONVERTERS
