# SPDX-License-Identifier: Apache-2.0
"""The CPU of another machine by its /proc/cpuinfo, under the name that -mcpu takes.

The numbers are those of the makers' manuals, as the sources of LLVM and Linux list them: of Arm the
fields `implementer` and `part` of MIDR_EL1, of x86 family and model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from treadle.target.cpus import architecture_of

_ARM = {
    0x41: "d02 cortex-a34, d04 cortex-a35, d03 cortex-a53, d05 cortex-a55, d8f cortex-a320, "
    "d46 cortex-a510, d80 cortex-a520, d88 cortex-a520ae, d06 cortex-a65, d43 cortex-a65ae, "
    "d07 cortex-a57, d08 cortex-a72, d09 cortex-a73, d0a cortex-a75, d0b cortex-a76, "
    "d0e cortex-a76ae, d0d cortex-a77, d41 cortex-a78, d42 cortex-a78ae, d4b cortex-a78c, "
    "d47 cortex-a710, d4d cortex-a715, d81 cortex-a720, d89 cortex-a720ae, d87 cortex-a725, "
    "d44 cortex-x1, d4c cortex-x1c, d48 cortex-x2, d4e cortex-x3, d82 cortex-x4, d85 cortex-x925, "
    "d4a neoverse-e1, d0c neoverse-n1, d49 neoverse-n2, d8e neoverse-n3, d40 neoverse-v1, "
    "d4f neoverse-v2, d84 neoverse-v3, d83 neoverse-v3ae, d15 cortex-r82, d8a c1-nano, d8b c1-pro, "
    "d90 c1-premium, d8c c1-ultra",
    0x42: "516 thunderx2t99",
    0x43: "0a1 thunderxt88, 0a2 thunderxt81, 0a3 thunderxt83, 0af thunderx2t99, 0b8 thunderx3t110",
    0x46: "001 a64fx, 003 fujitsu-monaka",
    0x48: "d01 tsv110",
    0x4E: "004 carmel, 010 olympus",
    0x51: "201 kryo, 205 kryo, 211 kryo, 800 cortex-a73, 801 cortex-a73, 802 cortex-a75, "
    "803 cortex-a75, 804 cortex-a76, 805 cortex-a76, c00 falkor, c01 saphira, 001 oryon-1",
    0x53: "002 exynos-m3, 003 exynos-m4, 004 exynos-m5",
    0x61: "022 apple-m1, 023 apple-m1, 024 apple-m1, 025 apple-m1, 028 apple-m1, 029 apple-m1, "
    "032 apple-m2, 033 apple-m2, 034 apple-m2, 035 apple-m2, 038 apple-m2, 039 apple-m2",
    0x6D: "d49 neoverse-n2",
    0xC0: "ac3 ampere1, ac4 ampere1a, ac5 ampere1b, ac7 ampere1c",
}  # fmt: skip
"""By implementer; of one maker the smaller CPU first."""

_INTEL = """
1a 1e 1f 2e: nehalem | 25 2c 2f: westmere | 2a 2d: sandybridge | 3a 3e: ivybridge |
3c 3f 45 46: haswell | 3d 47 4f 56: broadwell | 4e 5e 8e 9e a5 a6: skylake | 66: cannonlake |
6a 6c: icelake-server | 7d 7e 9d: icelake-client | 8c 8d: tigerlake | a7: rocketlake |
97 9a: alderlake | b7 ba bf: raptorlake | aa ac: meteorlake | c5: arrowlake | c6: arrowlake-s |
bd: lunarlake | cc: pantherlake | 8f: sapphirerapids | cf: emeraldrapids | ad: graniterapids |
ae: graniterapids-d | 37 4a 4d 5a 5d: silvermont | 5c 5f: goldmont | 7a: goldmont-plus |
86 8a 96 9c: tremont | be: gracemont | af: sierraforest | b6: grandridge | dd: clearwaterforest
"""
_RISCV = {
    "sifive,u54": "sifive-u54", "sifive,u54-mc": "sifive-u54", "sifive,u74": "sifive-u74",
    "sifive,u74-mc": "sifive-u74", "sifive,p550": "sifive-p550", "spacemit,x60": "spacemit-x60",
}  # fmt: skip

Fields = dict[str, str]


def cpu_of(cpuinfo: str, triple: str) -> str | None:
    """Return the name of the largest kind of core; None where it is not known.

    `cpuinfo` is the text of /proc/cpuinfo on a machine of the `triple`'s architecture.
    """
    architecture = architecture_of(triple)
    finders = {"aarch64": _arm_names, "x86": _x86_names, "riscv": _riscv_names}
    if architecture is None or architecture.name not in finders:
        return None
    names = [n for n in finders[architecture.name](_processors(cpuinfo)) if n in architecture.cpus]
    return names[-1] if names else None


def target_of(stated: str, cpuinfo: str, features: Iterable[str]) -> str:
    """Return the target of a board: the one its server states, with the name of the CPU.

    `features` are those that the board has. What the CPU of that name has beyond them, as in a
    virtual machine, is left out. Example: "llvm -mtriple=aarch64-linux-gnu -mattr=+neon,+crc"
    becomes "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76 -mattr=+crc,-dotprod".
    """
    triple = re.search(r"-mtriple=(\S+)", stated)
    if triple is None or (cpu := cpu_of(cpuinfo, triple[1])) is None:
        return stated
    architecture = architecture_of(triple[1])
    assert architecture is not None  # it has a CPU of that name
    features = architecture.closure(features)
    cpu = architecture.cpu_with(cpu, features)
    missing = sorted(architecture.cpus[cpu] - features)
    changes = re.search(r" -mattr=(\S+)", stated)
    more = [] if changes is None else changes[1].split(",")
    more = [change for change in more if change[1:] not in architecture.cpus[cpu]]
    attributes = ",".join([*more, *(f"-{name}" for name in missing)])
    plain = stated if changes is None else stated.replace(changes[0], "")
    named = f"{triple[0]} -mcpu={cpu}" + (f" -mattr={attributes}" if attributes else "")
    return plain.replace(triple[0], named)


def _processors(cpuinfo: str) -> list[Fields]:
    """Return the fields of each processor, by name."""
    found: list[Fields] = []
    for block in re.split(r"\n\s*\n", cpuinfo):
        pairs = (line.partition(":") for line in block.splitlines() if ":" in line)
        found.append({name.strip(): value.strip() for name, _, value in pairs})
    return found


def _number(text: str, base: int) -> int:
    try:
        return int(text, base)
    except ValueError:
        return -1


def _arm_names(processors: list[Fields]) -> list[str]:
    """Return the names of the kinds of cores, those of one maker from small to large."""
    found: dict[tuple[int, int], str] = {}
    for fields in processors:
        maker = _number(fields.get("CPU implementer", ""), 16)
        part = _number(fields.get("CPU part", ""), 16)
        rows = [row.split() for row in _ARM.get(maker, "").split(",") if row]
        for place, (number, name) in enumerate(rows):
            if int(number, 16) == part:
                found[maker, place] = name
    return [found[key] for key in sorted(found)]


def _x86_names(processors: list[Fields]) -> list[str]:
    fields = processors[0]
    vendor, flags = fields.get("vendor_id"), set(fields.get("flags", "").split())
    family = _number(fields.get("cpu family", ""), 10)
    model = _number(fields.get("model", ""), 10)
    if vendor == "GenuineIntel" and family == 6:
        return [_intel_name(model, flags)]
    return [_amd_name(family, model)] if vendor in ("AuthenticAMD", "HygonGenuine") else []


def _intel_name(model: int, flags: set[str]) -> str:
    if model == 0x55:
        later = "cooperlake" if "avx512_bf16" in flags else "cascadelake"
        return later if "avx512_vnni" in flags else "skylake-avx512"
    for row in _INTEL.split("|"):
        models, _, name = row.partition(":")
        if any(int(number, 16) == model for number in models.split()):
            return name.strip()
    return ""


def _amd_name(family: int, model: int) -> str:
    if family == 0x17:
        return "znver1" if model < 0x30 else "znver2"
    if family == 0x18:  # Hygon's Dhyana
        return "znver1"
    if family == 0x19:
        is_later = 0x10 <= model < 0x20 or 0x60 <= model < 0x80 or 0xA0 <= model < 0xB0
        return "znver4" if is_later else "znver3"
    return {0x16: "btver2", 0x1A: "znver5"}.get(family, "")


def _riscv_names(processors: list[Fields]) -> list[str]:
    return [_RISCV[f["uarch"]] for f in processors if f.get("uarch") in _RISCV]
