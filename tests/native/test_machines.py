# SPDX-License-Identifier: Apache-2.0
"""The runtime on every architecture that models are compiled for: what it can check, what it runs.

Other architectures run in QEMU, where it and a cross compiler are installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import treadle
from treadle.errors import ArtifactError, TargetError
from treadle.target.cpus import architecture_names, architecture_of
from treadle.target.host import real_host

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "native"
MODEL = ROOT / "examples" / "digits" / "digits.onnx"
HERE = real_host().triple.partition("-")[0]
OTHERS = [name for name in ("aarch64", "riscv64", "x86_64") if name != HERE]


@pytest.mark.tiny
def test_the_runtime_can_ask_for_every_feature_that_code_may_need() -> None:
    """What it cannot ask for, it refuses: such a target would compile and never be loaded."""
    text = (NATIVE / "src" / "features.c").read_text(encoding="utf-8")
    tables = re.findall(r"feature FEATURES\[\] = \{\n(.*?)\n\};", text, re.DOTALL)
    known = [set(re.findall(r'\{"([^"]+)"', table)) for table in tables]
    assert len(known) == 3
    for name in architecture_names():
        architecture = architecture_of(name)
        assert architecture is not None
        assert any(set(architecture.features) <= names for names in known), name


def test_a_model_for_another_architecture_is_not_run() -> None:
    triple = f"{OTHERS[0]}-linux-gnu"
    executable = treadle.compile(MODEL, target=f"llvm -mtriple={triple}")
    with pytest.raises(TargetError, match=f"made for {triple}, this machine is {HERE}"):
        executable(np.zeros((1, 1, 8, 8), np.float32))


def has_tools(name: str) -> bool:
    return all(map(shutil.which, (f"qemu-{name}", f"{name}-linux-gnu-gcc")))


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_models_run_on_another_architecture(name: str, tmp_path: Path) -> None:
    if not has_tools(name):
        pytest.skip(f"qemu-{name} and {name}-linux-gnu-gcc are not installed")
    program, saved = tmp_path / "run_model", tmp_path / "model.tar"
    sources = [*map(str, (NATIVE / "src").glob("*.c")), str(NATIVE / "examples" / "run_model.c")]
    options = ["-std=c11", "-O1", "-pthread", "-D_DEFAULT_SOURCE", f"-I{NATIVE / 'include'}"]
    compiler = f"{name}-linux-gnu-gcc"
    subprocess.run([compiler, *options, *sources, "-o", str(program), "-ldl", "-lm"], check=True)
    target = f"llvm -mtriple={name}-linux-gnu"
    treadle.compile(MODEL, target=target).save(saved, linker=compiler)
    x = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)
    x.tofile(tmp_path / "x.bin")
    emulator = [f"qemu-{name}", "-L", f"/usr/{name}-linux-gnu", str(program)]
    files = [str(saved), str(tmp_path / "x.bin"), str(tmp_path / "y.bin")]
    subprocess.run([*emulator, *files], check=True, capture_output=True)
    want = np.asarray(treadle.compile(MODEL)(x)[0])
    got = np.fromfile(tmp_path / "y.bin", np.float32).reshape(want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    treadle.compile(MODEL).save(saved)
    done = subprocess.run([*emulator, *files], check=False, capture_output=True, text=True)
    assert f"made for {real_host().triple}, this machine is {name}" in done.stderr
    treadle.compile(MODEL, target=target).save(saved, linker=compiler)
    with pytest.raises(ArtifactError, match=f"made for {name}-linux-gnu, this machine is {HERE}"):
        treadle.load(saved)
