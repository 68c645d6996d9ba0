# SPDX-License-Identifier: Apache-2.0
"""The list of converter files; a file that is not listed here converts nothing."""

from __future__ import annotations

from treadle.frontend.importer import ConverterTable
from treadle.frontend.onnx.core import (
    constants,
    conv,
    deform,
    elementwise,
    matmul,
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
    vision,
)
from treadle.frontend.onnx.microsoft import attention, fused, grouped_attention, transformer
from treadle.frontend.onnx.microsoft import quantized as microsoft_quantized
from treadle.frontend.onnx.microsoft import recurrent as microsoft_recurrent
from treadle.frontend.onnx.ml import features, linear, maps, svm, tree_tables, trees
from treadle.frontend.onnx.node import CONVERTERS, ConvertFn

CORE = (
    constants, conv, deform, elementwise, matmul, movement, ngrams, norm, pool, quantize,
    random_numbers, recurrent, reduce, resize, scatter, select, sequence, shape, signal, sort,
    training, vision,
)  # fmt: skip

MICROSOFT = (
    attention, fused, grouped_attention, microsoft_quantized, microsoft_recurrent, transformer,
)  # fmt: skip

ML = (features, linear, maps, svm, tree_tables, trees)

FAMILIES = (*CORE, *MICROSOFT, *ML)


def converters() -> ConverterTable[ConvertFn]:
    """Return the converter table, filled by every family."""
    return CONVERTERS
