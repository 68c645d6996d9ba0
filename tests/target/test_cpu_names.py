# SPDX-License-Identifier: Apache-2.0
"""CPUs of other machines by what /proc/cpuinfo says."""

from __future__ import annotations

import pytest

from treadle.target import cpu_names
from treadle.target.cpu_names import cpu_of, target_of
from treadle.target.cpus import architecture_of
from treadle.target.parse import parse_target

pytestmark = pytest.mark.tiny


def arm(*cores: tuple[int, int]) -> str:
    rows = (f"processor\t: {n}\nCPU implementer\t: {maker:#x}\nCPU part\t: {part:#x}\n"
            for n, (maker, part) in enumerate(cores))  # fmt: skip
    return "\n".join(rows)


def x86(vendor: str, family: int, model: int, flags: str = "") -> str:
    return (f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\n"
            f"model\t\t: {model}\nmodel name\t: x\nflags\t\t: {flags}\n")  # fmt: skip


def test_every_name_is_known_to_targets() -> None:
    arms = [row.split()[1] for text in cpu_names._ARM.values() for row in text.split(",")]
    intels = [row.partition(":")[2].strip() for row in cpu_names._INTEL.split("|")]
    for triple, names in (("aarch64", arms), ("x86_64", intels),
                          ("riscv64", cpu_names._RISCV.values())):  # fmt: skip
        architecture = architecture_of(triple)
        assert architecture is not None
        assert set(names) <= set(architecture.cpus)


@pytest.mark.parametrize(
    ("cpuinfo", "triple", "name"),
    [
        (arm((0x41, 0xD03)), "aarch64-linux-gnu", "cortex-a53"),
        (arm((0x41, 0xD0B), (0x41, 0xD05), (0x41, 0xD05)), "aarch64-linux-gnu", "cortex-a76"),
        (arm((0x41, 0xD05), (0x41, 0xD0D), (0x41, 0xD44)), "aarch64-linux-gnu", "cortex-x1"),
        (arm((0x51, 0x804), (0x51, 0x803)), "aarch64-linux-gnu", "cortex-a76"),
        (arm((0x41, 0xFFF)), "aarch64-linux-gnu", None),
        (arm((0x99, 0xD03)), "aarch64-linux-gnu", None),
        ("", "aarch64-linux-gnu", None),
        ("", "x86_64-linux-gnu", None),
        ("CPU implementer : what\nCPU part : ever", "aarch64-linux-gnu", None),
        (x86("AuthenticAMD", 25, 0x61), "x86_64-linux-gnu", "znver4"),
        (x86("AuthenticAMD", 25, 0x21), "x86_64-linux-gnu", "znver3"),
        (x86("AuthenticAMD", 23, 0x71), "x86_64-linux-gnu", "znver2"),
        (x86("AuthenticAMD", 26, 0x44), "x86_64-linux-gnu", "znver5"),
        (x86("GenuineIntel", 6, 0x55, "avx512f"), "x86_64-linux-gnu", "skylake-avx512"),
        (x86("GenuineIntel", 6, 0x55, "avx512_vnni"), "x86_64-linux-gnu", "cascadelake"),
        (x86("GenuineIntel", 6, 0x9E), "x86_64-linux-gnu", "skylake"),
        (x86("GenuineIntel", 6, 0x01), "x86_64-linux-gnu", None),
        (x86("CentaurHauls", 6, 0x9E), "x86_64-linux-gnu", None),
        ("hart : 0\nuarch : sifive,u74-mc\n", "riscv64-linux-gnu", "sifive-u74"),
        (arm((0x41, 0xD03)), "mips-linux-gnu", None),
    ],
)
def test_names(cpuinfo: str, triple: str, name: str | None) -> None:
    assert cpu_of(cpuinfo, triple) == name


def test_a_target_has_the_name_and_what_the_machine_has() -> None:
    cores = arm((0x41, 0xD0B))
    stated = "llvm -mtriple=aarch64-linux-gnu -mattr=+neon,+crc,+lse,+i8mm -num-cores=4"
    text = target_of(stated, cores, ["neon", "crc", "lse", "rdm", "dotprod", "i8mm"])
    assert text == (
        "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76 -mattr=+crc,+i8mm,-fullfp16 -num-cores=4"
    )
    target = parse_target(text)
    assert {"dotprod", "i8mm", "lse"} <= set(target.features)
    assert "fullfp16" not in target.features


def test_a_target_of_an_unknown_cpu_stays_as_it_is_stated() -> None:
    stated = "llvm -mtriple=aarch64-linux-gnu -mattr=+neon"
    assert target_of(stated, arm((0x41, 0xFFF)), ["neon"]) == stated
    assert target_of("llvm", arm((0x41, 0xD0B)), ["neon"]) == "llvm"
    bare = "llvm -mtriple=aarch64-linux-gnu"
    assert target_of(bare, arm((0x41, 0xD03)), ["neon"]) == f"{bare} -mcpu=cortex-a53"


def test_a_board_with_more_than_its_cpu_has_is_named_by_what_it_has() -> None:
    shown = x86("GenuineIntel", 6, 167)
    architecture = architecture_of("x86_64-linux-gnu")
    assert architecture is not None
    features = architecture.cpus["sapphirerapids"] - {"gfni"}
    assert target_of("llvm -mtriple=x86_64-linux-gnu", shown, features) == (
        "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids -mattr=-gfni"
    )
