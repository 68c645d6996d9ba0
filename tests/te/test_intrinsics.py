# SPDX-License-Identifier: Apache-2.0
"""Records of intrinsics: what they say, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import treadle
from treadle import te
from treadle.errors import ScheduleError, UsageError
from treadle.expr import nodes as ex
from treadle.expr.nodes import Var
from treadle.te.intrinsics import (
    Form,
    Intrinsic,
    Operand,
    find_intrinsic,
    intrinsics,
    register_intrinsic,
)
from treadle.te.operations import Tensor

pytestmark = pytest.mark.tiny

assert treadle  # registers the library


def dot(a: Tensor, b: Tensor) -> object:
    k = te.reduce_axis((0, 2), "k")
    return te.compute((), lambda: te.sum(a[k] * b[k], axis=k))


PAIR = (Operand("a", "int32", 2), Operand("b", "int32", 2))


def args_of(record: Intrinsic) -> list[Var]:
    return [Var(f"x{k}", t) for k, t in enumerate(record.argument_types)]


def test_the_meaning_takes_the_arguments() -> None:
    plain = Intrinsic("t.dot", PAIR, dot)
    assert str(plain.expand(args_of(plain))) == "((x0 * x2) + (x1 * x3))"
    added = Intrinsic("t.dot", PAIR, dot, accumulates=True)
    assert str(added.expand(args_of(added))) == "((x0 + (x1 * x3)) + (x2 * x4))"


def test_a_table_is_read_by_its_index() -> None:
    record = find_intrinsic("x86.vpermd.8")
    args = [*range(10, 18), Var("index", "uint32")]
    text = str(record.expand([ex.convert(a, "uint32") for a in args]))
    assert text.startswith("select((int64((index & uint32(7))) == 0), uint32(10), select(")
    assert text.endswith("uint32(16), uint32(17))))))))")


def test_applied_intrinsics_print_and_are_one_node() -> None:
    record = Intrinsic("t.dot", PAIR, dot)
    args = args_of(record)
    e = ex.apply(record, args)
    assert str(e) == "t.dot(x0, x1, x2, x3)"
    assert e is ex.apply(record, args)
    assert e.with_children(e.children) is e
    with pytest.raises(treadle.TypeMismatch, match=r"t\.dot takes 4 arguments, not 3"):
        ex.apply(record, args[:3])
    with pytest.raises(treadle.TypeMismatch, match=r"t\.dot takes int32, not the float32 y"):
        ex.apply(record, [*args[:3], Var("y", "float32")])


def test_a_scalar_meets_every_lane() -> None:
    record = Intrinsic("t.dot", PAIR, dot)
    a, b, c, d = args_of(record)
    made = ex.apply(record, [ex.broadcast(a, 4), b, c, d])
    assert made.lanes == 4
    assert str(made).count("broadcast") == 4


def test_forms_follow_from_features() -> None:
    record = find_intrinsic("x86.vpdpbusd")
    assert list(record.forms_for(["avx512vnni", "avx512vl"])) == [4, 8, 16]
    assert list(record.forms_for(["avxvnni"])) == [4, 8]
    assert not record.forms_for(["avx2"])


def test_c_text_takes_the_arguments_by_name() -> None:
    operands = (Operand("a", "int32", 2), Operand("b", "int32"))

    def first(a: Tensor, b: Tensor) -> object:
        return te.compute((), lambda: a[0] + b[0])

    record = Intrinsic("t.first", operands, first, c="f({a[0]}, {a[1]}, {b})", c_features=("x",))
    assert record.c_text(["p", "q", "r"]) == "f(p, q, r)"
    assert not record.has_text(())
    assert record.has_text(("x", "y"))


def not_a_compute(a: Tensor, b: Tensor) -> object:
    return a[0] + b[0]


def a_vector(a: Tensor, b: Tensor) -> object:
    return te.compute((2,), lambda i: a[i] + b[i])


def no_sum(a: Tensor, b: Tensor) -> object:
    return te.compute((), lambda: a[0] + b[0])


@pytest.mark.parametrize(
    ("meaning", "accumulates", "problem"),
    [
        (not_a_compute, False, r"is not one te\.compute of shape \(\)"),
        (a_vector, False, r"is not one te\.compute of shape \(\)"),
        (no_sum, True, "accumulates, but is no reduction"),
    ],
)
def test_unclear_meanings_are_refused(
    meaning: Callable[..., object], accumulates: bool, problem: str
) -> None:
    with pytest.raises(UsageError, match=f"the meaning of intrinsic t.bad {problem}"):
        Intrinsic("t.bad", PAIR, meaning, accumulates=accumulates)


def test_forms_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="'foo' does not declare an LLVM intrinsic"):
        Intrinsic("t.bad", PAIR, dot, (Form(4, (), "foo"),))
    one = Form(4, (), "<4 x i32> @llvm.foo(<8 x i32>)")
    with pytest.raises(UsageError, match=r"@llvm\.foo has 1 parameters, intrinsic t\.bad 2"):
        Intrinsic("t.bad", PAIR, dot, (one,))


def test_names_are_found_or_guessed() -> None:
    assert find_intrinsic("x86.pmaddwd").name == "x86.pmaddwd"
    assert [r.name for r in intrinsics()] == sorted(r.name for r in intrinsics())
    with pytest.raises(ScheduleError) as caught:
        find_intrinsic("x86.vpdpbus")
    assert "do you mean x86.vpdpbusd?" in str(caught.value)
    with pytest.raises(UsageError, match=r"there is an intrinsic named x86\.pmaddwd already"):
        register_intrinsic(Intrinsic("x86.pmaddwd", PAIR, dot))
