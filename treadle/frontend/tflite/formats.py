# SPDX-License-Identifier: Apache-2.0
"""Tells TFLite files from others; imports nothing, so that whoever reads a model may ask."""

from __future__ import annotations

import os
from typing import IO, Union

IDENTIFIER = b"TFL3"
"""What bytes 4 to 8 of a file are."""

AnyTflite = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, IO[bytes]]
"""What a model can be read from."""


def is_tflite(model: object) -> bool:
    """True for the name of a .tflite file, and for bytes that are one."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model[4:8]) == IDENTIFIER
    return isinstance(model, (str, os.PathLike)) and os.fspath(model).lower().endswith(".tflite")
