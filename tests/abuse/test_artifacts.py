# SPDX-License-Identifier: Apache-2.0
"""`treadle run` and `treadle bench` refuse archives that are damaged, unsafe or lie."""

from __future__ import annotations

import hashlib
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.abuse.conftest import Cli
from tests.abuse.models import Members, add_special, members_of, with_manifest, write_tar
from tests.runtime.artifacts import cut_off
from treadle.runtime import native

BROKEN_TARS = {
    "empty": b"",
    "text": b"no archive at all\n" * 100,
    "zeros": bytes(10240),
    "gzip": b"\x1f\x8b\x08\x00" + bytes(1000),
}


@pytest.mark.parametrize("case", BROKEN_TARS)
@pytest.mark.parametrize("command", ["run", "bench"])
def test_no_archive(cli: Cli, tmp_path: Path, case: str, command: str) -> None:
    path = tmp_path / "bad.tar"
    path.write_bytes(BROKEN_TARS[case])
    assert "bad.tar" in cli.fails(command, path)


def test_truncated_anywhere(cli: Cli, tmp_path: Path, artifact: Path) -> None:
    whole = artifact.read_bytes()
    end = whole.rstrip(b"\0")
    path = tmp_path / "cut.tar"
    for length in range(0, len(end), max(1, len(end) // 30)):
        path.write_bytes(whole[:length])
        assert "cut.tar" in cli.fails("run", path)


def test_damaged_anywhere(cli: Cli, tmp_path: Path, artifact: Path) -> None:
    """A changed byte in a member is found before anything of it is used."""
    path = tmp_path / "damaged.tar"
    whole = artifact.read_bytes()
    with tarfile.open(artifact) as archive:
        places = [(i.offset_data, i.size) for i in archive.getmembers()]
    for offset, size in places:
        for position in range(offset, offset + size, max(1, size // 25)):
            changed = bytearray(whole)
            changed[position] ^= 0x55
            path.write_bytes(changed)
            result = cli("run", path)
            if result.code == 0:  # in the part of mod.json that is for other programs
                assert offset <= position < offset + size
                assert whole[offset : offset + 1] == b"{"
            else:
                assert result.code == 2, (position, result)


@pytest.mark.parametrize("name", ["../mod.so", "/tmp/evil", "a/../../b", "extra", "mod.so", "./x"])
def test_members_that_do_not_belong(cli: Cli, tmp_path: Path, artifact: Path, name: str) -> None:
    path = tmp_path / "bad.tar"
    path.write_bytes(artifact.read_bytes())
    add_special(path, name, tarfile.REGTYPE)
    assert name in cli.fails("run", path)
    assert not (tmp_path.parent / "mod.so").exists()


LINKS = {
    "symbolic link": tarfile.SYMTYPE,
    "hard link": tarfile.LNKTYPE,
    "device": tarfile.CHRTYPE,
    "pipe": tarfile.FIFOTYPE,
}


@pytest.mark.parametrize("case", LINKS)
@pytest.mark.parametrize("name", ["mod.so", "mod.json", "mod.params"])
def test_members_that_are_no_files(
    cli: Cli, tmp_path: Path, artifact: Path, case: str, name: str
) -> None:
    members = members_of(artifact)
    del members[name]
    path = write_tar(tmp_path / "bad.tar", members)
    add_special(path, name, LINKS[case], "/etc/passwd")
    error = cli.fails("run", path)
    assert case in error
    assert name in error


def test_folder(cli: Cli, tmp_path: Path, artifact: Path) -> None:
    path = write_tar(tmp_path / "bad.tar", members_of(artifact))
    assert "mod.so/" in cli.fails("run", add_special(path, "mod.so/", tarfile.DIRTYPE))


@pytest.mark.parametrize("name", ["mod.so", "mod.json", "mod.params"])
def test_missing_members(cli: Cli, tmp_path: Path, artifact: Path, name: str) -> None:
    members = members_of(artifact)
    del members[name]
    assert name in cli.fails("run", write_tar(tmp_path / "bad.tar", members))


# ---- machine code --------------------------------------------------------------------------------


def no_elf(code: bytes) -> bytes:
    return b"MZ" + code[2:]


def other_machine(code: bytes) -> bytes:
    (machine,) = struct.unpack_from("<H", code, 18)
    return code[:18] + struct.pack("<H", 62 if machine != 62 else 183) + code[20:]


@pytest.mark.parametrize("change", [no_elf, other_machine, cut_off])
@pytest.mark.parametrize("is_honest", [False, True])
def test_machine_code(
    cli: Cli, tmp_path: Path, artifact: Path, change: Callable[[bytes], bytes], is_honest: bool
) -> None:
    """Refused by its hash; with a hash that fits, by its header."""
    members = members_of(artifact)
    members["mod.so"] = change(members["mod.so"])
    if is_honest:
        digest = hashlib.sha256(members["mod.so"]).hexdigest()
        members = with_manifest(members, lambda m: m.update(hashes={"mod.so": digest}))
    error = cli.fails("run", write_tar(tmp_path / "bad.tar", members))
    assert "machine code" in error or "mod.so" in error


# ---- a manifest that lies ------------------------------------------------------------------------

Json = dict[str, Any]  # Any: parsed JSON that is about to be made wrong


def first(rows: list[Json], **facts: object) -> Json:
    return next(r for r in rows if all(r[k] == v for k, v in facts.items()))


def plan_of(manifest: Json) -> Json:
    plan: Json = manifest["treadle"]
    return plan


LIES: dict[str, Callable[[Json], object]] = {
    "no plan": lambda m: m.pop("treadle"),
    "no hashes": lambda m: m.pop("hashes"),
    "no checksum": lambda m: m.pop("checksums"),
    "future version": lambda m: plan_of(m).update(version=99),
    "unknown instruction": lambda m: plan_of(m)["instructions"][0].update(op="jump"),
    "value out of range": lambda m: plan_of(m)["instructions"][0].update(args=[0, 1, 99]),
    "negative value": lambda m: plan_of(m)["instructions"][0].update(args=[-1, 0, 1]),
    "huge value": lambda m: plan_of(m)["instructions"][0].update(args=[1 << 63, 0, 1]),
    "unknown kernel": lambda m: plan_of(m)["instructions"][0].update(kernel="system"),
    "output too small": lambda m: first(plan_of(m)["values"], kind="output").update(bytes=4),
    "input too small": lambda m: first(plan_of(m)["values"], kind="input").update(bytes=4),
    "shape and bytes": lambda m: first(plan_of(m)["values"], kind="input").update(shape=[1 << 40]),
    "overflowing shape": lambda m: first(plan_of(m)["values"], kind="input").update(
        shape=[1 << 62, 1 << 62]
    ),
    "negative shape": lambda m: first(plan_of(m)["values"], kind="input").update(shape=[-2, -3]),
    "unknown dtype": lambda m: first(plan_of(m)["values"], kind="input").update(dtype="float99"),
    "constant size": lambda m: first(plan_of(m)["values"], kind="constant").update(
        bytes=2400, shape=[600]
    ),
    "constant name": lambda m: first(plan_of(m)["values"], kind="constant").update(param="p999"),
    "input index": lambda m: plan_of(m)["inputs"][0].update(value=12345),
    "output is input": lambda m: plan_of(m)["outputs"][0].update(value=0),
    "huge arena": lambda m: plan_of(m).update(arena_bytes=1 << 60),
    "negative arena": lambda m: plan_of(m).update(arena_bytes=-64),
    "other CPU": lambda m: plan_of(m).update(cpu_features=["flux-capacitor"]),
    "values are text": lambda m: plan_of(m).update(values="many"),
    "instructions are missing": lambda m: plan_of(m).pop("instructions"),
}


@pytest.mark.parametrize("case", LIES)
def test_manifest_that_lies(cli: Cli, tmp_path: Path, artifact: Path, case: str) -> None:
    def change(manifest: Json) -> None:
        LIES[case](manifest)

    members = with_manifest(members_of(artifact), change)
    assert "bad.tar" in cli.fails("run", write_tar(tmp_path / "bad.tar", members))


def test_damaged_plan_with_its_checksum(cli: Cli, tmp_path: Path, artifact: Path) -> None:
    """A number that fits everywhere but is not the one that was written."""
    members = members_of(artifact)
    assert b'"origin":"add+relu"' in members["mod.json"]
    members["mod.json"] = members["mod.json"].replace(
        b'"origin":"add+relu"', b'"origin":"abcdefgh"'
    )
    assert "damaged" in cli.fails("run", write_tar(tmp_path / "bad.tar", members))


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"null", b"{" * 100_000, b'{"treadle":' * 5000, b'"\\ud800"', b"\xff\xfe{}"],
    ids=range(8),
)
def test_manifest_that_is_no_json(cli: Cli, tmp_path: Path, artifact: Path, text: bytes) -> None:
    members = {**members_of(artifact), "mod.json": text}
    assert "bad.tar" in cli.fails("run", write_tar(tmp_path / "bad.tar", members))


@pytest.mark.parametrize("place", [0, 8, 16, 24, 32, 48, 64])
def test_weights_that_lie(cli: Cli, tmp_path: Path, artifact: Path, place: int) -> None:
    """Counts and sizes in mod.params, changed with a checksum that fits."""
    members: Members = members_of(artifact)
    params = bytearray(members["mod.params"])
    params[place : place + 8] = struct.pack("<Q", (1 << 62) + 7)
    members["mod.params"] = bytes(params)
    checksum = native.hash64(bytes(params))
    members = with_manifest(members, lambda m: m.update(checksums={"mod.params": checksum}))
    result = cli("run", write_tar(tmp_path / "bad.tar", members))
    if place == 8:  # a reserved word
        assert result.code in (0, 2)
    else:
        assert result.code == 2
        assert "bad.tar" in result.err
