# SPDX-License-Identifier: Apache-2.0
"""The settings: read from the environment, checked, changed for a block."""

from __future__ import annotations

import contextvars
from pathlib import Path

import pytest

from treadle.errors import SettingError
from treadle.settings import TABLE, Settings, describe, get, use

pytestmark = pytest.mark.tiny


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in TABLE:
        monkeypatch.delenv(setting.variable, raising=False)


def test_the_defaults() -> None:
    now = get()
    assert (now.debug, now.dump, now.dump_only, now.override) == (0, None, "*", None)
    assert (now.verify, now.time, now.num_threads, now.compile_workers) == (1, False, None, None)
    assert now.winograd
    assert now.host_cpu == ""
    assert now.cache.name == "treadle"


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    values = {
        "DEBUG": "3",
        "DUMP": str(tmp_path / "dump"),
        "DUMP_ONLY": "conv*",
        "OVERRIDE": str(tmp_path),
        "VERIFY": "2",
        "TIME": "1",
        "NUM_THREADS": "4",
        "CACHE": str(tmp_path / "cache"),
        "MODEL_CACHE": "50",
        "COMPILE_WORKERS": "8",
        "WINOGRAD": "0",
        "WEIGHT_GROWTH": "0.25",
        "HOST_CPU": "haswell",
        "C_COMPILER": "clang -O1",
    }
    for name, value in values.items():
        monkeypatch.setenv(f"TREADLE_{name}", value)
    first = (3, tmp_path / "dump", "conv*", tmp_path, 2, True, 4, tmp_path / "cache", 50, 8)
    assert get() == Settings(*first, False, 0.25, "haswell", "clang -O1")


def test_the_cache_follows_the_desktop_rules(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert get().cache == tmp_path / "treadle"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert get().cache == tmp_path / "home" / ".cache" / "treadle"


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("DEBUG", "8", "a number from 0 to 7"),
        ("DEBUG", "much", "a number from 0 to 7"),
        ("VERIFY", "-1", "0, 1 or 2"),
        ("TIME", "maybe", "0 or 1"),
        ("NUM_THREADS", "0", "a number from 1 to 512"),
        ("COMPILE_WORKERS", "1e3", "a number from 1 to 512"),
        ("CACHE", __file__, "a folder"),
    ],
)
def test_a_bad_value_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, wanted: str
) -> None:
    monkeypatch.setenv(f"TREADLE_{name}", text)
    with pytest.raises(SettingError) as caught:
        get()
    assert f"TREADLE_{name} is {text!r}; it must be {wanted}" in str(caught.value)
    assert "hint" in str(caught.value)


def test_a_block_changes_settings_and_changes_them_back() -> None:
    with use(debug=3, time=True) as outer:
        assert (outer.debug, outer.time) == (3, True)
        with use(debug=5, num_threads="2"):
            now = get()
            assert (now.debug, now.time, now.num_threads) == (5, True, 2)
            with use(num_threads=None):
                assert get().num_threads is None
        assert get().debug == 3
    assert get().debug == 0


def test_a_block_ends_with_an_exception_too() -> None:
    with pytest.raises(KeyError), use(debug=3):
        raise KeyError
    assert get().debug == 0


def test_a_block_stays_in_its_context() -> None:
    with use(debug=3):
        assert contextvars.Context().run(get).debug == 0


def test_unknown_names_and_bad_values_in_a_block() -> None:
    with pytest.raises(SettingError, match="did you mean 'debug'"), use(debgu=3):
        pass
    with pytest.raises(SettingError, match="settings are debug"), use(xyzzy=3):
        pass
    with pytest.raises(SettingError, match="debug is '9'; it must be"), use(debug=9):
        pass


def test_every_setting_is_described() -> None:
    rows = describe()
    assert [variable for variable, _, _ in rows] == [s.variable for s in TABLE]
    assert all(help_text for _, _, help_text in rows)


def test_edited_dumps_are_in_a_folder_that_exists(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TREADLE_OVERRIDE", str(tmp_path / "missing"))
    with pytest.raises(SettingError, match="must be a folder that exists"):
        get()


def test_the_environment_is_read_again_only_where_it_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert get() is get()
    for name, text in (("TREADLE_DEBUG", "2"), ("HOME", "home"), ("XDG_CACHE_HOME", "caches")):
        before = get()
        monkeypatch.setenv(name, text if name == "TREADLE_DEBUG" else str(tmp_path / text))
        assert get() != before
    monkeypatch.setenv("TREADLE_DEBUG", "9")
    for _ in range(2):  # what is wrong stays wrong
        with pytest.raises(SettingError, match="TREADLE_DEBUG is '9'"):
            get()
