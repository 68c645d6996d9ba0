# SPDX-License-Identifier: Apache-2.0
"""Pictures become inputs as a preset says."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.test_main import run
from treadle.cli.main import main
from treadle.cli.pictures import PRESETS, Spec, picture_input
from treadle.errors import InputError, UsageError

_MEAN, _DEVIATION = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def saved(folder: Path, pixels: np.ndarray, name: str = "picture.png", **options: object) -> Path:
    path = folder / name
    Image.fromarray(pixels).save(path, **options)
    return path


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def given(path: Path, shape: tuple[int, ...], preset: str, dtype: str = "float32") -> np.ndarray:
    wanted: list[Spec] = [("image", dtype, shape)]
    (value,) = picture_input(path, wanted, preset).values()
    return np.asarray(value)


def test_the_centre_of_the_scaled_picture_is_seen(tmp_path: Path) -> None:
    """As Resize(256), CenterCrop(224), ToTensor and Normalize of torchvision."""
    picture = Image.fromarray(noise(300, 500))
    picture.save(tmp_path / "picture.png")
    scaled = picture.resize((256 * 500 // 300, 256), Image.Resampling.BILINEAR)
    left = round((scaled.width - 224) / 2)
    cropped = np.asarray(scaled)[16 : 16 + 224, left : left + 224] / 255
    expected = ((cropped - _MEAN) / _DEVIATION).transpose(2, 0, 1)[None]
    found = given(tmp_path / "picture.png", (1, 3, 224, 224), "imagenet")
    assert found.dtype == np.float32
    # Both round pixels to bytes once; where a rounding falls otherwise, it is one of 255 steps.
    assert np.abs(found - expected).max() <= 1.01 / 255 / _DEVIATION.min()
    assert np.abs(found - expected).mean() < 1e-3


@pytest.mark.parametrize("shape", [(1, 3, 20, 30), (1, 20, 30, 3), (-1, 3, 20, 30)])
def test_a_picture_of_the_size_of_the_input_stays_as_it_is(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    pixels = noise(20, 30)
    found = given(saved(tmp_path, pixels), shape, "unit")
    seen = found[0].transpose(1, 2, 0) if shape[1] == 3 else found[0]
    np.testing.assert_allclose(seen, pixels / 255, rtol=1e-6)


def test_an_open_size_is_that_of_most_networks(tmp_path: Path) -> None:
    path = saved(tmp_path, noise(20, 30))
    assert given(path, (-1, 3, -1, -1), "imagenet").shape == (1, 3, 224, 224)


def test_every_preset_keeps_its_range(tmp_path: Path) -> None:
    white = saved(tmp_path, np.full((8, 8, 3), 255, np.uint8))
    ends = {name: given(white, (1, 3, 8, 8), name)[0, :, 4, 4] for name in PRESETS}
    np.testing.assert_allclose(ends["imagenet"], (1 - _MEAN) / _DEVIATION, rtol=1e-6)
    np.testing.assert_allclose(ends["inception"], [1, 1, 1])
    np.testing.assert_allclose(ends["caffe"], 255 - np.array([103.939, 116.779, 123.68]), rtol=1e-6)
    np.testing.assert_allclose(ends["unit"], [1, 1, 1])


def test_caffe_has_blue_first(tmp_path: Path) -> None:
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[..., 2] = 200
    blue = given(saved(tmp_path, pixels), (1, 3, 4, 4), "caffe")[0, :, 0, 0]
    np.testing.assert_allclose(blue, [200 - 103.939, -116.779, -123.68], rtol=1e-6)


def test_bytes_get_pixels(tmp_path: Path) -> None:
    pixels = noise(8, 8)
    path = saved(tmp_path, pixels)
    np.testing.assert_array_equal(given(path, (1, 8, 8, 3), "unit", "uint8")[0], pixels)
    signed = given(path, (1, 8, 8, 3), "unit", "int8")[0]
    np.testing.assert_array_equal(signed, pixels.astype(int) - 128)


def test_one_channel_is_brightness(tmp_path: Path) -> None:
    path = saved(tmp_path, np.full((8, 8, 3), 51, np.uint8))
    np.testing.assert_allclose(given(path, (1, 1, 8, 8), "unit"), 0.2, rtol=1e-6)
    with pytest.raises(InputError, match="one channel, and this preset is for three"):
        given(path, (1, 1, 8, 8), "imagenet")


def test_a_camera_that_was_held_upright_is_turned_back(tmp_path: Path) -> None:
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned by 90 degrees, clockwise
    path = saved(tmp_path, pixels, exif=exif)
    found = given(path, (1, 16, 8, 3), "unit")[0]
    assert found[:8].min() > 0.9
    assert found[8:].max() < 0.1


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (1, 4, 8, 8), (3, 8, 8), (1, 8, 8, 5)])
def test_an_input_that_is_no_picture_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"'image' is \[.*\], and a picture") as caught:
        given(saved(tmp_path, noise(8, 8)), shape, "unit")
    assert "without --preset" in str(caught.value.hint)


def test_integers_and_second_inputs_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, noise(8, 8))
    with pytest.raises(InputError, match="'image' is int64, and pictures are floats or bytes"):
        given(path, (1, 3, 8, 8), "unit", "int64")
    both: list[Spec] = [("a", "float32", (1, 3, 8, 8)), ("b", "float32", (1,))]
    with pytest.raises(InputError, match="the model has 2"):
        picture_input(path, both, "unit")


def test_what_is_no_picture_is_refused(tmp_path: Path) -> None:
    whole = saved(tmp_path, noise(8, 8)).read_bytes()
    for data in (b"", b"no picture", whole[: len(whole) // 2], whole[:40] + whole[60:]):
        path = tmp_path / "broken.png"
        path.write_bytes(data)
        with pytest.raises(InputError, match="cannot be read") as caught:
            given(path, (1, 3, 8, 8), "unit")
        assert caught.value.at == str(path)


def test_a_picture_that_would_fill_the_memory_is_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path, noise(8, 8))
    monkeypatch.setattr("treadle.cli.pictures._MOST_PIXELS", 63)
    with pytest.raises(InputError, match="8 x 8 pixels, more than 63"):
        given(path, (1, 3, 8, 8), "unit")


def test_without_pillow_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path, noise(8, 8))
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(UsageError) as caught:
        given(path, (1, 3, 8, 8), "unit")
    assert "treadle[image]" in str(caught.value.hint)


def test_a_network_is_shown_a_picture(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, artifact: Path
) -> None:
    path = saved(tmp_path, noise(40, 40))
    out, _ = run(capsys, "run", artifact, "-i", path, "--preset", "unit", "--print-top", "1")
    assert "the 1 largest of 10 values" in out
    assert main(["run", str(artifact), "--preset", "unit"]) == 2
    assert "--inputs picture.png" in capsys.readouterr().err
