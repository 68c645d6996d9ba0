# SPDX-License-Identifier: Apache-2.0
"""This machine as it is, and as TREADLE_HOST_CPU makes it look."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import treadle
from tests.targets import NEON
from treadle import te
from treadle.errors import SettingError, TargetError
from treadle.runtime.module import Module
from treadle.settings import use
from treadle.target.cpus import architecture_of
from treadle.target.host import Host, host, real_host, why_not_here
from treadle.target.machine_rows import machine_of
from treadle.target.parse import parse_target

BASELINE = {"x86_64": "x86-64", "aarch64": "generic", "riscv64": "generic-rv64"}[
    real_host().triple.partition("-")[0]
]


@pytest.fixture(autouse=True)
def _as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests themselves say what the machine looks like."""
    monkeypatch.delenv("TREADLE_HOST_CPU", raising=False)


def test_a_lesser_cpu_is_compiled_for_with_its_features_and_caches() -> None:
    architecture = architecture_of(real_host().triple)
    assert architecture is not None
    with use(host_cpu=BASELINE):
        target = parse_target("llvm -num-cores=2")
        assert host() == Host(
            real_host().triple,
            BASELINE,
            architecture.cpus[BASELINE],
            machine_of(real_host().triple, BASELINE),
        )
        assert target == parse_target(f"llvm -mcpu={BASELINE} -num-cores=2")
        assert target == parse_target("llvm -mcpu=native -num-cores=2")
    assert host() == real_host()


def test_a_named_cpu_is_compiled_for_whatever_the_host_looks_like() -> None:
    text = "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4"
    plain = parse_target(text)
    with use(host_cpu=BASELINE):
        assert parse_target(text) == plain


def doubled(target: str) -> Module:
    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: a[i] * 2.0, name="b")
    return treadle.build(te.create_schedule(b.op), [a, b], target)


def test_kernels_for_a_lesser_cpu_run() -> None:
    with use(host_cpu=BASELINE):
        x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
        doubled("llvm")(x, out)
    np.testing.assert_array_equal(out, 2 * x)


@pytest.mark.skipif(BASELINE != "x86-64", reason="names CPUs of x86")
def test_a_greater_cpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    less = Host("x86_64-linux-gnu", "nehalem", frozenset({"sse", "sse2", "cmov"}))
    monkeypatch.setattr("treadle.target.host.real_host", lambda: less)
    with use(host_cpu="znver3"), pytest.raises(SettingError) as caught:
        parse_target("llvm")
    assert "this machine cannot run: it lacks avx, avx2," in str(caught.value)
    assert "-mcpu" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "hint"), [("haswel", "did you mean haswell?"), ("z80", "as -mcpu takes it")]
)
@pytest.mark.skipif(BASELINE != "x86-64", reason="names CPUs of x86")
def test_an_unknown_cpu_is_refused(name: str, hint: str) -> None:
    with use(host_cpu=name), pytest.raises(SettingError) as caught:
        host()
    assert f"TREADLE_HOST_CPU is {name!r}" in str(caught.value)
    assert hint in caught.value.hint


def test_doctor_says_what_the_host_looks_like() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "treadle", "doctor"],
        env={**os.environ, "TREADLE_HOST_CPU": BASELINE},
        capture_output=True,
        text=True,
        check=False,
    )
    said = " ".join(done.stdout.split())
    assert f"looks like {BASELINE} (TREADLE_HOST_CPU)" in said
    assert f"caches {machine_of(real_host().triple, BASELINE).sizes} " in said
    assert "targets x86_64 aarch64 riscv64" in said


def test_code_for_another_machine_has_texts_and_cannot_be_called() -> None:
    elsewhere = str(NEON) if BASELINE == "x86-64" else "llvm -mtriple=x86_64-linux-gnu"
    kernel = doubled(elsewhere)
    assert kernel.asm()
    x = np.zeros(64, np.float32)
    with pytest.raises(TargetError, match=r"made for \w+-linux-gnu, this machine is \w+"):
        kernel(x, x.copy())


@pytest.mark.skipif(BASELINE != "x86-64", reason="names features of x86")
def test_code_for_a_greater_cpu_is_not_run() -> None:
    with use(host_cpu="x86-64"):
        error = why_not_here(parse_target("llvm -mcpu=haswell"))
        assert error is not None
        assert "made for haswell, this machine (x86-64) lacks avx, avx2," in str(error)
        assert why_not_here(parse_target("llvm")) is None
        kernel = doubled("llvm -mcpu=haswell")
        x = np.zeros(64, np.float32)
        with pytest.raises(TargetError, match="lacks avx"):
            kernel(x, x.copy())
