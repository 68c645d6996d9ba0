# SPDX-License-Identifier: Apache-2.0
"""Target strings: what they mean, how they print, and what is said about wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.errors import TargetError
from treadle.target import host as host_module
from treadle.target.base import Target
from treadle.target.host import Host, cache_bytes, usable_cores
from treadle.target.llvm import asm_text
from treadle.target.parse import parse_target

ARM = "-mtriple=aarch64-linux-gnu"
X86 = "-mtriple=x86_64-linux-gnu"
HERE = host_module.host().triple
RISCV = "-mtriple=riscv64-linux-gnu"


@pytest.mark.parametrize(
    ("text", "bits", "registers"),
    [
        (f"llvm {X86}", 128, 16),
        (f"llvm {X86} -mcpu=nehalem", 128, 16),
        (f"llvm {X86} -mcpu=sandybridge", 256, 16),
        (f"llvm {X86} -mcpu=haswell", 256, 16),
        (f"llvm {X86} -mcpu=skylake-avx512", 512, 32),
        (f"llvm {X86} -mcpu=znver5", 512, 32),
        (f"llvm {X86} -mcpu=skylake-avx512 -mattr=-avx512f", 256, 16),
        (f"llvm {X86} -mattr=+avx2,+fma", 256, 16),
        (f"llvm {ARM}", 128, 32),
        (f"llvm {ARM} -mcpu=neoverse-v1", 128, 32),
        ("llvm -mtriple=riscv64-linux-gnu -mcpu=sifive-x280", 512, 32),
    ],
)
def test_vector_numbers(text: str, bits: int, registers: int) -> None:
    target = parse_target(text)
    assert (target.vector_bits, target.vector_registers) == (bits, registers)


def test_plain_llvm_is_this_machine() -> None:
    target = parse_target("llvm")
    assert target == parse_target("llvm -mcpu=native")
    assert target.triple == host_module.host().triple
    assert target.cores == usable_cores()


@pytest.mark.parametrize(
    "text",
    [
        "llvm",
        "llvm -num-cores=7",
        f"llvm {X86} -mcpu=skylake-avx512 -mattr=-avx512f",
        f"llvm {X86} -mcpu=haswell -mattr=+avxvnni,+prefer-256-bit",
        f"llvm {ARM} -mcpu=cortex-a72 -mattr=+fullfp16,+dotprod",
        f"llvm {ARM} -mattr=+v8.2a",
        f"llvm {RISCV}",
        f"llvm {RISCV} -mcpu=sifive-x280 -mattr=-c",
        f"llvm {ARM} -mcpu=apple-m1",
        f"llvm {X86} -mcpu=znver3 -caches=32K,1M,12345",
        f"llvm {X86} -mcpu=znver3 -caches=32K,512K,32M",
        "llvm -caches=48K,2M,1G",
        "llvm -mcpu=native -mattr=-avx512f" if HERE.startswith("x86") else "llvm -mattr=-dotprod",
    ],
)
def test_a_target_prints_as_text_that_reads_back(text: str) -> None:
    target = parse_target(text)
    assert parse_target(str(target)) == target


@pytest.mark.parametrize(
    ("triple", "cpu", "bits"),
    [
        ("armv7-linux-gnueabihf", "cortex-a9", 128),
        ("armv7l-linux-gnueabihf", "generic", 64),
        ("thumbv6m-none-eabi", "cortex-m0plus", 64),
        ("thumbv8m.main-none-eabihf", "cortex-m33", 64),
        ("arm-none-eabi", "cortex-m7", 64),
        ("riscv32-unknown-elf", "sifive-e31", 64),
        ("aarch64-none-elf", "cortex-a53", 128),
        ("riscv64-unknown-elf", "generic-rv64", 64),
    ],
)
def test_machines_that_load_nothing_are_targets_of_c(triple: str, cpu: str, bits: int) -> None:
    text = f"c -mtriple={triple} -mcpu={cpu}"
    target = parse_target(text)
    assert target.is_source_only
    assert (target.vector_bits, target.cores) == (bits, 1)
    assert parse_target(str(target)) == target
    assert not parse_target(f"c {ARM}").is_source_only


def test_dashes_values_and_v08_words() -> None:
    plain = parse_target(f"llvm {X86} -mcpu=haswell -num-cores=2")
    assert parse_target(f"llvm --mcpu=haswell {X86} --num-cores=2") == plain
    assert parse_target(f"llvm -mcpu haswell -num-cores 2 {X86}") == plain
    words = "-keys=cpu -device=arm_cpu -model=unknown -libs=cblas --system-lib=0"
    assert parse_target(f"llvm {words} {X86} -mcpu=haswell -num-cores=2") == plain


def test_features_come_with_what_they_need_and_go_with_what_needs_them() -> None:
    target = parse_target(f"llvm {X86} -mattr=+avx512vnni")
    assert {"avx512f", "avx2", "fma", "f16c", "sse4.2"} <= set(target.features)
    less = parse_target(f"llvm {X86} -mcpu=haswell -mattr=-avx")
    assert not {"avx", "avx2", "fma", "f16c"} & set(less.features)
    assert "-avx2" in less.feature_string()


def test_version_names_stand_for_features() -> None:
    target = parse_target(f"llvm {ARM} -mattr=+v8.4a")
    assert {"dotprod", "lse", "rdm"} <= set(target.features)
    assert not [f for f in target.features if f.startswith("v8")]


def test_required_features_leave_tuning_out() -> None:
    target = parse_target(f"llvm {X86} -mcpu=haswell -mattr=+prefer-128-bit")
    assert "prefer-128-bit" in target.features
    assert "prefer-128-bit" not in target.required_features
    assert "avx2" in target.required_features


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("", "the target is empty", 'write "llvm"'),
        ("rocm", "not built yet", '"cuda" or "opencl"'),
        ("vulkan -device=mali", "not built yet", '"llvm"'),
        ("lvm", "'lvm' is not a kind of target", "did you mean llvm?"),
        ("llvm -mcp=haswell", "unknown option '-mcp=haswell'", "did you mean -mcpu?"),
        ("llvm -system-lib", "asks for kernels that are linked into a program", "leave it out"),
        ("llvm --link-params=1", "asks for weights inside the machine code", "leave it out"),
        ("llvm haswell", "unknown option 'haswell'", "-mcpu"),
        ("llvm -mcpu", "option -mcpu of target 'llvm -mcpu' has no value", "-mcpu=…"),
        ("llvm -mcpu=a -mcpu=b", "option -mcpu stands twice", ""),
        (f"llvm {X86} -mcpu=haswel", "'haswel' is not a CPU", "did you mean haswell?"),
        (f"llvm {ARM} -mcpu=haswell", "'haswell' is not a CPU of architecture aarch64", ""),
        (f"llvm {ARM} -mcpu=native", "another machine's triple", "name the CPU"),
        (f"llvm {X86} -mcpu=i486", "'i486' is not a CPU of architecture x86", "k8"),
        (f"llvm {X86} -mattr=-sse2", "lacks sse2", "another CPU"),
        (f"llvm {RISCV} -mcpu=sifive-s21", "lacks d, which Linux needs", "add d to -mattr"),
        (f"llvm {X86} -caches=32K,1M", "is not the sizes of three levels", "-caches=32K,1M,32M"),
        (f"llvm {X86} -caches=32K,1M,0", "is not the sizes of three levels", "-caches=32K,1M,32M"),
        (f"llvm {X86} -caches=32K,1M,big", "is not the sizes", "-caches=32K,1M,32M"),
        (f"llvm {X86} -mattr=+avx3", "'avx3' is not a feature", "did you mean avx"),
        (f"llvm {X86} -mattr=avx2", "feature 'avx2' of target", "write +avx2 or -avx2"),
        ("llvm -mtriple=aarch46-linux-gnu", "unknown architecture 'aarch46'", "aarch64"),
        ("llvm -mtriple=armv7-linux-gnueabihf", "loads no machine code of", "c -mtriple=armv7"),
        ("llvm -mtriple=aarch64-none-elf", "loads no machine code of aarch64-none-elf", "write C"),
        ("c -mtriple=thumbv7m-none-eabi -mcpu=cortex-m44", "is not a CPU", "cortex-m4"),
        ("llvm -mtriple=i686-linux-gnu", "64-bit machine code only", "x86_64"),
        ("llvm -num-cores=0", "is not a number of cores", "from 1 to 4096"),
        ("llvm -num-cores=two", "is not a number of cores", "from 1 to 4096"),
        ("llvm '-mcpu=x", "cannot be read", ""),
    ],
)  # fmt: skip
def test_wrong_targets_are_explained(text: str, problem: str, hint: str) -> None:
    if host_module.host().triple.startswith("aarch64"):
        text = text.replace("aarch64-linux-gnu -mcpu=native", "x86_64-linux-gnu -mcpu=native")
    with pytest.raises(TargetError) as caught:
        parse_target(text)
    assert problem in str(caught.value)
    assert hint in caught.value.hint


def test_negative_features_reach_llvm() -> None:
    target = parse_target(f"llvm {X86} -mcpu=haswell -mattr=-fma")
    asm = asm_text(
        f'target triple = "{target.triple}"\n'
        "define float @f(float %a, float %b, float %c) "
        f'"target-cpu"="{target.cpu}" "target-features"="{target.feature_string()}" {{\n'
        "  %r = call contract float @llvm.fmuladd.f32(float %a, float %b, float %c)\n"
        "  ret float %r\n}\ndeclare float @llvm.fmuladd.f32(float, float, float)\n"
    )
    assert "vfmadd" not in asm
    assert "vmulss" in asm


def test_a_virtual_machine_that_hides_features_is_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = Host("x86_64-unknown-linux-gnu", "skylake", frozenset({"sse", "sse2", "cmov"}))
    monkeypatch.setattr("treadle.target.parse.host", lambda: seen)
    target = parse_target("llvm")
    assert target.cpu == "skylake"
    assert target.vector_bits == 128
    assert "-avx2" in target.feature_string()


def test_cache_sizes_are_read_by_level(tmp_path: Path) -> None:
    rows = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2048K")]
    rows += [("3", "Unified", "30M"), ("4", "Unified", "broken")]
    for i, (level, kind, size) in enumerate(rows):
        entry = tmp_path / f"index{i}"
        entry.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (entry / name).write_text(text + "\n")
    assert cache_bytes(tmp_path) == {1: 48 << 10, 2: 2 << 20, 3: 30 << 20}
    assert cache_bytes(tmp_path / "nothing") == {}


@pytest.mark.parametrize(
    ("text", "cores"),
    [("max 100000", None), ("150000 100000", 2), ("50000 100000", 1), ("", None), ("1 0", None)],
)
def test_a_cgroup_quota_counts_as_cores(tmp_path: Path, text: str, cores: int | None) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert host_module._cgroup_cores(tmp_path / "cpu.max") == cores


def test_the_target_record_counts_lanes() -> None:
    target = Target("llvm", vector_bits=512)
    assert target.lanes(32) == 16
    assert target.lanes(8) == 64
    assert Target("llvm", vector_bits=128).lanes(256) == 1


def test_the_cpus_that_are_offered_fit_the_triple() -> None:
    with pytest.raises(TargetError) as error:
        parse_target(f"llvm {X86} -mcpu=zzz")
    offered = error.value.hint.removeprefix("CPUs are ").split(", ")
    assert {"haswell", "znver5", "x86-64-v4"} <= set(offered)
    assert not {"i386", "pentium4", "…"} & set(offered)
