# SPDX-License-Identifier: Apache-2.0
"""The tables of CPUs and features agree with LLVM and with this machine."""

from __future__ import annotations

import pytest

from treadle.target import host as host_module
from treadle.target.cpus import architecture_of, implied_features
from treadle.target.llvm import compile_ir


@pytest.mark.parametrize("triple", ["x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu"])
def test_llvm_knows_every_cpu_and_feature_of_the_tables(
    triple: str, capfd: pytest.CaptureFixture[str]
) -> None:
    architecture = architecture_of(triple)
    assert architecture is not None
    for cpu, on in architecture.cpus.items():
        if not on:
            continue  # "generic" of x86, which LLVM takes without features only
        names = ",".join(f"+{f}" for f in sorted(on))
        compile_ir(
            f'target triple = "{triple}"\n'
            f'define void @f() "target-cpu"="{cpu}" "target-features"="{names}" {{\n'
            "  ret void\n}\n"
        )
    assert "not a recognized" not in capfd.readouterr().err


def test_host_features_are_those_code_depends_on() -> None:
    found = host_module.host()
    architecture = architecture_of(found.triple)
    assert architecture is not None
    assert found.features <= set(architecture.features)
    assert found.cpu in architecture.cpus


def test_cpus_imply_features_by_name() -> None:
    assert "avx512vnni" in implied_features("x86_64-linux-gnu", "icelake-server")
    assert "avx512vnni" not in implied_features("x86_64-linux-gnu", "skylake-avx512")
    assert implied_features("x86_64-linux-gnu", "no-such-cpu") == frozenset()
    assert implied_features("sparc-linux", "v9") == frozenset()


@pytest.mark.parametrize(
    ("shown", "of", "named"),
    [
        ("rocketlake", "sapphirerapids", "sapphirerapids"),
        ("rocketlake", "graniterapids", "graniterapids"),
        ("sapphirerapids", "graniterapids", "graniterapids"),
        ("rocketlake", "rocketlake", "rocketlake"),
        ("haswell", "skylake-avx512", "skylake-avx512"),
        ("skylake-avx512", "icelake-server", "icelake-server"),
        ("znver3", "znver4", "znver4"),
        ("znver4", "znver5", "znver5"),
        ("znver4", "icelake-server", "znver4"),  # features are hidden
        ("x86-64-v3", "znver4", "x86-64-v3"),  # the name of no CPU
        ("generic", "znver4", "generic"),
    ],
)
def test_features_tell_the_cpu_that_a_virtual_machine_hides(
    shown: str, of: str, named: str
) -> None:
    architecture = architecture_of("x86_64-linux-gnu")
    assert architecture is not None
    features = {*architecture.told[of], "aes", "amx-tile"}  # some of which kernels do not need
    assert architecture.cpu_with(shown, features) == named


def test_an_arm_cpu_keeps_its_name() -> None:
    architecture = architecture_of("aarch64-linux-gnu")
    assert architecture is not None
    features = architecture.cpus["neoverse-v2"]
    assert architecture.cpu_with("cortex-a76", features) == "cortex-a76"
