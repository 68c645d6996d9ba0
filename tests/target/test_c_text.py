# SPDX-License-Identifier: Apache-2.0
"""Loops and shared expressions printed as C."""

from __future__ import annotations

import shutil

import pytest

from tests.target.kernel import flat, native_c
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Var
from treadle.loop.nodes import Allocate, For, If, PrimFunc, Store, seq
from treadle.target.c_text import emit

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def test_deep_and_shared_expressions_stay_short() -> None:
    """A value used twice is computed once: the text grows with the nodes, not with the paths."""
    x, out = flat("x", "float32", 1), flat("out", "float32", 1)
    value = ex.load(x, [0])
    for _ in range(2000):
        value = value * value + 1.0
    text = emit(PrimFunc("k", (x, out), (), Store(out, (Const.of(0),), value)), native_c())
    assert len(text) < 300_000


def test_text_of_a_guarded_loop() -> None:
    x, out, i = flat("x", "float32", 8), flat("y", "float32", 8), Var("i")
    load = ex.load(x, [i])
    body = For(i, Const.of(8), "serial", If(i < 5, Store(out, (i,), load * load), None))
    text = emit(PrimFunc("square", (x, out), (), body), native_c())
    assert text[text.index("int32_t square") :] == (
        "int32_t square(const td_env* env, void* const* buffers, const int64_t* dims) {\n"
        "  const float* restrict x = buffers[0];\n"
        "  float* restrict y = buffers[1];\n"
        "  (void)env, (void)dims;\n"
        "  for (int64_t i = 0; i < 8; ++i) {\n"
        "    if (i < 5) {\n"
        "      const float t_2 = x[i];\n"
        "      y[i] = t_2 * t_2;\n"
        "    }\n"
        "  }\n"
        "  return 0;\n"
        "}\n"
    )


def test_a_buffer_that_two_parts_allocate_is_declared_once() -> None:
    """Two declarations would have two names, and users who ask for warnings one for the first."""
    x, held, i = flat("x", "float32", 8), flat("held", "float32", 8, "workspace"), Var("i")
    parts = [
        Allocate(held, For(i, Const.of(8), "serial", Store(held, (i,), ex.load(x, [i])))),
        Allocate(held, For(i, Const.of(8), "serial", Store(x, (i,), ex.load(held, [i])))),
    ]
    func = PrimFunc("twice", (x,), (), seq(*parts), attrs={"workspace_offsets": {"held": 0}})
    assert emit(func, native_c()).count("float* held") == 1
