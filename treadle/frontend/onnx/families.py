# SPDX-License-Identifier: Apache-2.0
"""The list of converter files; a file that is not listed here converts nothing."""

from __future__ import annotations

from treadle.frontend.importer import ConverterTable
from treadle.frontend.onnx import (
    constants,
    conv,
    deform,
    einsum,
    elementwise,
    matmul,
    microsoft,
    microsoft_attention,
    microsoft_fused,
    microsoft_gqa,
    microsoft_quantized,
    microsoft_recurrent,
    ml,
    movement,
    ngrams,
    norm,
    pool,
    quantize,
    random_numbers,
    recurrent,
    reduce,
    resize,
    scatter,
    select,
    sequence,
    shape,
    signal,
    sort,
    training,
    tree_tables,
    trees,
    vision,
)
from treadle.frontend.onnx.node import CONVERTERS, ConvertFn

FAMILIES = (
    constants, conv, deform, einsum, elementwise, matmul, microsoft,
    microsoft_attention, microsoft_fused, microsoft_gqa, microsoft_quantized, microsoft_recurrent,
    ml, movement, ngrams,
    norm, pool, quantize, random_numbers, recurrent, reduce, resize, scatter, select, sequence,
    shape, signal,
    sort,
    training, tree_tables, trees, vision,
)  # fmt: skip


def converters() -> ConverterTable[ConvertFn]:
    """Return the converter table, filled by every family."""
    return CONVERTERS
