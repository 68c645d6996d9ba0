# SPDX-License-Identifier: Apache-2.0
"""What all tests share: golden texts, seeded random numbers, a cache folder of their own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
import zlib
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from tests.devices import opencl_trouble

_CACHE = "TREADLE_CACHE"
_MODEL_CACHE = "TREADLE_MODEL_CACHE"
# The same examples on every run and machine, however slow it is.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")

_owned_cache = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the texts that tests produce to their golden files instead of comparing",
    )


def pytest_configure(config: pytest.Config) -> None:
    # One fresh kernel cache for the whole run: worker processes inherit the variable.
    if _CACHE not in os.environ:
        config.stash[_owned_cache] = os.environ[_CACHE] = tempfile.mkdtemp(prefix="treadle-tests-")
    # Models are compiled anew, whatever another test has compiled; those of the cache ask for it.
    os.environ.setdefault(_MODEL_CACHE, "0")


def pytest_unconfigure(config: pytest.Config) -> None:
    if folder := config.stash.get(_owned_cache, None):
        shutil.rmtree(folder, ignore_errors=True)
        os.environ.pop(_CACHE, None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if importlib.util.find_spec("torch") is None:
        skip = pytest.mark.skip(reason="torch is not installed")
        for item in items:
            if item.get_closest_marker("torch") is not None:
                item.add_marker(skip)
    on_device = [item for item in items if item.get_closest_marker("opencl") is not None]
    if on_device and (trouble := opencl_trouble()):
        skip = pytest.mark.skip(reason=trouble)
        for item in on_device:
            item.add_marker(skip)


class Golden:
    """Compares texts with the files in the folder `golden` beside the test."""

    def __init__(self, folder: Path, update: bool) -> None:
        self.folder = folder
        self.update = update

    def check(self, name: str, text: str) -> None:
        """Fail unless `text` is what golden/`name` holds; with --update-golden, write it there."""
        path = self.folder / name
        text = text.rstrip("\n") + "\n"
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"{path} does not exist; run pytest with --update-golden to write it")
        assert text == path.read_text(encoding="utf-8"), f"{path}: run with --update-golden?"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Golden texts of the requesting test's folder."""
    return Golden(request.path.parent / "golden", request.config.getoption("--update-golden"))


@pytest.fixture
def random(request: pytest.FixtureRequest) -> np.random.Generator:
    """A random generator seeded by the requesting test's name."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))
