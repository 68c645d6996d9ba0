# SPDX-License-Identifier: Apache-2.0
"""Artifacts: good ones run, damaged and hostile ones are refused with a reason."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.runtime import artifacts
from tests.runtime.artifacts import members, tar_bytes, write_artifact
from treadle.errors import ArtifactError, TreadleError
from treadle.runtime import native
from treadle.runtime.executor import Executor


def refused(path: Path) -> str:
    with pytest.raises(ArtifactError) as caught:
        Executor.open(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def expected(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total = data + artifacts.small_constants()["p0"]
    return 2 * total + artifacts.small_constants()["p0"], total


def check_runs(path: Path) -> None:
    with Executor.open(path) as executor:
        data = np.ones((4, 4), np.float32)
        out, total = executor.run({"data": data})
        np.testing.assert_array_equal(out.numpy(), expected(data)[0])
        np.testing.assert_array_equal(total.numpy(), expected(data)[1])


# ---- good ones -----------------------------------------------------------------------------------


def test_an_artifact_runs(tmp_path: Path) -> None:
    check_runs(write_artifact(tmp_path / "model.tar"))


def test_nothing_is_left_behind_and_descriptors_are_closed(tmp_path: Path) -> None:
    path = write_artifact(tmp_path / "model.tar")
    check_runs(path)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(20):
        check_runs(path)
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before + 1
    assert os.listdir(tmp_path) == ["model.tar"]


def test_two_artifacts_with_the_same_kernel_names_live_side_by_side(tmp_path: Path) -> None:
    first = Executor.open(write_artifact(tmp_path / "a.tar"))
    plan = artifacts.small_plan()
    plan["instructions"][2].update(args=[2, 1, 5])
    second = Executor.open(write_artifact(tmp_path / "b.tar", members(plan)))
    data = np.ones((4, 4), np.float32)
    total = expected(data)[1]
    constant = artifacts.small_constants()["p0"]
    np.testing.assert_array_equal(second.run([data])[0].numpy(), total + constant)
    np.testing.assert_array_equal(first.run([data])[0].numpy(), 2 * total + constant)


def test_a_model_of_copies_needs_no_machine_code(tmp_path: Path) -> None:
    plan = artifacts.small_plan()
    plan["instructions"] = [{"op": "copy", "from": 0, "to": i, "origin": ""} for i in (5, 6)]
    with Executor.open(write_artifact(tmp_path / "m.tar", members(plan, code=b""))) as executor:
        data = np.ones((4, 4), np.float32)
        for result in executor.run([data]):
            np.testing.assert_array_equal(result.numpy(), data)


def test_the_fast_check_of_weights_replaces_sha256(tmp_path: Path) -> None:
    params = artifacts.params_bytes(artifacts.small_constants())
    good = {"mod.params": native.hash64(params)}
    check_runs(write_artifact(tmp_path / "good.tar", members(checksums=good)))
    bad = {"mod.params": "0" * 16}
    path = write_artifact(tmp_path / "bad.tar", members(checksums=bad))
    assert "the weights (mod.params) do not match their hash" in refused(path)


def test_a_changed_plan_does_not_match_its_check(tmp_path: Path) -> None:
    plan = artifacts.small_plan()
    text = json.dumps(plan).encode()
    good = {"treadle": native.hash64(text)}
    check_runs(write_artifact(tmp_path / "good.tar", members(plan, checksums=good)))
    plan["instructions"][2]["args"] = [2, 1, 5]
    path = write_artifact(tmp_path / "bad.tar", members(plan, checksums=good))
    assert "the execution plan (in mod.json) does not match its hash" in refused(path)


def test_unused_and_differently_typed_weights_are_fine(tmp_path: Path) -> None:
    more = {
        "unused": np.zeros((3, 5), np.int64),
        **artifacts.small_constants(),
        "flag": np.ones((), np.bool_),
        "none": np.zeros((0, 4), np.float32),
    }
    check_runs(write_artifact(tmp_path / "model.tar", members(constants=more)))


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_tar_format_is_read(tmp_path: Path, form: int) -> None:
    path = tmp_path / "model.tar"
    with tarfile.open(path, "w", format=form) as archive:
        for name, data in members().items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mtime = 1234567890.5  # type: ignore[assignment]  # PAX stores fractions
            archive.addfile(info, io.BytesIO(data))
    check_runs(path)


# ---- the archive ---------------------------------------------------------------------------------


def with_member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    """A good artifact with one more member."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        archive.addfile(info)
        for member, data in members().items():
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


