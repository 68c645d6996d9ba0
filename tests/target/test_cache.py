# SPDX-License-Identifier: Apache-2.0
"""The kernel cache: hits, damage, foreign keys, ownership, eviction, two writers."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from treadle.target import cache as cache_module
from treadle.target.cache import KernelCache, obstacles


def entries(root: Path) -> list[Path]:
    return sorted(root.glob("??/*.kernel"))


def test_what_is_stored_is_found(tmp_path: Path) -> None:
    store = KernelCache(tmp_path / "kernels")
    assert store.load("key") is None
    store.store("key", b"object")
    assert store.load("key") == b"object"
    assert KernelCache(tmp_path / "kernels").load("key") == b"object"
    assert store.load("other") is None


def test_the_folder_and_its_files_are_private(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "kernels"
    store = KernelCache(root)
    store.store("key", b"object")
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    (entry,) = entries(root)
    assert stat.S_IMODE(entry.stat().st_mode) & 0o077 == 0
    root.chmod(0o755)
    KernelCache(root)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "longer", "magic"])
def test_a_damaged_entry_is_a_miss_and_goes_away(tmp_path: Path, damage: str) -> None:
    store = KernelCache(tmp_path / "kernels")
    store.store("key", b"object" * 100)
    (path,) = entries(store.root)
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[-5] ^= 1
    elif damage == "magic":
        data[0] ^= 1
    else:
        data = {"cut": data[:-7], "empty": bytearray(), "longer": data + b"x"}[damage]
    path.write_bytes(data)
    assert store.load("key") is None
    assert not path.exists()


def test_an_entry_of_another_key_is_not_taken(tmp_path: Path) -> None:
    """As if two keys had one hash, or somebody renamed an entry."""
    store = KernelCache(tmp_path / "kernels")
    store.store("mine", b"mine")
    (mine,) = entries(store.root)
    store.store("other", b"other")
    (other,) = [p for p in entries(store.root) if p != mine]
    mine.write_bytes(other.read_bytes())
    assert store.load("mine") is None


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    store = KernelCache(tmp_path / "kernels")
    store.store("key", b"object")
    (path,) = entries(store.root)
    aside = tmp_path / "aside"
    path.rename(aside)
    path.symlink_to(aside)
    assert store.load("key") is None


def test_a_folder_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "kernels"
    KernelCache(root).store("key", b"object")
    monkeypatch.setattr(os, "geteuid", lambda: root.stat().st_uid + 1)
    assert KernelCache(root).load("key") is None
    assert obstacles(root) == [f"{root} is not a folder of this user"]


def test_a_link_in_place_of_the_folder_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    root = tmp_path / "kernels"
    root.symlink_to(tmp_path / "real")
    KernelCache(root).store("key", b"object")
    assert not list((tmp_path / "real").iterdir())
    assert obstacles(root) == [f"{root} is not a folder of this user"]


def make_folder(path: Path) -> None:
    path.mkdir()


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize("make", [make_folder, make_pipe, make_link, make_link_to_nothing])
@pytest.mark.parametrize("place", ["entry", "shard"])
def test_what_is_of_another_kind_is_a_miss_and_is_named(
    make: Callable[[Path], None], place: str, tmp_path: Path
) -> None:
    store = KernelCache(tmp_path / "kernels")
    store.store("key", b"object")
    (path,) = entries(store.root)
    path.unlink()
    if place == "shard":
        path = path.parent
        path.rmdir()
    make(path)
    assert store.load("key") is None
    is_right = place == "shard" and make is make_folder
    kind = "file" if place == "entry" else "folder"
    assert obstacles(store.root) == ([] if is_right else [f"{path} is not a {kind} of this user"])
    store.store("key", b"object")
    store.evict()
    is_replaced = place == "entry" and make is not make_folder
    assert store.load("key") == (b"object" if is_right or is_replaced else None)


def refuse_to_chmod(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "chmod", refuse)
    monkeypatch.setattr(Path, "chmod", refuse)


def test_a_mode_that_cannot_be_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a read-only disk: entries nobody else can have written are used, others are not."""
    root = tmp_path / "kernels"
    KernelCache(root).store("key", b"object")
    root.chmod(0o755)
    with monkeypatch.context() as patch:
        refuse_to_chmod(patch)
        assert KernelCache(root).load("key") == b"object"
    root.chmod(0o775)
    with monkeypatch.context() as patch:
        refuse_to_chmod(patch)
        assert KernelCache(root).load("key") is None
        (problem,) = obstacles(root)
    assert "others can write" in problem
    assert "Read-only file system" in problem


def test_a_folder_that_takes_no_file_is_an_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "kernels"
    assert obstacles(root) == []

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(cache_module.tempfile, "TemporaryFile", refuse)
    assert obstacles(root) == [f"nothing can be kept in {root}: Read-only file system"]


def test_a_file_where_the_folder_should_be_disables_the_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = KernelCache(tmp_path / "file" / "kernels")
    store.store("key", b"object")
    assert not store.is_usable
    assert store.load("key") is None


def test_the_entries_unused_for_longest_go_first(tmp_path: Path) -> None:
    store = KernelCache(tmp_path / "kernels", limit=5000)
    paths = {}
    for n in range(4):
        store.store(f"key{n}", os.urandom(1100))
        (paths[n],) = [p for p in entries(store.root) if p not in paths.values()]
        os.utime(paths[n], (1000 + n, 1000 + n))
    assert store.load("key0") is not None  # now the one used last
    store.store("key4", os.urandom(1100))
    store.evict()
    assert store.load("key1") is None
    assert store.load("key0") is not None
    assert store.load("key4") is not None
    assert sum(p.stat().st_size for p in entries(store.root)) <= 5000


def test_storing_evicts_from_time_to_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_STORES_PER_CHECK", 4)
    store = KernelCache(tmp_path / "kernels", limit=3000)
    for n in range(20):
        store.store(f"key{n}", os.urandom(1000))
    assert len(entries(store.root)) < 8


def test_a_full_disk_is_not_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = KernelCache(tmp_path / "kernels")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    store.store("key", b"object")
    monkeypatch.undo()
    assert store.load("key") is None
    assert not list(store.root.glob("??/*"))
