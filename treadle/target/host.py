# SPDX-License-Identifier: Apache-2.0
"""This machine: its triple, CPU, features, caches and the number of cores this process may use.

TREADLE_HOST_CPU makes it look like one with a lesser CPU.
"""

from __future__ import annotations

import difflib
import math
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from treadle.errors import DeviceError, SettingError, TargetError, TreadleError
from treadle.runtime.gpu.devices import facts_of
from treadle.settings import get
from treadle.target.base import Target
from treadle.target.compiler_facts import compiler_facts
from treadle.target.cpus import architecture_of
from treadle.target.machine import CacheSizes, Machine
from treadle.target.machine_rows import GENERIC, machine_of

_CGROUP = Path("/sys/fs/cgroup/cpu.max")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True, slots=True)
class Host:
    """What LLVM says of this machine; `features` are those numeric kernels may depend on."""

    triple: str
    cpu: str
    features: frozenset[str]
    machine: Machine = GENERIC["x86"].machine


def host() -> Host:
    """Return this machine's description, with the CPU that TREADLE_HOST_CPU names if it does.

    Raises: SettingError for a CPU that is not known, or whose code this machine cannot run.
    """
    name = get().host_cpu
    return real_host() if not name else _pretended(name)


@cache
def real_host() -> Host:
    """Return this machine's description, whatever TREADLE_HOST_CPU says.

    A virtual machine may show another CPU's name, so the features are read from the processor and
    the name is that of a CPU that can have them; where it is not known here, it becomes "generic".
    """
    told = compiler_facts()
    triple, name = told.triple, told.cpu
    architecture = architecture_of(triple)
    if architecture is None:
        return Host(triple, name, frozenset())
    # Where LLVM cannot read the features, they are those of the CPU it names.
    flags = architecture.cpus.get(name, ()) if told.features is None else told.features
    cpu = architecture.cpu_with(name, flags) if name in architecture.cpus else "generic"
    known = architecture.closure(f for f in flags if f in architecture.features)
    if architecture.name == "aarch64":
        known |= architecture.closure(("neon",))
    return Host(triple, cpu, known, _machine(triple, cpu))


@cache
def _pretended(name: str) -> Host:
    """Return this machine as one with the CPU of that name: its features and its caches."""
    real = real_host()
    architecture = architecture_of(real.triple)
    known = {} if architecture is None else architecture.cpus
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
        raise SettingError(
            f"TREADLE_HOST_CPU is {name!r}, which is no CPU of this machine's architecture",
            hint=f"did you mean {' or '.join(near)}?" if near else "name one as -mcpu takes it",
        )
    missing = sorted(known[name] - real.features)
    if missing:
        raise SettingError(
            f"TREADLE_HOST_CPU is {name!r}, whose code this machine cannot run: it lacks "
            + ", ".join(missing),
            hint="name a lesser CPU, or compile for that one with -mcpu",
        )
    return Host(real.triple, name, known[name], machine_of(real.triple, name))


def why_not_here(target: Target) -> TreadleError | None:
    """Return why this machine cannot run code for a target; None where it can."""
    if target.family == "gpu":
        return _why_no_device(target)
    here = host()
    if architecture_of(target.triple) is not architecture_of(here.triple):
        machine = here.triple.partition("-")[0]
        return TargetError(
            f"the code is made for {target.triple}, this machine is {machine}",
            hint="save it and load it on such a machine, or compile it for this one",
        )
    missing = sorted(set(target.required_features) - here.features)
    if not missing:
        return None
    return TargetError(
        f"the code is made for {target.cpu}, this machine ({here.cpu}) lacks {', '.join(missing)}",
        hint="save it and load it on such a machine, or compile it for this one",
    )


def why_not_measured(target: Target) -> TreadleError | None:
    """Return why forks of a process cannot time candidates for a target; None where they can.

    The driver of a GPU does not outlive a fork.
    """
    if target.family == "gpu":
        return TargetError(
            f"kernels for {target.kind} are tuned as those of a model, on this machine's device",
            hint=f"treadle tune MODEL --target {target.kind}, or treadle.tune_model",
        )
    return why_not_here(target)


def _why_no_device(target: Target) -> TreadleError | None:
    try:
        facts = facts_of(target.kind)
    except DeviceError as error:
        return error
    if target.kind != "cuda" or facts.architecture == target.cpu:
        return None
    return TargetError(
        f"the code is made for {target.cpu}, cuda(0) ({facts.name}) is {facts.architecture}",
        hint='load it on such a machine, or compile it for this one: target "cuda"',
    )


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


def _machine(triple: str, cpu: str) -> Machine:
    """Return the CPU's row with the sizes of caches that the system tells."""
    told, row = cache_bytes(), machine_of(triple, cpu)
    first, middle, last = row.caches
    part = told.get(2, middle.bytes) // middle.shared_by
    return row.with_sizes(CacheSizes(told.get(1, first.bytes), part, told.get(3, last.bytes)))


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