HOSTILE_MEMBERS = {
    "parent": (lambda: with_member("../evil.so"), '"../evil.so" points out of the archive'),
    "absolute": (lambda: with_member("/etc/passwd"), '"/etc/passwd" points out of the archive'),
    "inner parent": (lambda: with_member("a/../../b"), "points out of the archive"),
    "other file": (lambda: with_member("notes.txt"), '"notes.txt" does not belong there'),
    "folder": (lambda: with_member("mod.so", tarfile.DIRTYPE), 'member "mod.so/" does not belong'),
    "symlink": (
        lambda: with_member("mod.so", tarfile.SYMTYPE, "/etc/passwd"),
        '"mod.so" is a symbolic link',
    ),
    "hard link": (
        lambda: with_member("mod.params", tarfile.LNKTYPE, "mod.so"),
        '"mod.params" is a hard link',
    ),
    "device": (lambda: with_member("mod.so", tarfile.CHRTYPE), '"mod.so" is a device'),
    "pipe": (lambda: with_member("mod.so", tarfile.FIFOTYPE), '"mod.so" is a pipe'),
    "twice": (lambda: with_member("mod.json"), '"mod.json" occurs twice'),
    "odd name": (lambda: with_member("\x1b[2Jmod"), '"?[2Jmod" does not belong there'),
    "no weights": (
        lambda: tar_bytes({k: v for k, v in members().items() if k != "mod.params"}),
        "it has no mod.params",
    ),
    "long name": (lambda: with_member("a/" * 70 + "mod.so"), "is in a folder"),
}


@pytest.mark.parametrize("name", HOSTILE_MEMBERS)
def test_an_archive_with_anything_else_in_it_is_refused(tmp_path: Path, name: str) -> None:
    make, message = HOSTILE_MEMBERS[name]
    path = tmp_path / "model.tar"
    path.write_bytes(make())
    assert message in refused(path)
    assert os.listdir(tmp_path) == ["model.tar"]


@pytest.mark.parametrize("key", ["path", "size", "linkpath", "GNU.sparse.major"])
def test_an_extended_header_cannot_rename_or_resize(tmp_path: Path, key: str) -> None:
    path = tmp_path / "model.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT, pax_headers={key: "7"}) as archive:
        for name, data in members().items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    assert "changes more than times and owners" in refused(path)


def patched(offset: int, data: bytes) -> bytes:
    """A good artifact with its first header patched, checksum made good again."""
    archive = bytearray(tar_bytes(members()))
    archive[offset : offset + len(data)] = data
    archive[148:156] = b" " * 8
    archive[148:156] = b"%06o\0 " % sum(archive[:512])
    return bytes(archive)


def without_end() -> bytes:
    """A good artifact without the empty records at its end."""
    archive = tar_bytes(members())
    used = len(archive.rstrip(b"\0"))
    return archive[: -(-used // 512) * 512]


BROKEN_ARCHIVES: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "not a tar archive"),
    "short": (lambda: b"x" * 100, "not a tar archive"),
    "text": (lambda: b"hello " * 1000, "not a tar archive"),
    "zeros": (lambda: bytes(10240), "not a tar archive"),
    "size beyond the file": (lambda: patched(124, b"77777777777\0"), "cut off inside member"),
    "size not a number": (lambda: patched(124, b"12x45678901\0"), "not a tar archive"),
    "binary size overflow": (lambda: patched(124, b"\xff" * 12), "not a tar archive"),
    "huge binary size": (
        lambda: patched(124, b"\x80" + bytes(3) + (1 << 62).to_bytes(8, "big")),
        "cut off inside member",
    ),
    "no end": (without_end, "the archive is cut off: it has no end mark"),
}


@pytest.mark.parametrize("name", BROKEN_ARCHIVES)
def test_a_broken_archive_is_refused(tmp_path: Path, name: str) -> None:
    make, message = BROKEN_ARCHIVES[name]
    path = tmp_path / "model.tar"
    path.write_bytes(make())
    assert message in refused(path)


