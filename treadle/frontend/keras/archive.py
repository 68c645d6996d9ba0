# SPDX-License-Identifier: Apache-2.0
"""Opens a .keras file: a zip archive of a description in JSON and weights in HDF5.

Nothing of the file is run: it is read as data by `json` and by h5py, and what in an HDF5 file may
name other files (links, external and virtual data) is refused, as are compressed data, of which a
few bytes may stand for many.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # groups of h5py, which has no types; values of JSON

import numpy as np

from treadle.dtype import from_numpy, to_numpy
from treadle.errors import ModelError, UsageError

_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"
_MOST_CONFIG = 64 << 20
_MOST_GROWTH = 16
"""How many times larger than its bytes in the archive a member may be."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights below a place of the file, as groups of groups."""

    group: Any  # h5py's Group, or None where the file has none here
    place: str = ""

    def child(self, name: str) -> Weights:
        """Return the weights of a part; of none where the file has none."""
        place = f"{self.place}/{name}" if self.place else name
        if self.group is None or name not in self.group:
            return Weights(None, place)
        return Weights(_checked_link(self.group, name, place), place)

    @property
    def count(self) -> int:
        """How many variables are stored here."""
        variables = self.child("vars").group
        return 0 if variables is None else len(variables)

    def array(self, index: int) -> np.ndarray:
        """Return variable `index`. Raises ModelError where it is not there, or no plain array."""
        variables = self.child("vars").group
        if variables is None or str(index) not in variables:
            raise ModelError(
                f"the file has no variable {index} of {self.place!r}",
                hint="save the model again with its weights (model.save)",
            )
        found = _checked_link(variables, str(index), f"{self.place}/vars/{index}")
        return _array(found, f"{self.place}/vars/{index}")


def _checked_link(group: Any, name: str, place: str) -> Any:
    import h5py

    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise ModelError(f"{place!r} of the weights is a link, which is not followed")
    return group[name]


def _array(found: Any, place: str) -> np.ndarray:
    import h5py

    if not isinstance(found, h5py.Dataset):
        raise ModelError(f"{place!r} of the weights is no array")
    if found.external or found.is_virtual or found.chunks is not None:
        raise ModelError(f"{place!r} of the weights is not stored as a plain array in the file")
    if found.dtype.kind not in "fiub":
        raise ModelError(f"{place!r} of the weights holds {found.dtype}, no numbers")
    value: np.ndarray = found[()]
    value = np.asarray(value)
    dtype = found.attrs.get("dtype", "")
    name = dtype.decode() if isinstance(dtype, bytes) else str(dtype)
    if name == "bfloat16" and value.dtype == np.uint16:
        value = value.view(to_numpy("bfloat16"))
    from_numpy(value.dtype)
    return value


@dataclass(frozen=True, slots=True)
class KerasArchive:
    """What a .keras file holds."""

    name: str
    config: Mapping[str, Any]
    weights: Weights


def open_keras(model: object) -> KerasArchive:
    """Return what a .keras file holds.

    Raises: ModelError where it cannot be read; UsageError where h5py is not installed.
    """
    path = Path(str(model))
    try:
        with zipfile.ZipFile(path) as archive:
            config = _config(_member(archive, _CONFIG, _MOST_CONFIG))
            content = _member(archive, _WEIGHTS, None)
    except OSError as e:
        raise ModelError(f"the file cannot be read: {e.strerror}", at=path.name) from None
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError) as e:
        raise ModelError(f"this is not a .keras file: {e}", at=path.name) from None
    except ModelError as e:
        raise ModelError(e.problem, at=path.name, hint=e.hint) from None
    return KerasArchive(path.name, config, Weights(_opened(content, path.name)))


def _member(archive: zipfile.ZipFile, name: str, most: int | None) -> bytes:
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise ModelError(
            f"this is not a .keras file: it holds no {name!r}",
            hint="save the whole model as one file: model.save('model.keras')",
        ) from None
    if most is not None and info.file_size > most:
        raise ModelError(f"its {name!r} has {info.file_size} bytes, more than {most}")
    if info.file_size > _MOST_GROWTH * info.compress_size + _MOST_CONFIG:
        raise ModelError(f"its {name!r} is compressed more than {_MOST_GROWTH} times")
    if info.flag_bits & 1:
        raise ModelError(f"its {name!r} is encrypted")
    return archive.read(info)


def _config(content: bytes) -> Mapping[str, Any]:
    try:
        made = json.loads(content)
    except (ValueError, RecursionError) as e:
        raise ModelError(f"its {_CONFIG!r} is damaged: {e}") from None
    if not isinstance(made, dict) or not isinstance(made.get("config"), dict):
        raise ModelError(f"its {_CONFIG!r} describes no model")
    return made


def _opened(content: bytes, name: str) -> Any:
    try:
        import h5py
    except ImportError:
        raise UsageError(
            "the weights of a .keras file are read by h5py, which is not installed",
            hint='pip install "treadle[keras]"',
        ) from None
    try:
        return h5py.File(io.BytesIO(content), "r")
    except (OSError, ValueError, RuntimeError) as e:
        raise ModelError(f"its {_WEIGHTS!r} is damaged: {e}", at=name) from None
