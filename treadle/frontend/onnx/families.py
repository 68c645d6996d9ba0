# SPDX-License-Identifier: Apache-2.0
"""The list of converter files; a file that is not listed here converts nothing."""

from __future__ import annotations

from treadle.frontend.importer import ConverterTable
from treadle.frontend.onnx import (
    constants,
    conv,
    einsum,
    elementwise,
    matmul,
    microsoft,
    microsoft_attention,
    movement,
    norm,
    pool,
    quantize,
    recurrent,
    reduce,
    resize,
    scatter,
    sequence,
    shape,
    signal,
    sort,
    vision,
)
from treadle.frontend.onnx.node import CONVERTERS, ConvertFn

FAMILIES = (
    constants, conv, einsum, elementwise, matmul, microsoft,
    microsoft_attention, movement,
    norm, pool, quantize, recurrent, reduce, resize, scatter, sequence, shape, signal, sort,
    vision,
)  # fmt: skip


def converters() -> ConverterTable[ConvertFn]:
    """Return the converter table, filled by every family."""
    return CONVERTERS
