# SPDX-License-Identifier: Apache-2.0
"""Compiling the native runtime's C sources into a shared library.

Imports nothing but the standard library, so that a package build can load this file by itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

LIBRARY = "libtreadle.so"
STAMP = "libtreadle.sources"
"""Written next to a built library: the hash of the sources it was made from."""

FLAGS = (
    "-std=c11",
    "-O2",
    "-fPIC",
    "-pthread",
    "-fvisibility=hidden",
    "-D_POSIX_C_SOURCE=200809L",
    "-D_DEFAULT_SOURCE",
    "-D_DARWIN_C_SOURCE",
)
STRICT_FLAGS = ("-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wpedantic", "-Werror")
_TIMEOUT_S = 600


class BuildFailed(RuntimeError):
    """No compiler is found, or every one found fails."""


def find_sources() -> Path | None:
    """Return the folder with `include/` and `src/`: a checkout's, or the copy in the package."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package.parent / "native", package / "_native" / "source"):
        if (folder / "include" / "treadle.h").is_file():
            return folder
    return None


def source_files(sources: Path) -> list[Path]:
    """Return every file that goes into the library, headers included, in a fixed order."""
    return sorted((sources / "include").glob("*.h")) + sorted((sources / "src").glob("*.[ch]"))


def server_files(sources: Path) -> list[Path]:
    """Return the C files of the RPC server, which the library is without, in a fixed order."""
    return sorted((sources / "rpc").glob("*.c"))


def _sha256(data: bytes) -> str:
    """Return the SHA-256 of `data` in hexadecimal.

    Python's own is taken where it has one: hashlib loads OpenSSL, which takes 3 MB of every process
    that runs a model.
    """
    for name in ("_sha256", "_sha2", "hashlib"):  # up to Python 3.11, from 3.12 on, anywhere
        if importlib.util.find_spec(name) is not None:
            return str(importlib.import_module(name).sha256(data).hexdigest())
    raise BuildFailed("this Python has no hashlib")


def source_hash(sources: Path) -> str:
    """Return the SHA-256 of sources, flags and machine: what decides the library's content."""
    parts = [repr((FLAGS, platform.system(), platform.machine())).encode()]
    for path in source_files(sources):
        content = path.read_bytes()
        parts += [f"{path.name} {len(content)}\n".encode(), content]
    return _sha256(b"".join(parts))


def zig_command() -> list[str] | None:
    """Return the command of the zig tool (on PATH, or from the `ziglang` wheel)."""
    found = shutil.which("zig")
    if found:
        return [found]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang"]
    return None


def find_compilers() -> list[list[str]]:
    """Return the C compilers of this machine as commands, the preferred first."""
    commands = [[path] for name in ("cc", "gcc", "clang") if (path := shutil.which(name))]
    zig = zig_command()
    return commands + ([[*zig, "cc"]] if zig else [])


def _try_compiler(
    compiler: Sequence[str], sources: Path, output: Path, flags: Sequence[str]
) -> str:
    """Compile to `output`; return "" or what went wrong."""
    units = [str(path) for path in source_files(sources) if path.suffix == ".c"]
    include = f"-I{sources / 'include'}"
    command = [*compiler, *flags, include, "-shared", "-o", str(output), *units, "-ldl"]
    if env := shutil.which("env"):  # a compiler that is killed leaves its files where we clean up
        command = [env, f"TMPDIR={output.parent}", *command]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{compiler[0]}: {error}"
    return "" if done.returncode == 0 else f"{' '.join(compiler)}:\n{done.stderr.strip()}"


def build(
    output: Path,
    *,
    sources: Path | None = None,
    compilers: Sequence[Sequence[str]] | None = None,
    strict: bool = False,
) -> Path:
    """Compile the library to `output` with the first compiler that can; return `output`.

    The file appears complete or not at all. Raises: BuildFailed.
    """
    sources = sources or find_sources()
    if sources is None:
        raise BuildFailed("the sources of the native runtime are not in this installation")
    compilers = find_compilers() if compilers is None else compilers
    if not compilers:
        raise BuildFailed("no C compiler is found: neither cc, gcc, clang nor zig")
    output.parent.mkdir(parents=True, exist_ok=True)
    flags = FLAGS + (STRICT_FLAGS if strict else ())
    failures = []
    with tempfile.TemporaryDirectory(prefix=".build-", dir=output.parent) as folder:
        made = Path(folder) / LIBRARY
        for compiler in compilers:
            failure = _try_compiler(compiler, sources, made, flags)
            if not failure:
                stamp = Path(folder) / STAMP
                stamp.write_text(source_hash(sources) + "\n")
                made.replace(output)  # first: a library with an old stamp is only built again
                stamp.replace(output.parent / STAMP)
                return output
            failures.append(failure)
    raise BuildFailed("no C compiler can build the native runtime\n" + "\n".join(failures))


def is_current(library: Path, sources: Path | None) -> bool:
    """True if the library exists and was made from these sources (None: any sources)."""
    if not library.is_file():
        return False
    if sources is None:
        return True
    stamp = library.parent / STAMP
    return stamp.is_file() and stamp.read_text().strip() == source_hash(sources)
