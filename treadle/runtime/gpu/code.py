# SPDX-License-Identifier: Apache-2.0
"""The object code of a kernel for a GPU: its text, what a compiler made of it, its launches.

A text may name options of its compiler, in lines that begin with `//!option `.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import cast

from treadle.errors import ArtifactError
from treadle.runtime.extents import Formula
from treadle.runtime.launches import Launch

_OPTION = "//!option "
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class GpuCode:
    """Code of one kernel: `binary` is for devices of `architecture`, empty where the device's own
    driver compiles `text`.
    """

    kind: str
    architecture: str
    launches: tuple[Launch, ...]
    text: str
    binary: bytes = b""

    def to_bytes(self) -> bytes:
        """Return it as a line of JSON and the binary."""
        head = {
            "format": _FORMAT,
            "kind": self.kind,
            "architecture": self.architecture,
            "launches": [asdict(launch) for launch in self.launches],
            "text": self.text,
        }
        return json.dumps(head, separators=(",", ":")).encode() + b"\n" + self.binary

    @classmethod
    def from_bytes(cls, data: bytes) -> GpuCode:
        """Return what `to_bytes` wrote. Raises: ArtifactError for anything else."""
        head, _, binary = data.partition(b"\n")
        try:
            row = json.loads(head)
            if row["format"] != _FORMAT:
                raise ArtifactError(
                    f"the GPU code has format {row['format']}, this Treadle reads {_FORMAT}",
                    hint="compile it again, or use the Treadle that wrote it",
                )
            launches = tuple(launch_from_json(each) for each in row["launches"])
            return cls(str(row["kind"]), str(row["architecture"]), launches, row["text"], binary)
        except (ValueError, KeyError, TypeError) as error:
            raise ArtifactError(f"the GPU code cannot be read: {error!r}") from None

    @property
    def loadable(self) -> bytes:
        """What a driver loads."""
        return self.binary or self.text.encode()


def launch_from_json(row: dict[str, object]) -> Launch:
    """Return a launch. Raises: KeyError, TypeError, ValueError for other data."""
    x, y, z = (cast(Formula, size) for size in cast("list[object]", row["grid"]))
    a, b, c = (int(size) for size in cast("list[int]", row["block"]))
    arguments = [
        k if isinstance(k, int) else str(k) for k in cast("list[object]", row["arguments"])
    ]
    return Launch(str(row["symbol"]), (x, y, z), (a, b, c), tuple(arguments))


def options_of(text: str) -> tuple[str, ...]:
    """Return the options of its compiler that a text names."""
    lines = (line for line in text.splitlines() if line.startswith(_OPTION))
    return tuple(line[len(_OPTION) :].strip() for line in lines)
