# SPDX-License-Identifier: Apache-2.0
"""Equal expressions are one object for as long as somebody holds it, in all threads."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

from treadle.expr.interning import TABLE
from treadle.expr.nodes import Const, Expr, Var, call, cast, load, ramp, select
from treadle.te.tensor import placeholder


def test_equal_structure_is_one_object() -> None:
    x, y = Var("x"), Var("y")
    source = placeholder((8, 8), name="a")
    for make in (
        lambda: x + y * 2,
        lambda: select(x < y, x, y),
        lambda: call("exp", cast(x, "float32")),
        lambda: load(source, (x, y)),
        lambda: ramp(x, 3, 4),
    ):
        assert make() is make()
    assert x + y is not y + x
    assert Var("x") + y is not x + y  # a variable is equal only to itself


def test_constants_differ_by_type_and_sign_of_zero() -> None:
    assert Const.of(1) is Const.of(1)
    assert Const.of(1) is not Const.of(1, "int32")
    assert Const.of(0.0, "float32") is not Const.of(-0.0, "float32")
    assert Const.of(float("nan"), "float32") is Const.of(float("nan"), "float32")
    assert Const.of(True, "bool") is not Const.of(1)


def test_the_table_forgets_what_nobody_holds() -> None:
    gc.collect()
    before = len(TABLE)
    made: list[Expr] = [Var("v") + k for k in range(100)]
    assert len(TABLE) >= before + 100
    made.clear()
    gc.collect()
    assert len(TABLE) <= before + 101  # constants may stay with others that hold them


def test_threads_make_the_same_objects() -> None:
    x = Var("x")

    def build(_: int) -> list[Expr]:
        return [(x + k) * (x - k) for k in range(200)]

    with ThreadPoolExecutor(8) as pool:
        first, *others = pool.map(build, range(16))
    assert all(a is b for other in others for a, b in zip(first, other, strict=True))
