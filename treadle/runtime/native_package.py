# SPDX-License-Identifier: Apache-2.0
"""The native runtime for a machine, in a folder: libtreadle.so, libtreadle.a, treadle.h.

With it comes treadle-rpc-server, where it is asked for: devices without Python run it.

Built by a compiler that is named, by this machine's or a Debian cross gcc, or by zig, which knows
every glibc: then it runs on boards older than any toolchain here.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from treadle.errors import ToolchainError, UsageError
from treadle.files import refused
from treadle.runtime.native_build import (
    FLAGS,
    find_sources,
    server_files,
    source_files,
    source_hash,
    zig_command,
)
from treadle.runtime.toolchain import Tool, find_compiler, named_tool, run_tool

SHARED, STATIC, HEADER = "libtreadle.so", "libtreadle.a", "treadle.h"
SERVER = "treadle-rpc-server"
SOURCES = "sources"
"""Beside a package that came with Treadle: the hash of what it was built from."""

_JOBS = 2
_OPTIONS = ("-g0", "-ffunction-sections", "-fdata-sections")
"""A linker leaves out sections that nobody calls into."""
_TRIPLE = re.compile(r"(?P<triple>[A-Za-z0-9_]+(-[A-Za-z0-9_]+)+?)(\.(?P<glibc>\d+\.\d+))?")


@dataclass(frozen=True)
class Toolchain:
    """What builds for a machine: a C compiler and what makes static libraries."""

    compiler: tuple[str, ...]
    archiver: tuple[str, ...]


def parse_machine(text: str) -> tuple[str, str]:
    """Return triple and version of glibc ("": any) of "aarch64-linux-gnu.2.17".

    Raises: UsageError for another form, and for systems other than Linux.
    """
    found = _TRIPLE.fullmatch(text)
    if found is None or "linux" not in found["triple"]:
        raise UsageError(
            f"{text!r} is no machine the runtime is built for",
            hint="write a triple, as aarch64-linux-gnu, or with a version of glibc: "
            "aarch64-linux-gnu.2.17",
        )
    return found["triple"], found["glibc"] or ""


def find_toolchain(machine: str | None, compiler: Sequence[str] | None = None) -> Toolchain:
    """Return what builds for a machine (None: this one), by `compiler` if that is named.

    Raises: ToolchainError when there is nothing; UsageError for a version of glibc that the
    compiler cannot be told.
    """
    triple, glibc = parse_machine(machine) if machine is not None else (None, "")
    if compiler is not None:
        if glibc:
            raise UsageError(
                f"a compiler is named, and glibc {glibc}: a compiler has the version it came with",
                hint="leave out one of them; zig takes any version",
            )
        command = named_tool(compiler).command
        return Toolchain(command, _archiver_of(command))
    found = None if glibc else _compiler_for(triple)
    if found is not None:
        return Toolchain(found.command, _archiver_of(found.command))
    if triple is not None and "android" in triple:
        raise ToolchainError(
            f"no C compiler is found for {triple}",
            hint=f"name the NDK's: --cross-compiler …/{triple}-clang, or put it on PATH",
        )
    if (zig := zig_command()) is None:
        wanted = f"glibc {glibc} of {triple}" if glibc else triple or "this machine"
        raise ToolchainError(
            f"no C compiler is found for {wanted}",
            hint='pip install "treadle[cross]", which has zig'
            + ("" if glibc else ", install its gcc, or name a compiler with --cross-compiler"),
        )
    target = ("-target", _zig_target(triple, glibc)) if triple else ()
    return Toolchain((*zig, "cc", *target), (*zig, "ar"))


def _compiler_for(triple: str | None) -> Tool | None:
    """Return a compiler whose programs run with the C library that a triple names."""
    if triple is None or ("musl" not in triple and "android" not in triple):
        return find_compiler(triple)
    names = (f"{triple}-gcc", f"{triple}-clang")
    return next((named_tool(name) for name in names if shutil.which(name)), None)


def _zig_target(triple: str, glibc: str) -> str:
    """Return a triple as zig writes it: without a vendor, with the version of glibc."""
    parts = triple.split("-")
    short = "-".join([parts[0], *parts[parts.index("linux") :]]) if "linux" in parts else triple
    return f"{short}.{glibc}" if glibc else short


def _archiver_of(compiler: Sequence[str]) -> tuple[str, ...]:
    """Return the `ar` that belongs to a compiler, as it says."""
    if any(Path(word).name in ("zig", "ziglang") for word in compiler):
        return (*compiler[: list(compiler).index("cc")], "ar")
    done = run_tool([*compiler, "-print-prog-name=ar"], "does not say what ar it uses")
    return (done.strip() or "ar",)


def build_package(
    folder: Path, toolchain: Toolchain, flags: Iterable[str] = (), *, with_server: bool = False
) -> list[Path]:
    """Write libtreadle.so, libtreadle.a and treadle.h into `folder`; return their paths.

    `with_server` adds treadle-rpc-server. `flags` are added to those of the compiler. Each file
    appears complete or not at all.

    Raises: ToolchainError when the compiler fails. UsageError when the folder cannot be written.
    """
    sources = find_sources()
    if sources is None:
        raise ToolchainError("the sources of the native runtime are not in this installation")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as name:
            made = _Build(sources, Path(name), toolchain, tuple(flags))
            files = made.libraries() + (made.server() if with_server else [])
            for file in files:
                (made.folder / file).replace(folder / file)
    except OSError as error:
        raise refused(folder, error) from None
    return [folder / file for file in files]


def package_hash() -> str:
    """Return the SHA-256 of the sources of runtime and server. Raises: ToolchainError."""
    sources = find_sources()
    if sources is None:
        raise ToolchainError("the sources of the native runtime are not in this installation")
    digest = hashlib.sha256(source_hash(sources).encode())
    for path in [*server_files(sources), *sorted((sources / "rpc").glob("*.h"))]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def build_for_board(folder: Path, machine: str) -> Path:
    """Build the package of a machine into a folder named by its triple, for a wheel to hold.

    With it goes the hash of its sources: `treadle deploy` takes it where that is its own. Raises:
    ToolchainError, UsageError as `find_toolchain` and `build_package` do.
    """
    made = folder / parse_machine(machine)[0]
    build_package(made, find_toolchain(machine), with_server=True)
    (made / SOURCES).write_text(package_hash() + "\n")
    return made


@dataclass(frozen=True)
class _Build:
    """One build: what it is made of, and where its files are until they are complete."""

    sources: Path
    folder: Path
    toolchain: Toolchain
    flags: tuple[str, ...]

    def libraries(self) -> list[str]:
        """Build the runtime; return the names of its files."""
        objects = self._objects(p for p in source_files(self.sources) if p.suffix == ".c")
        shared = ["-shared", "-s", "-pthread", "-o", str(self.folder / SHARED), *objects, "-ldl"]
        self._link(shared, "cannot link the runtime")
        archive = [*self.toolchain.archiver, "rcs", str(self.folder / STATIC), *objects]
        run_tool(archive, "cannot make the static library")
        shutil.copyfile(self.sources / "include" / HEADER, self.folder / HEADER)
        return [SHARED, STATIC, HEADER]

    def server(self) -> list[str]:
        """Build the RPC server with the static library; return its name."""
        objects = self._objects(server_files(self.sources))
        parts = [*objects, str(self.folder / STATIC), "-pthread", "-ldl", "-lm"]
        self._link(["-s", "-o", str(self.folder / SERVER), *parts], "cannot link the RPC server")
        return [SERVER]

    def _objects(self, units: Iterable[Path]) -> list[str]:
        include = [f"-I{self.sources / name}" for name in ("include", "src")]
        command = [*self.toolchain.compiler, *FLAGS, *_OPTIONS, *self.flags, *include, "-c", "-o"]
        made = {str(self.folder / f"{path.parent.name}-{path.stem}.o"): path for path in units}
        commands = [[*command, out, str(path)] for out, path in made.items()]
        with ThreadPoolExecutor(_JOBS) as pool:
            list(pool.map(lambda c: run_tool(c, "cannot build the runtime"), commands))
        return list(made)

    def _link(self, words: Sequence[str], problem: str) -> None:
        run_tool([*self.toolchain.compiler, *self.flags, *words], problem)
