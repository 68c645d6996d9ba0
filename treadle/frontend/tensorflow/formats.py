# SPDX-License-Identifier: Apache-2.0
"""Tells TensorFlow's files from others; imports nothing heavy, so that whoever reads may ask."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Union

SAVED_MODEL = "saved_model.pb"
"""The file in a SavedModel's folder that holds its graphs."""

AnyTensorflow = Union[str, "os.PathLike[str]"]
"""What a model can be read from: the folder of a SavedModel, or a GraphDef's .pb file."""


def is_tensorflow(model: object) -> bool:
    """True for the name of a .pb file, and for that of a folder with a SavedModel."""
    if not isinstance(model, (str, os.PathLike)):
        return False
    path = Path(os.fspath(model))
    return path.suffix.lower() == ".pb" or (path.is_dir() and (path / SAVED_MODEL).exists())
