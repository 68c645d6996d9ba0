# SPDX-License-Identifier: Apache-2.0
"""Tells .keras files from others; imports nothing, so that whoever reads a model may ask."""

from __future__ import annotations

import os
from typing import Union

AnyKeras = Union[str, "os.PathLike[str]"]
"""What a model can be read from."""


def is_keras(model: object) -> bool:
    """True for the name of a .keras file."""
    return isinstance(model, (str, os.PathLike)) and os.fspath(model).lower().endswith(".keras")