def test_an_endless_row_of_headers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.tar"
    info = tarfile.TarInfo("comment")
    info.type = tarfile.XGLTYPE
    path.write_bytes(info.tobuf(tarfile.USTAR_FORMAT) * 1000)
    assert "too many headers" in refused(path)


def test_a_header_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    archive = bytearray(tar_bytes(members()))
    archive[3] ^= 1
    (tmp_path / "model.tar").write_bytes(archive)
    assert "not a tar archive" in refused(tmp_path / "model.tar")


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = tar_bytes(members())
    end = len(whole) - whole[::-1].index(whole.rstrip(b"\0")[-1:])
    path = tmp_path / "model.tar"
    for length in range(0, end, max(1, end // 60)):
        path.write_bytes(whole[:length])
        refused(path)


def test_damage_anywhere_is_found_or_harmless(tmp_path: Path, random: np.random.Generator) -> None:
    whole = tar_bytes(members())
    path = tmp_path / "model.tar"
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[random.integers(0, len(whole))] ^= 1 << random.integers(0, 8)
        path.write_bytes(damaged)
        with contextlib.suppress(TreadleError):
            Executor.open(path).close()


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    assert "cannot open" in refused(tmp_path / "missing.tar")
    assert "not a regular file" in refused(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refused(tmp_path / "pipe")


# ---- manifest and machine code -------------------------------------------------------------------


def test_a_manifest_without_plan_or_hashes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.tar"
    files = members()
    files["mod.json"] = b'{"nodes": []}'
    assert "(mod.json) has no execution plan" in refused(write_artifact(path, files))
    assert "has no hash of mod.params" in refused(write_artifact(path, members(hashes={})))
    params = hashlib.sha256(members()["mod.params"]).hexdigest()
    only = {"mod.params": params}
    assert "no SHA-256 of mod.so" in refused(write_artifact(path, members(hashes=only)))
    odd = {"mod.params": params, "mod.so": "../../etc"}
    assert "no SHA-256 of mod.so" in refused(write_artifact(path, members(hashes=odd)))


def test_machine_code_that_was_changed_is_refused(tmp_path: Path) -> None:
    files = members()
    files["mod.so"] = files["mod.so"][:-1] + b"!"
    message = refused(write_artifact(tmp_path / "model.tar", files))
    assert "(mod.so) does not match its SHA-256" in message


def broken_code(change: Callable[[bytearray], object]) -> bytes:
    code = bytearray(artifacts.kernel_code())
    change(code)
    return bytes(code)


def put(offset: int, form: str, number: int) -> Callable[[bytearray], None]:
    return lambda code: struct.pack_into(form, code, offset, number)


BAD_CODE: dict[str, tuple[Callable[[], bytes], str]] = {
    "text": (lambda: b"not machine code" * 100, "it is no ELF file"),
    "tiny": (lambda: b"\x7fELF", "it is no ELF file"),
    "empty": (lambda: b"", "the machine code is empty"),
    "32 bits": (lambda: broken_code(put(4, "B", 1)), "not 64-bit little endian"),
    "big endian": (lambda: broken_code(put(5, "B", 2)), "not 64-bit little endian"),
    "program": (lambda: broken_code(put(16, "<H", 2)), "not a shared object"),
    "other machine": (
        lambda: broken_code(put(18, "<H", 243)),
        "the machine code is made for riscv64, this machine is",
    ),
    "headers outside": (lambda: broken_code(put(32, "<Q", 1 << 60)), "headers are cut off"),
    "no headers": (lambda: broken_code(put(56, "<H", 0)), "no program headers"),
    "cut off": (lambda: artifacts.cut_off(artifacts.kernel_code()), "it is cut off"),
}


@pytest.mark.parametrize("name", BAD_CODE)
def test_bad_machine_code_is_refused_before_it_is_loaded(tmp_path: Path, name: str) -> None:
    make, message = BAD_CODE[name]
    code = make()
    assert message in refused(write_artifact(tmp_path / "model.tar", members(code=code)))
    if code:
        with pytest.raises(ArtifactError) as caught:
            native.Library(code)
        assert message in str(caught.value)


def test_a_kernel_that_the_code_lacks_is_named(tmp_path: Path) -> None:
    plan = artifacts.small_plan()
    plan["instructions"][1]["kernel"] = "conv2d_0"
    message = refused(write_artifact(tmp_path / "model.tar", members(plan)))
    assert 'kernel "conv2d_0" of the plan is not in the machine code' in message


# ---- weights -------------------------------------------------------------------------------------

GOOD = artifacts.params_bytes(artifacts.small_constants())
# magic 8, reserved 8, count 8, name length 8, "p0" 2, count 8; then the array: magic 8, reserved 8,
# device 4 + 4, ndim 4, dtype 4, shape 2 * 8, bytes 8
COUNT, NAME_LENGTH, SECOND_COUNT, ARRAY = 16, 24, 34, 42
DEVICE, NDIM, CODE, SHAPE, NBYTES = ARRAY + 16, ARRAY + 24, ARRAY + 28, ARRAY + 32, ARRAY + 48


def weights(offset: int, form: str, number: int) -> bytes:
    data = bytearray(GOOD)
    struct.pack_into(form, data, offset, number)
    return bytes(data)


BAD_WEIGHTS = {
    "empty": (b"", "they are cut off"),
    "other magic": (weights(0, "<Q", 1), "do not start with the format's mark"),
    "endless list": (weights(COUNT, "<Q", 1 << 63), "an impossible number of arrays"),
    "long list": (weights(COUNT, "<Q", 1000), "an impossible number of arrays"),
    "long name": (weights(NAME_LENGTH, "<Q", 1 << 40), "a name has an impossible length"),
    "empty name": (weights(NAME_LENGTH, "<Q", 0), "a name has an impossible length"),
    "NUL in a name": (weights(NAME_LENGTH + 8, "<H", 0), "a name holds a NUL"),
    "other count": (weights(SECOND_COUNT, "<Q", 2), "not as many arrays as names"),
    "other array magic": (weights(ARRAY, "<Q", 1), "an array does not start with"),
    "on a GPU": (weights(DEVICE, "<i", 2), "an array is not in CPU memory"),
    "many dimensions": (weights(NDIM, "<i", 1 << 30), "too many dimensions"),
    "negative dimensions": (weights(NDIM, "<i", -1), "too many dimensions"),
    "unknown type": (weights(CODE, "<B", 9), "unknown element type"),
    "lanes": (weights(CODE + 2, "<H", 4), "unknown element type"),
    "negative size": (weights(SHAPE, "<q", -4), "a negative size"),
    "huge size": (weights(SHAPE, "<q", 1 << 62), "contradicts its shape"),
    "other bytes": (weights(NBYTES, "<q", 32), "contradicts its shape"),
    "cut off": (GOOD[:-1], "they are cut off"),
    "something after": (GOOD + b"!", "something after the last array"),
    "other type": (
        artifacts.params_bytes({"p0": np.zeros((4, 8), np.int64)}),
        'constant "p0" of the plan differs in type or shape',
    ),
    "other shape": (
        artifacts.params_bytes({"p0": np.zeros(16, np.float32)}),
        'constant "p0" of the plan differs in type or shape',
    ),
    "other name": (
        artifacts.params_bytes({"q0": np.zeros((4, 4), np.float32)}),
        'constant "p0" of the plan is not among the weights',
    ),
}


@pytest.mark.parametrize("name", BAD_WEIGHTS)
def test_bad_weights_are_refused(tmp_path: Path, name: str) -> None:
    params, message = BAD_WEIGHTS[name]
    assert message in refused(write_artifact(tmp_path / "model.tar", members(params=params)))


def test_a_name_twice_in_the_weights_is_refused(tmp_path: Path) -> None:
    two = artifacts.params_bytes({"p0": np.zeros((4, 4), np.float32), "p1": np.zeros(1, np.int64)})
    params = two.replace(b"p1", b"p0")
    message = refused(write_artifact(tmp_path / "model.tar", members(params=params)))
    assert "a name occurs twice" in message


def test_weights_that_were_changed_are_refused(tmp_path: Path) -> None:
    files = members()
    files["mod.params"] = GOOD[:-1] + b"!"
    message = refused(write_artifact(tmp_path / "model.tar", files))
    assert "the weights (mod.params) do not match their hash" in message
