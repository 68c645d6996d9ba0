# SPDX-License-Identifier: Apache-2.0
"""The list of converter files; a file that is not listed here converts nothing."""

from __future__ import annotations

from treadle.frontend.importer import ConverterTable
from treadle.frontend.keras.core import (
    activation,
    attention,
    basic,
    images,
    norm,
    operations,
    recurrent,
    resize,
    shape,
)
from treadle.frontend.keras.layer import CONVERTERS, ConvertFn

FAMILIES = (
    activation, attention, basic, images, norm, operations, recurrent, resize, shape,
)  # fmt: skip


def converters() -> ConverterTable[ConvertFn]:
    """Return the converter table, filled by every family."""
    return CONVERTERS
