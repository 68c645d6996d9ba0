# SPDX-License-Identifier: Apache-2.0
"""Shows digits with what they were taken for: as text blocks and as a PNG file."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

_ZOOM = 12
_FONT_ZOOM = 4
_MARGIN = 8
_RIGHT = (40, 160, 60)
_WRONG = (210, 50, 40)

_INK = 0.4
"""From here on, a pixel counts as drawn where there is no gray."""

_BLOCKS = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}
"""The character for a pixel and the one below it."""

_GLYPHS = (
    "###|#.#|#.#|#.#|###",
    ".#.|##.|.#.|.#.|###",
    "###|..#|###|#..|###",
    "###|..#|.##|..#|###",
    "#.#|#.#|###|..#|..#",
    "###|#..|###|..#|###",
    "###|#..|###|#.#|###",
    "###|..#|.#.|.#.|.#.",
    "###|#.#|###|#.#|###",
    "###|#.#|###|..#|###",
)
"""The ten digits as 3x5 pixels."""


def terminal_rows(
    images: NDArray[np.float32], predictions: Sequence[int], labels: Sequence[int]
) -> Text:
    """Return the digits side by side, two pixel rows per line, with a caption below each."""
    text = Text()
    for row in range(0, 8, 2):
        for image in images:
            upper, lower = image[0, row], image[0, row + 1]
            pairs = zip(upper > _INK, lower > _INK, strict=True)
            text.append("".join(_BLOCKS[top, bottom] for top, bottom in pairs) + "  ")
        text.append("\n")
    for prediction, label in zip(predictions, labels, strict=True):
        is_right = prediction == label
        caption = f"{prediction}" if is_right else f"{prediction}, not {label}"
        text.append(f"{caption:^8}  ", style="green" if is_right else "bold red")
    return text


def write_png(
    path: Path, images: NDArray[np.float32], predictions: Sequence[int], labels: Sequence[int]
) -> None:
    """Write the digits side by side, each above its prediction: green where right, else red."""
    tiles = [
        _tile(image[0], prediction, prediction == label)
        for image, prediction, label in zip(images, predictions, labels, strict=True)
    ]
    _write_rgb(path, np.concatenate(tiles, axis=1))


def _tile(image: NDArray[np.float32], prediction: int, is_right: bool) -> NDArray[np.uint8]:
    digit = np.kron(image, np.ones((_ZOOM, _ZOOM)))
    glyph = np.array([[pixel == "#" for pixel in row] for row in _GLYPHS[prediction].split("|")])
    caption = np.kron(glyph, np.ones((_FONT_ZOOM, _FONT_ZOOM)))
    side, (height, width) = 8 * _ZOOM, caption.shape
    tile = np.full((side + height + 3 * _MARGIN, side + 2 * _MARGIN, 3), 255, np.uint8)
    tile[_MARGIN : _MARGIN + side, _MARGIN : _MARGIN + side] = np.rint(
        255 * (1 - digit[..., np.newaxis])
    )
    top, left = 2 * _MARGIN + side, (tile.shape[1] - width) // 2
    tile[top : top + height, left : left + width][caption > 0] = _RIGHT if is_right else _WRONG
    return tile


def _write_rgb(path: Path, pixels: NDArray[np.uint8]) -> None:
    """Write uint8[height, width, 3] as a PNG file."""
    height, width, _ = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # 0: a row without a filter
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks))


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
