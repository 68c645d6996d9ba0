# SPDX-License-Identifier: Apache-2.0
"""Loops that an intrinsic does, and what is said of loops that it cannot do."""

from __future__ import annotations

import numpy as np
import pytest

import treadle
from tests.loop_eval import run
from tests.targets import AVX512
from tests.te.round_trip import again
from treadle import te
from treadle.expr.nodes import Expr
from treadle.loop.nodes import PrimFunc
from treadle.target.backend import backend_of
from treadle.te.operations import IterVar, Tensor
from treadle.te.schedule import Schedule

VPDPBUSD = "x86.vpdpbusd"


class Product:
    """int32 sums of uint8 data [m, k] by int8 weights [k / 4, n, 4], with the loops of a kernel."""

    def __init__(
        self, k: int = 24, types: tuple[str, str] = ("uint8", "int8"), by: int = 4
    ) -> None:
        self.a = te.placeholder((3, k), types[0], "A")
        self.b = te.placeholder((-(-k // 4), 32, 4), types[1], "B")
        self.k = te.reduce_axis((0, k), "k")
        self.c = self.compute()
        self.s: Schedule = te.create_schedule(self.c)
        stage = self.s[self.c]
        m, n = self.c.op.axis  # type: ignore[union-attr]
        self.outer, self.step = stage.split(self.k, factor=by)
        n_outer, self.lane = stage.split(n, factor=16)
        stage.reorder(m, n_outer, self.outer, self.lane, self.step)

    def compute(self) -> Tensor:
        made = te.compute((3, 32), lambda m, n: te.sum(self.body(m, n), axis=self.k), name="C")
        assert isinstance(made, Tensor)
        return made

    def body(self, m: IterVar, n: IterVar) -> Expr:
        weight = self.b[self.k // 4, n, self.k % 4]
        return self.a[m, self.k].astype("int32") * weight.astype("int32")

    def lowered(self) -> PrimFunc:
        return treadle.lower(self.s, [self.a, self.b, self.c])


class Swapped(Product):
    def body(self, m: IterVar, n: IterVar) -> Expr:
        weight = self.b[self.k // 4, n, self.k % 4]
        return weight.astype("int32") * self.a[m, self.k].astype("int32")


class Squares(Product):
    def body(self, m: IterVar, n: IterVar) -> Expr:
        weight = self.b[self.k // 4, n, self.k % 4]
        return self.a[m, self.k].astype("int32") + weight.astype("int32")


class Greatest(Product):
    def compute(self) -> Tensor:
        made = te.compute((3, 32), lambda m, n: te.max(self.body(m, n), axis=self.k), name="C")
        assert isinstance(made, Tensor)
        return made


def check(p: Product) -> None:
    """Compare the loops, and all that lowering makes of them, with NumPy."""
    chance = np.random.default_rng(0)
    shape = [int(d.value) for d in p.b.shape]  # type: ignore[attr-defined]
    a = chance.integers(0, 256, (3, shape[0] * 4)).astype("uint8")[:, : p.k.extent.value]  # type: ignore[attr-defined]
    b = chance.integers(-128, 128, shape).astype("int8")
    flat = b.transpose(0, 2, 1).reshape(-1, 32)[: a.shape[1]]
    wanted = a.astype("int64") @ flat
    func = p.lowered()
    for made in (func, backend_of(AVX512).lowering(AVX512).run(func)):
        out = np.zeros((3, 32), "int32")
        run(made, [a.copy(), b.copy(), out])
        np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("kind", [Product, Swapped])
def test_an_intrinsic_takes_the_place_of_a_step(kind: type[Product]) -> None:
    p = kind()
    p.s[p.c].vectorize(p.lane)
    p.s[p.c].tensorize(p.step, VPDPBUSD)
    text = str(p.lowered())
    assert "x86.vpdpbusd(C[m, ((n.outer * 16) + n.inner_1)], A[m, (k.outer * 4)], " in text
    assert "B[k.outer, ((n.outer * 16) + n.inner_1), 3])" in text
    assert "k.inner" not in text
    check(p)


def test_a_tensorized_data_axis_is_the_lanes() -> None:
    p, q = Product(), Product()
    p.s[p.c].tensorize(p.lane, VPDPBUSD)
    q.s[q.c].vectorize(q.lane)
    q.s[q.c].tensorize(q.step, VPDPBUSD)
    assert str(p.lowered()) == str(q.lowered())


def test_a_short_end_stays_loops() -> None:
    p = Product(k=22)
    p.s[p.c].tensorize(p.step, VPDPBUSD)
    text = str(p.lowered())
    assert text.count("x86.vpdpbusd") == 1
    assert "for k.inner in range(2)" in text
    check(p)


def test_several_loops_are_one_step() -> None:
    p = Product()
    stage = p.s[p.c]
    halves, each = stage.split(p.step, factor=2)
    stage.reorder(p.lane, halves, each)
    stage.tensorize(halves, VPDPBUSD)
    assert "x86.vpdpbusd" in str(p.lowered())
    check(p)


def test_a_record_without_accumulator_is_added() -> None:
    p = Product(types=("int16", "int16"), by=2)
    p.s[p.c].tensorize(p.step, "x86.pmaddwd")
    text = str(p.lowered())
    assert "= (C[m, ((n.outer * 16) + n.inner_1)] + x86.pmaddwd(A[" in text


def test_the_step_is_data() -> None:
    p = Product()
    p.s[p.c].tensorize(p.step, VPDPBUSD)
    assert p.s.as_python().endswith('s[C].tensorize(k_inner, "x86.vpdpbusd")')
    for made in again(p.s):
        assert made.steps == p.s.steps


def refusal(p: Product) -> str:
    with pytest.raises(treadle.ScheduleError) as caught:
        p.lowered()
    return str(caught.value)


def test_another_number_of_iterations() -> None:
    p = Product(by=8)
    p.s[p.c].tensorize(p.step, VPDPBUSD)
    assert refusal(p) == (
        "tensorize by x86.vpdpbusd: it takes 4 iterations at once, k.inner have 8"
        "\n  at    stage C"
        "\n  hint  split the reduction by 4 and tensorize the inner part"
    )


def test_operands_of_other_types() -> None:
    p = Product(types=("int8", "int8"))
    p.s[p.c].tensorize(p.step, VPDPBUSD)
    assert refusal(p) == (
        "tensorize by x86.vpdpbusd: expected sum((int32(a[k]) * int32(b[k])), [k: 4]) of "
        "a: uint8[4], b: int8[4]; here stands sum((int32(A[m, k]) * int32(B[(k // 4), n, "
        "(k % 4)])), [k: 24]) of A: int8, B: int8"
        "\n  at    stage C"
        "\n  hint  write the stage as the intrinsic means it, types and casts included"
    )


@pytest.mark.parametrize("kind", [Squares, Greatest])
def test_another_body(kind: type[Product]) -> None:
    p = kind()
    p.s[p.c].tensorize(p.step, VPDPBUSD)
    found = refusal(p)
    assert "expected sum((int32(a[k]) * int32(b[k])), [k: 4])" in found
    assert ("here stands max(" if kind is Greatest else "(int32(A[m, k]) + int32(B[") in found


def test_loops_of_data_inside() -> None:
    p = Product()
    p.s[p.c].reorder(p.step, p.lane)
    p.s[p.c].tensorize(p.step, VPDPBUSD)
    assert refusal(p) == (
        "tensorize by x86.vpdpbusd: what k.inner holds is k.inner, n.inner: an intrinsic does the "
        "innermost reduction loops of a stage"
        "\n  at    stage C"
        "\n  hint  reorder the loops: the reduction loops of one step last"
    )


def test_a_guarded_split() -> None:
    p = Product(k=22)
    stage = p.s[p.c]
    again, inner = stage.split(p.outer, factor=4, tail="guard")
    stage.reorder(again, p.lane, inner, p.step)
    stage.tensorize(inner, VPDPBUSD)
    assert "k.outer.inner, k.inner run under a guard" in refusal(p)


def test_an_unknown_intrinsic() -> None:
    p = Product()
    with pytest.raises(treadle.ScheduleError, match="there is no intrinsic named vpdpbusd"):
        p.s[p.c].tensorize(p.step, "vpdpbusd")


def test_a_tensorized_loop_is_not_split_again() -> None:
    p = Product()
    p.s[p.c].tensorize(p.step, VPDPBUSD)
    with pytest.raises(treadle.ScheduleError, match=r"k\.inner is tensorized already"):
        p.s[p.c].split(p.step, factor=2)
