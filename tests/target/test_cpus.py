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
