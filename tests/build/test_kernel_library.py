# SPDX-License-Identifier: Apache-2.0
"""Kernels built from te leave the process as a library and come back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import treadle
from tests.te.scripts import matrix_product
from treadle import te
from treadle.build.te_build import BuiltModule


def scaled() -> BuiltModule:
    n = te.var("n")
    a = te.placeholder((n, 4), name="A")
    r = te.reduce_axis((0, 4), "r")
    b = te.compute((n,), lambda i: te.sum(a[i, r], axis=r), name="B")
    c = te.compute((n * 2,), lambda i: b[i // 2] * 2.0, name="C")
    return treadle.build(te.create_schedule(c), [a, c], name="scaled")


@pytest.mark.parametrize("export", ["save", "export_library"])
def test_a_kernel_comes_back(export: str, tmp_path: Path) -> None:
    path = tmp_path / "scaled.so"
    getattr(scaled(), export)(path)
    assert [p.name for p in tmp_path.iterdir()] == ["scaled.so"]
    module = treadle.load_module(path)
    assert list(module) == ["scaled"]
    out = np.zeros(6, "float32")
    module(np.arange(12, dtype="float32").reshape(3, 4), out)
    assert out.tolist() == [12, 12, 44, 44, 76, 76]
    with pytest.raises(treadle.InputError, match=r"must be \(n \* 2\) = 6"):
        module(np.zeros((3, 4), "float32"), np.zeros(5, "float32"))


def test_several_kernels(tmp_path: Path) -> None:
    a, b, c = matrix_product(3, 4, 5)
    first = treadle.lower(te.create_schedule(c.op), [a, b, c], "product")
    d = te.compute((3, 4), lambda i, j: c[i, j] + 1.0, name="D")
    second = treadle.lower(te.create_schedule(d.op), [a, b, d], "product_and_one")
    path = tmp_path / "two.so"
    treadle.build([first, second]).save(path)
    module = treadle.load_module(path)
    out = np.zeros((3, 4), "float32")
    module["product_and_one"](np.ones((3, 5), "float32"), np.ones((5, 4), "float32"), out)
    assert (out == 6).all()


def test_a_name_that_is_no_shared_object() -> None:
    with pytest.raises(treadle.UsageError, match=r"lib\.tar is no name of a shared object"):
        scaled().export_library("lib.tar")


def test_what_is_no_library_of_kernels(tmp_path: Path) -> None:
    with pytest.raises(treadle.TreadleError, match="cannot read"):
        treadle.load_module(tmp_path / "missing.so")
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no code at all" * 10)
    with pytest.raises(treadle.ArtifactError, match="not a valid shared object"):
        treadle.load_module(broken)


def test_a_built_module_shows_its_kernels() -> None:
    shown = repr(scaled())
    assert shown.startswith("BuiltModule(scaled(A: float32[n, 4], C: float32[(n * 2)] out), llvm")
    assert len(shown) < 200


def test_another_host_is_refused() -> None:
    a = te.placeholder((4,), name="A")
    c = te.compute((4,), lambda i: a[i] * 2.0, name="C")
    schedule = te.create_schedule(c)
    for host in ("abacus", "llvm -mtriple=riscv64-linux-gnu"):
        with pytest.raises(treadle.TargetError):
            treadle.build(schedule, [a, c], "llvm", target_host=host)
