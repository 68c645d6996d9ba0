# SPDX-License-Identifier: Apache-2.0
"""This machine: its triple, CPU, features, caches and the number of cores this process may use."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from treadle.target.cpus import architecture_of

_CGROUP = Path("/sys/fs/cgroup/cpu.max")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True, slots=True)
class Host:
    """What LLVM says of this machine; `features` are those numeric kernels may depend on."""

    triple: str
    cpu: str
    features: frozenset[str]


@cache
def host() -> Host:
    """Return this machine's description.

    A virtual machine may show another CPU's name, so the features are read from the processor
    and the name, where it is not known here, becomes "generic".
    """
    triple = llvm.get_process_triple()
    architecture = architecture_of(triple)
    name = llvm.get_host_cpu_name()
    if architecture is None:
        return Host(triple, name, frozenset())
    try:
        flags = {f for f, on in llvm.get_host_cpu_features().items() if on}
    except RuntimeError:  # LLVM cannot read them on this system
        flags = set(architecture.cpus.get(name, ()))
    cpu = name if name in architecture.cpus else "generic"
    known = architecture.closure(f for f in flags if f in architecture.features)
    if architecture.name == "aarch64":
        known |= architecture.closure(("neon",))
    return Host(triple, cpu, known)


def usable_cores() -> int:
    """Return how many cores this process may use: its affinity, cut by the cgroup's quota."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return max(1, min(count, _cgroup_cores(_CGROUP) or count))


def _cgroup_cores(path: Path) -> int | None:
    try:
        quota, period = path.read_text().split()[:2]
    except (OSError, ValueError):
        return None
    if quota == "max" or not period.isdigit() or not quota.isdigit() or int(period) == 0:
        return None
    return math.ceil(int(quota) / int(period))


def cache_bytes(root: Path = _CACHES) -> dict[int, int]:
    """Return the sizes of the data caches by level (empty where the system does not tell)."""
    found: dict[int, int] = {}
    for entry in sorted(root.glob("index*")):
        try:
            kind = (entry / "type").read_text().strip()
            level = int((entry / "level").read_text())
            size = _size((entry / "size").read_text().strip())
        except (OSError, ValueError):
            continue
        if kind != "Instruction":
            found[level] = size
    return found


def _size(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    unit = units.get(text[-1:])
    return int(text) if unit is None else int(text[:-1]) * unit
