# SPDX-License-Identifier: Apache-2.0
"""The PEP 517 build backend: setuptools, after it has built the native library into the package."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = dict[str, str | list[str]] | None

_ROOT = Path(__file__).resolve().parent.parent


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Return what the build needs beside setuptools: zig where the machine has no C compiler."""
    needed = [*build_meta.get_requires_for_build_wheel(config_settings), *_compiler_packages()]
    if (config_settings or {}).get("boards") and "ziglang>=0.13" not in needed:
        needed.append("ziglang>=0.13")  # knows every glibc
    return needed


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """Return what an editable build needs: the same as any other."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *_compiler_packages()]


def build_wheel(
    wheel_directory: str,
    config_settings: Settings = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the native library, then the wheel that holds it.

    With `--config-settings boards="aarch64-linux-gnu.2.17 x86_64-linux-gnu.2.17"` it also holds
    runtime and RPC server for these, which `treadle deploy` then need not build.
    """
    _build_native()
    _copy_native_sources()
    _build_boards(config_settings)
    return str(build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(
    wheel_directory: str,
    config_settings: Settings = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the native library into the source tree, then the wheel that points there."""
    _build_native()
    return str(build_meta.build_editable(wheel_directory, config_settings, metadata_directory))


def _compiler_packages() -> list[str]:
    has_compiler = any(shutil.which(name) for name in ("cc", "gcc", "clang", "zig"))
    return [] if has_compiler else ["ziglang>=0.13"]


def _build_native() -> None:
    # A process of its own: the script imports modules of the package being built.
    subprocess.run(
        [sys.executable, str(_ROOT / "scripts" / "build_native.py")], cwd=_ROOT, check=True
    )


def _build_boards(config_settings: Settings) -> None:
    """Build for the boards that are named; what an earlier build has left is not taken along."""
    shutil.rmtree(_ROOT / "treadle" / "_native" / "boards", ignore_errors=True)
    named = (config_settings or {}).get("boards", "")
    machines = named.split() if isinstance(named, str) else named
    if machines:
        command = [sys.executable, str(_ROOT / "scripts" / "build_boards.py"), *machines]
        subprocess.run(command, cwd=_ROOT, check=True)


def _copy_native_sources() -> None:
    """Put the C sources beside the library: for its header, and to build it anew elsewhere."""
    copy = _ROOT / "treadle" / "_native" / "source"
    shutil.rmtree(copy, ignore_errors=True)
    for folder in ("include", "rpc", "src"):
        shutil.copytree(_ROOT / "native" / folder, copy / folder)
