# SPDX-License-Identifier: Apache-2.0
"""What the commands say of this machine and of installed packages."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from treadle.runtime import native
from treadle.settings import get
from treadle.target.host import real_host, usable_cores


def cpu_name() -> str:
    """Return the processor's name as its maker writes it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def cpu_text() -> str:
    """Return the processor, LLVM's name for it, and how many of its cores may be used."""
    cores = f"{usable_cores()} of {os.cpu_count() or 1} cores usable"
    pretended = get().host_cpu
    looks = f", looks like {pretended} (TREADLE_HOST_CPU)" if pretended else ""
    return f"{cpu_name()} ({real_host().cpu}{looks}) · {cores}"


def package_version(name: str) -> str | None:
    """Return the version of an installed package, None when it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def treadle_version() -> str:
    """Return Treadle's version: the installed package's, else (in a checkout) the runtime's."""
    return package_version("treadle") or native.version()
