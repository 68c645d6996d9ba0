# SPDX-License-Identifier: Apache-2.0
"""The classifier example: a network exported, and a photograph classified by the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from treadle.cli.main import main
from treadle.cli.pictures import picture_input

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")

from examples.classifier import classify  # noqa: E402  # needs torch

CLASSES = 12


@pytest.fixture(autouse=True)
def _definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a small network in the place of torchvision's: its wheels want another torch."""

    def get_model(name: str, weights: None) -> torch.nn.Module:
        assert name == "small"
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 7, stride=4),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(32, CLASSES),
        )

    stand_in = ModuleType("torchvision")
    stand_in.models = ModuleType("torchvision.models")  # type: ignore[attr-defined]
    stand_in.models.get_model = get_model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", stand_in)
    monkeypatch.setitem(sys.modules, "torchvision.models", stand_in.models)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A state dict that is not the seeded one."""
    module = classify.network("small", None)
    for parameter in module.parameters():
        parameter.data.mul_(1.5).add_(0.01)
    torch.save(module.state_dict(), tmp_path / "small.pth")
    return tmp_path / "small.pth"


@pytest.fixture
def photograph(tmp_path: Path, random: np.random.Generator) -> Path:
    """A picture that is wider than high."""
    coarse = random.integers(0, 256, (20, 31, 3), np.uint8)
    Image.fromarray(coarse).resize((500, 330)).save(tmp_path / "photograph.png")
    return tmp_path / "photograph.png"


def test_weights_of_the_file_are_taken(weights: Path) -> None:
    seeded, trained = classify.network("small", None), classify.network("small", weights)
    x = torch.ones(1, 3, classify.SIDE, classify.SIDE)
    with torch.no_grad():
        assert not torch.allclose(seeded(x), trained(x))


def test_both_ways_find_the_same_classes(weights: Path, photograph: Path) -> None:
    eager, compiled, distance = classify.compare(classify.network("small", weights), photograph)
    assert len(eager) == classify.TOP
    assert eager == compiled
    assert distance < 1e-5


def test_the_command_line_sees_what_the_network_was_trained_with(photograph: Path) -> None:
    side = classify.SIDE
    (seen,) = picture_input(photograph, [("x", "float32", (1, 3, side, side))], "imagenet").values()
    step = 1 / 255 / min(classify.DEVIATION)
    assert np.abs(np.asarray(seen) - classify.photograph(photograph).numpy()).max() < 1.01 * step


def test_the_exported_network_names_classes(
    weights: Path, photograph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "small.pt2"
    classify.export(classify.network("small", weights), program)
    names = [f"class {k}" for k in range(CLASSES)]
    (tmp_path / "names.txt").write_text("\n".join(names))
    words = ["run", str(program), "-i", str(photograph), "--preset", "imagenet"]
    assert main([*words, "--labels", str(tmp_path / "names.txt")]) == 0
    said = capsys.readouterr().out
    eager, _, _ = classify.compare(classify.network("small", weights), photograph)
    found = [names.index(n) for line in said.splitlines() for n in names if line.endswith(n)]
    assert found == eager, said
