# SPDX-License-Identifier: Apache-2.0
"""Kernels as CUDA C and OpenCL C: golden texts, what the languages differ in, and compilers."""

from __future__ import annotations

import pytest

from tests.conftest import Golden
from tests.devices import has_nvrtc
from tests.gpus import CUDA, GPUS, OPENCL, variables
from tests.target.kernel import flat
from treadle.build.kernel import Kernel
from treadle.build.launches import launches_of
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr, Var
from treadle.graph.nodes import Function
from treadle.loop import nodes as lp
from treadle.loop.nodes import For, PrimFunc, Store
from treadle.ops.elementwise import add
from treadle.ops.lowered.staged import matmul_staged
from treadle.ops.norm import softmax
from treadle.target.backend import backend_of
from treadle.target.base import Target
from treadle.target.gpu_dialects import DIALECTS
from treadle.target.gpu_text import emit
from treadle.te.knobs import Config


def product() -> tuple[Function, dict[str, object]]:
    a, b = variables((33, 64), (64, 48))
    config: dict[str, object] = {"tile": (32, 32, 4, 4), "parts": 1, "steps": 16}
    config["fetch_ahead"] = True
    return Function((a, b), matmul_staged(a, b), "product"), config


def normalised() -> tuple[Function, dict[str, object]]:
    (x,) = variables((6, 300))
    return Function((x,), softmax(x, axis=1), "softmax"), {}


def shifted() -> tuple[Function, dict[str, object]]:
    x, y = variables((2, 64, 32, 32), (1, 64, 1, 1))
    return Function((x, y), add(x, y), "add"), {"add.vectors": True}


TEXTS = {"product": product, "softmax": normalised, "add": shifted}


def kernels_of(text: str) -> str:
    """Return the device functions of a source text, without what stands before them."""
    return text[text.rindex("\n\n/* ", 0, text.index(" blocks of ")) :].strip()


@pytest.mark.parametrize("target", [CUDA, OPENCL], ids=["cuda", "opencl"])
@pytest.mark.parametrize("name", TEXTS)
def test_text(name: str, target: Target, golden: Golden) -> None:
    function, config = TEXTS[name]()
    text = Kernel(function, target, Config.of(config)).source()
    golden.check(f"{name}.{backend_of(target).suffix}", kernels_of(text))


@pytest.mark.parametrize("target", GPUS.values(), ids=GPUS)
def test_text_begins_with_its_target_and_types(target: Target) -> None:
    function, _ = shifted()
    kernel = Kernel(function, target)
    text = kernel.source()
    assert text.startswith(f"/* {kernel.name}, for the target {target} */\n\n")
    assert DIALECTS[target.kind].prelude in text
    assert Kernel(function, target).source() == text


X = flat("x", "float32", 8)
NUMBERS = flat("i", "int32", 8)


def body_of(target: Target, param: lp.Buffer, made: lp.Buffer, value: Expr, t: Var) -> str:
    loop = For(t, Const.of(8), "thread", Store(made, (t,), value), "threadIdx.x")
    return emit(PrimFunc("k", (param, made), (), loop), target)


def test_functions_have_the_names_of_the_language() -> None:
    t = Var("t")
    x = ex.load(X, (t,))
    value = ex.call("sqrt", ex.call("fma", x, x, ex.call("abs", x)))
    cuda = body_of(CUDA, X, flat("y", "float32", 8), value, t)
    opencl = body_of(OPENCL, X, flat("y", "float32", 8), value, t)
    assert "sqrtf(fmaf(" in cuda
    assert "fabsf(" in cuda
    assert "sqrt(fma(" in opencl
    assert "fabs(" in opencl
    assert "__builtin" not in cuda + opencl


def test_integers_wrap_where_the_language_leaves_it_open() -> None:
    t = Var("t")
    value = ex.load(NUMBERS, (t,)) + ex.load(NUMBERS, (7 - t,))
    text = body_of(CUDA, NUMBERS, flat("y", "int32", 8), value, t)
    assert "y[t_2] = (int32_t)((uint32_t)i[t_2] + (uint32_t)i[7 - t_2]);" in text


def test_rounding_takes_an_instruction() -> None:
    t = Var("t")
    value = ex.call("round", ex.load(X, (t,)))
    assert "return rintf(a);" in body_of(CUDA, X, flat("y", "float32", 8), value, t)
    assert "return rint(a);" in body_of(OPENCL, X, flat("y", "float32", 8), value, t)


def test_words_of_the_languages_are_no_names() -> None:
    t = Var("kernel")
    held = flat("half", "float32", 8)
    text = body_of(OPENCL, X, held, ex.load(X, (t,)), t)
    assert "const int32_t kernel_2 = get_local_id(0);" in text
    assert "half_2[kernel_2] = x[kernel_2];" in text


def test_a_kernel_may_be_called_like_a_word() -> None:
    t, y = Var("t"), flat("y", "float32", 8)
    loop = For(t, Const.of(8), "thread", Store(y, (t,), ex.load(X, (t,))), "threadIdx.x")
    func = PrimFunc("double", (X, y), (), loop)
    assert [launch.symbol for launch in launches_of(func)] == ["double_"]
    assert " double_(" in emit(func, CUDA)


@pytest.mark.opencl
@pytest.mark.parametrize("target", GPUS.values(), ids=GPUS)
@pytest.mark.parametrize("name", TEXTS)
def test_compilers_take_the_text(name: str, target: Target) -> None:
    if target.kind == "cuda" and not has_nvrtc():
        pytest.skip("no compiler for cuda is installed")
    function, _ = TEXTS[name]()
    backend_of(target).check(Kernel(function, target).source(), target)
