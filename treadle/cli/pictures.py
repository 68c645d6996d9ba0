# SPDX-License-Identifier: Apache-2.0
"""Pictures as inputs of a network: decoded, scaled, cropped and normalised as a preset says.

A preset is what networks of one origin were trained with. The picture is scaled, bilinearly and
with antialiasing, until its centre of the input's size is the preset's share of it; that centre is
cut out. So a square input sees what torchvision's `Resize` and `CenterCrop` show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray as Numbers

from treadle import dtype as dtypes
from treadle.cli.named import check_readable
from treadle.errors import InputError, UsageError
from treadle.runtime.array import NDArray, array

Spec = tuple[str, str, tuple[int, ...]]
"""Name, dtype and shape of an input; -1 is any size."""

_MOST_PIXELS = 100_000_000
"""Of a picture, so that a small file cannot ask for all memory."""
_USUAL_SIZE = 224
"""Of an input that any size fits."""


@dataclass(frozen=True, slots=True)
class Preset:
    """What becomes of pixels from 0 to 255: (x * scale - mean) / deviation, channel by channel.

    `centre` is the share of the scaled picture that is seen, along its shorter side.
    """

    centre: float
    scale: float
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    is_bgr: bool = False


PRESETS = {
    "imagenet": Preset(0.875, 1 / 255, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "inception": Preset(0.875, 1 / 255, (0.5,), (0.5,)),
    "caffe": Preset(0.875, 1.0, (103.939, 116.779, 123.68), (1.0,), is_bgr=True),
    "unit": Preset(1.0, 1 / 255, (0.0,), (1.0,)),
}
"""`imagenet`: torchvision and most of timm; `inception`: from -1 to 1, as TensorFlow's networks
have it; `caffe`: BGR from 0 to 255 less the mean; `unit`: from 0 to 1, nothing cut off."""


def picture_input(path: Path, wanted: list[Spec], preset: str) -> dict[str, NDArray]:
    """Return a picture as the only input of a model, by its name.

    The input is [1, channels, height, width] or [1, height, width, channels], of 1 or 3 channels;
    bytes get the pixels themselves, signed ones less 128.

    Raises: InputError where the file is no picture or the input none for pictures.
        UsageError without Pillow.
    """
    if len(wanted) != 1:
        raise InputError(
            f"a picture is one input, the model has {len(wanted)}",
            hint="give all of them in an .npz made by numpy.savez, without --preset",
        )
    name, dtype, shape = wanted[0]
    form = _form(name, shape)
    pixels = _seen(path, form, PRESETS[preset].centre)
    values = _as_type(pixels, dtype, PRESETS[preset], name)
    if form.is_channels_first:
        values = values.transpose(2, 0, 1)
    return {name: array(np.ascontiguousarray(values[None]).astype(dtypes.to_numpy(dtype)))}


@dataclass(frozen=True, slots=True)
class _Form:
    """How an input holds a picture."""

    channels: int
    height: int
    width: int
    is_channels_first: bool


def _form(name: str, shape: tuple[int, ...]) -> _Form:
    if len(shape) == 4 and shape[0] in (1, -1):
        for first, channels, sides in ((True, shape[1], shape[2:]), (False, shape[3], shape[1:3])):
            if channels in (1, 3):
                height, width = (_USUAL_SIZE if s == -1 else s for s in sides)
                return _Form(channels, height, width, first)
    raise InputError(
        f"input {name!r} is {list(shape)}, and a picture [1, 3, height, width] or "
        "[1, height, width, 3] with 1 or 3 channels",
        hint="give the array in an .npz made by numpy.savez, without --preset",
    )


def _seen(path: Path, form: _Form, centre: float) -> Numbers[np.uint8]:
    """Return the centre of a picture: uint8[height, width, channels].

    Raises: InputError where the file is none.
    """
    check_readable(path, "a picture")
    pillow = _pillow()
    try:
        with pillow.Image.open(path) as image:
            if image.width * image.height > _MOST_PIXELS:
                raise InputError(
                    f"the picture has {image.width} x {image.height} pixels, more than "
                    f"{_MOST_PIXELS}",
                    at=str(path),
                )
            upright = pillow.ImageOps.exif_transpose(image)
            found = upright.convert("RGB" if form.channels == 3 else "L")
            return _centre(found, form, centre)
    except (OSError, ValueError, SyntaxError, pillow.Image.DecompressionBombError) as error:
        raise InputError(
            f"the picture cannot be read: {error}",
            at=str(path),
            hint="with --preset, --inputs is a picture such as a .png or .jpg",
        ) from None


def _centre(image: Any, form: _Form, centre: float) -> Numbers[np.uint8]:
    """Return what is seen of a decoded picture."""
    wide, high = (max(1, int(side / centre)) for side in (form.width, form.height))
    if wide * image.height >= high * image.width:
        scaled = (wide, max(high, wide * image.height // image.width))
    else:
        scaled = (max(wide, high * image.width // image.height), high)
    left, top = (round((a - b) / 2) for a, b in zip(scaled, (form.width, form.height), strict=True))
    # Only what is seen is computed, of a picture that may be long and narrow.
    shares = (image.width / scaled[0], image.height / scaled[1])
    box = (
        left * shares[0], top * shares[1],
        (left + form.width) * shares[0], (top + form.height) * shares[1],
    )  # fmt: skip
    bilinear = _pillow().Image.Resampling.BILINEAR
    part = image.resize((form.width, form.height), bilinear, box=box)
    return np.asarray(part, np.uint8).reshape(form.height, form.width, form.channels)


def _as_type(
    pixels: Numbers[np.uint8], dtype: str, preset: Preset, name: str
) -> Numbers[np.generic]:
    """Return pixels as an input of an element type has them."""
    if dtype == "uint8":
        return pixels
    if dtype == "int8":
        return (pixels.astype(np.int16) - 128).astype(np.int8)
    if not dtypes.is_float(dtype):
        raise InputError(f"input {name!r} is {dtype}, and pictures are floats or bytes")
    channels = pixels.shape[2]
    if len(preset.mean) not in (1, channels):
        raise InputError(
            f"input {name!r} has one channel, and this preset is for three",
            hint="take --preset unit",
        )
    ordered = pixels[:, :, ::-1] if preset.is_bgr else pixels
    values = ordered * np.float64(preset.scale) - np.array(preset.mean)
    found: Numbers[np.generic] = values / np.array(preset.deviation)
    return found


def _pillow() -> Any:
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError:
        raise UsageError(
            "pictures are read by Pillow, which is not installed",
            hint='pip install "treadle[image]"',
        ) from None
    return PIL
