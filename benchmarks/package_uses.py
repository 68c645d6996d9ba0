# SPDX-License-Identifier: Apache-2.0
"""Three packages' models put to their use: a text read, speech found, a file's type told.

`python -m benchmarks.packages --uses` runs them. Needs Pillow and the command espeak-ng.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import wave
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.package_models import PACKAGES, File, Package

Find: TypeAlias = Callable[[Package, File], Path]
"""find(package, file) -> where the file is."""

Sound: TypeAlias = NDArray[np.float32]

RATE = 16000
TEXT = "Treadle reads 2026 pictures"
SPEECH = "The quick brown fox jumps over the lazy dog."


def _file(find: Find, package: str, path: str) -> Path:
    return find(next(p for p in PACKAGES if p.name == package), File(path, ()))


def read_text(find: Find, text: str = TEXT) -> str:
    """Return what the recogniser of rapidocr reads in a picture of `text`."""
    import onnx
    from PIL import Image, ImageDraw, ImageFont

    import treadle

    model = _file(find, "rapidocr", "PP-OCRv6_rec_small.onnx")
    font = ImageFont.load_default(34)
    picture = Image.new("RGB", (int(font.getlength(text)) + 24, 48), "white")
    ImageDraw.Draw(picture).text((12, 3), text, "black", font)
    x = (np.asarray(picture, "float32").transpose(2, 0, 1)[None] / 255 - 0.5) / 0.5
    (scores,) = treadle.compile(model, dynamic=True).run({"x": np.ascontiguousarray(x)})
    properties = {p.key: p.value for p in onnx.load(model).metadata_props}
    letters = ["", *properties["character"].splitlines(), " "]
    best = np.asarray(scores)[0].argmax(1)
    kept = [k for k, before in zip(best, [0, *best[:-1]], strict=True) if k != before]
    return "".join(letters[k] for k in kept)


def speak(text: str = SPEECH) -> Sound:
    """Return a spoken text at 16 kHz between two seconds of faint noise on either side."""
    command = ["espeak-ng", "--stdout", "-v", "en", text]
    with wave.open(
        io.BytesIO(subprocess.run(command, capture_output=True, check=True).stdout)
    ) as w:
        samples = np.frombuffer(w.readframes(w.getnframes()), "int16") / 32768
        rate = w.getframerate()
    places = np.arange(int(len(samples) * RATE / rate)) * rate / RATE
    voice = np.interp(places, np.arange(len(samples)), samples)
    random = np.random.default_rng(0)
    rest = [random.standard_normal(2 * RATE) * 1e-3 for _ in range(2)]
    return np.concatenate([rest[0], voice, rest[1]]).astype("float32")


def find_speech(find: Find, sound: Sound) -> list[tuple[float, float]]:
    """Return the seconds between which silero-vad hears speech in `sound`."""
    import treadle

    model = treadle.compile(_file(find, "silero-vad", "data/silero_vad.onnx"), dynamic=True)
    state, context = np.zeros((2, 1, 128), "float32"), np.zeros(64, "float32")
    spoken: list[bool] = []
    for start in range(0, len(sound) - 511, 512):
        heard = np.concatenate([context, sound[start : start + 512]])
        given = {"input": heard[None], "state": state, "sr": np.array(RATE)}
        likely, after = model.run(given)
        spoken.append(bool(np.asarray(likely)[0, 0] > 0.5))
        state, context = np.array(after), heard[-64:]
    edges = np.flatnonzero(np.diff([False, *spoken, False]))
    return [(a * 512 / RATE, b * 512 / RATE) for a, b in edges.reshape(-1, 2)]


def type_of(find: Find, content: bytes) -> str:
    """Return what magika takes the content of a file for."""
    import treadle

    folder = "standard_v3_3"
    config = json.loads(_file(find, "magika", f"{folder}/config.min.json").read_bytes())
    begin, end, padding = (config[k] for k in ("beg_size", "end_size", "padding_token"))
    block = config["block_size"]
    head, tail = content[:block].lstrip()[:begin], content[-block:].rstrip()[-end:]
    given = [*head, *[padding] * (begin - len(head)), *[padding] * (end - len(tail)), *tail]
    model = treadle.compile(_file(find, "magika", f"{folder}/model.onnx"), dynamic=True)
    (scores,) = model.run({"bytes": np.array([given], "int32")})
    return str(config["target_labels_space"][int(np.asarray(scores).argmax())])


def show_uses(find: Find) -> int:
    """Print what the three uses give; return 1 where one is not what was put in."""
    read = read_text(find)
    print(f"text     {TEXT!r} is read as {read!r}")
    kind = type_of(find, Path(__file__).read_bytes())
    print(f"type     this file is {kind}")
    good = read.split() == TEXT.split() and kind == "python"
    if shutil.which("espeak-ng") is None:
        print("speech   left out: espeak-ng is not installed")
        return int(not good)
    sound = speak()
    found = find_speech(find, sound)
    shown = ", ".join(f"{a:.1f} to {b:.1f} s" for a, b in found)
    print(f"speech   of {len(sound) / RATE:.1f} s with 2 s of noise at both ends: {shown}")
    inside = bool(found) and found[0][0] > 1.5 and found[-1][1] < len(sound) / RATE - 1.5
    return int(not (good and inside))
