# SPDX-License-Identifier: Apache-2.0
"""The server for a board: one that came with the package, one that is kept, or one built now."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from treadle.errors import ToolchainError, UsageError
from treadle.rpc.probe import BoardFacts
from treadle.runtime.native_package import (
    SERVER,
    SOURCES,
    Toolchain,
    build_package,
    find_toolchain,
    package_hash,
)
from treadle.settings import get

PREBUILT = Path(__file__).resolve().parent.parent / "_native" / "boards"
"""Packages that a wheel may hold: a folder per triple, each with the hash of its sources."""

_ELF_MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243}
_GLIBC = re.compile(rb"GLIBC_([0-9]+)\.([0-9]+)")


@dataclass(frozen=True)
class BoardPackage:
    """A folder with treadle-rpc-server and the runtime for a board; `origin` says whence it is."""

    folder: Path
    origin: str

    @property
    def server(self) -> Path:
        """The server's file."""
        return self.folder / SERVER


def find_package(
    facts: BoardFacts, compiler: Sequence[str] | None = None, folder: Path | None = None
) -> BoardPackage:
    """Return what runs on a board: from `folder` or by `compiler` where these are named.

    Else it is one that came with Treadle, or one that is built by the first compiler whose C
    library is not newer than the board's; what is built is kept in the cache.

    Raises: ToolchainError when nothing builds it; UsageError when what is named does not fit.
    """
    if folder is not None:
        return _named(facts, folder)
    if compiler is not None:
        return _built(facts, find_toolchain(None, compiler))
    hash_ = package_hash()
    prebuilt = PREBUILT / facts.triple
    if (prebuilt / SOURCES).is_file() and (prebuilt / SOURCES).read_text().strip() == hash_:
        made = BoardPackage(prebuilt, "came with Treadle")
        if _why_not(made.server, facts) is None:
            return made
    return _first_that_fits(facts)


def _named(facts: BoardFacts, folder: Path) -> BoardPackage:
    made = BoardPackage(folder, f"from {folder}")
    if not made.server.is_file():
        raise UsageError(
            f"{folder} holds no {SERVER}",
            hint=f"build it: treadle runtime build --target {facts.triple} -o {folder}",
        )
    if (problem := _why_not(made.server, facts)) is not None:
        raise UsageError(
            f"{made.server} is not for this board: {problem}",
            hint=f"build one that is: treadle runtime build --target {facts.triple}"
            + (f".{facts.libc_version}" if facts.libc == "gnu" and facts.libc_version else ""),
        )
    return made


def _first_that_fits(facts: BoardFacts) -> BoardPackage:
    failures: list[str] = []
    hint = ""
    for machine in _machines(facts):
        try:
            made = _built(facts, find_toolchain(machine))
        except ToolchainError as error:
            failures.append(error.problem)
            hint = error.hint
            continue
        if (problem := _why_not(made.server, facts)) is None:
            return made
        failures.append(problem)
    raise ToolchainError(
        f"the server cannot be built for the board ({facts}): {'; '.join(failures)}",
        hint=hint or "name a compiler: --cross-compiler",
    )


def _machines(facts: BoardFacts) -> Iterator[str]:
    """Yield what to build for: what is at hand first, then the board's own C library."""
    yield facts.triple
    if facts.libc == "gnu" and facts.libc_version:
        yield f"{facts.triple}.{facts.libc_version}"


def _built(facts: BoardFacts, toolchain: Toolchain) -> BoardPackage:
    """Return what a toolchain makes, made now or before."""
    words = " ".join(toolchain.compiler)
    key = hashlib.sha256(f"{package_hash()} {facts.machine} {words}".encode()).hexdigest()[:24]
    folder = get().cache / "boards" / f"{facts.machine}-{key}"
    made = BoardPackage(folder, f"built by {words}")
    if not made.server.is_file():
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(prefix=".build-", dir=folder.parent) as name:
            build_package(Path(name) / "made", toolchain, with_server=True)
            shutil.rmtree(folder, ignore_errors=True)
            (Path(name) / "made").replace(folder)
    return made


def _why_not(server: Path, facts: BoardFacts) -> str | None:
    """Return why a program does not run on a board, as far as its file tells; None where it may."""
    data = server.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        return "it is no program of 64 bits"
    if int.from_bytes(data[18:20], "little") != _ELF_MACHINES[facts.machine]:
        return f"it is built for another machine than {facts.machine}"
    needed = max(((int(a), int(b)) for a, b in _GLIBC.findall(data)), default=None)
    if needed is None or facts.libc != "gnu" or not facts.libc_version:
        return (
            None if needed is None or facts.libc == "gnu" else f"it needs glibc, not {facts.libc}"
        )
    major, minor = map(int, facts.libc_version.split("."))
    if needed <= (major, minor):
        return None
    return f"it needs glibc {needed[0]}.{needed[1]}, the board has {facts.libc_version}"
