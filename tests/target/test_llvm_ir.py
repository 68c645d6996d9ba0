# SPDX-License-Identifier: Apache-2.0
"""Kernels as a whole: loops, symbolic sizes, parallel bodies, local and workspace memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.target.kernel import flat, pool_of, run
from tests.targets import AVX2, MACHINES, NEON, SSE
from treadle.errors import InternalError, TargetError
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Var
from treadle.loop.nodes import Allocate, Buffer, For, PrimFunc, Store, seq
from treadle.target.base import Target
from treadle.target.llvm import asm_text, spill_count
from treadle.target.llvm_ir import emit
from treadle.target.names import symbol

ZERO = Const.of(0)


def row_sums(kind: str = "parallel") -> PrimFunc:
    """out[i] = sum over j of x[i, j] for m rows of n: sizes known only when called."""
    m, n = Var("m"), Var("n")
    x, out = Buffer("x", "float32", (m * n,)), Buffer("out", "float32", (m,))
    total = flat("total", "float32", 1, "local")
    i, j = Var("i"), Var("j")
    add = Store(total, (ZERO,), ex.load(total, [ZERO]) + ex.load(x, [i * n + j]))
    body = Allocate(
        total,
        seq(
            Store(total, (ZERO,), Const.of(0.0, "float32")),
            For(j, n, "serial", add),
            Store(out, (i,), ex.load(total, [ZERO])),
        ),
    )
    return PrimFunc("row_sums", (x, out), (m, n), For(i, m, kind, body))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["serial", "parallel"])
@pytest.mark.parametrize(("m", "n"), [(5, 7), (1, 1), (3, 0), (0, 4)])
def test_symbolic_sizes(kind: str, m: int, n: int) -> None:
    x = np.arange(max(1, m * n), dtype=np.float32)
    out = np.full(max(1, m), -1, np.float32)
    run(row_sums(kind), [x, out], [m, n])
    np.testing.assert_array_equal(out[:m], x[: m * n].reshape(m, n).sum(1))
    assert (out[m:] == -1).all()


def test_a_parallel_loop_goes_to_the_pool_in_chunks() -> None:
    calls: list[tuple[int, int]] = []
    x, out = np.arange(70, dtype=np.float32), np.zeros(10, np.float32)
    run(row_sums(), [x, out], [10, 7], env=pool_of(3, calls))
    assert calls == [(0, 4), (4, 8), (8, 10)]
    np.testing.assert_array_equal(out, x.reshape(10, 7).sum(1))


@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_the_entry_and_each_part_flush_subnormals_for_themselves(kind: str) -> None:
    func = row_sums(kind)
    assert "mxcsr" not in emit(func, AVX2)
    func.attrs["flushes_subnormals"] = True
    text = emit(func, AVX2)
    parts = 2 if kind == "parallel" else 1
    assert text.count("call void @llvm.x86.sse.stmxcsr") == parts
    assert text.count("call void @llvm.x86.sse.ldmxcsr") == 2 * parts
    assert "mxcsr" not in emit(func, NEON)
    x, out = np.arange(70, dtype=np.float32), np.zeros(10, np.float32)
    run(func, [x, out], [10, 7], env=pool_of(3, []))
    np.testing.assert_array_equal(out, x.reshape(10, 7).sum(1))


def test_a_failing_chunk_ends_the_kernel_with_its_code() -> None:
    first, second = flat("first", "float32", 4), flat("second", "float32", 4)
    i = Var("i")
    one = Const.of(1.0, "float32")
    body = seq(
        For(i, Const.of(4), "parallel", Store(first, (i,), one)),
        For(i, Const.of(4), "parallel", Store(second, (i,), one)),
    )
    a, b = np.zeros(4, np.float32), np.zeros(4, np.float32)
    with pytest.raises(InternalError, match="the kernel returns code 7"):
        run(PrimFunc("k", (first, second), (), body), [a, b], env=pool_of(2, [], 1))
    assert a.sum() == 4
    assert b.sum() == 0


def test_parallel_bodies_see_outer_variables_and_local_buffers() -> None:
    out = flat("out", "float32", 24)
    factors = flat("factors", "float32", 4, "local")
    step, i, j = Var("step"), Var("i"), Var("j")
    inner = For(
        j,
        Const.of(4),
        "parallel",  # inside a parallel loop: runs serially
        Store(out, (step * 12 + i * 4 + j,), ex.load(factors, [j]) * ex.cast(i + 1, "float32")),
    )
    fill = For(j, Const.of(4), "serial", Store(factors, (j,), ex.cast(j + step * 10, "float32")))
    body = Allocate(
        factors,
        For(step, Const.of(2), "serial", seq(fill, For(i, Const.of(3), "parallel", inner))),
    )
    func = PrimFunc("k", (out,), (), body)
    want = np.array(
        [[[(j + s * 10) * (i + 1) for j in range(4)] for i in range(3)] for s in range(2)]
    )
    for env in (None, pool_of(2, [])):
        result = np.zeros(24, np.float32)
        run(func, [result], env=env)
        np.testing.assert_array_equal(result, want.ravel())


def two_stages(offsets: dict[str, int], bytes_: int) -> PrimFunc:
    """out = (x + 1) * 2 with the sum in workspace memory, and a second buffer beside it."""
    x, out = flat("x", "float32", 32), flat("out", "float32", 32)
    a, b = flat("a", "float32", 32, "workspace"), flat("b", "float32", 32, "workspace")
    i = Var("i")
    n = Const.of(32)
    body = Allocate(
        a,
        seq(
            For(i, n, "parallel", Store(a, (i,), ex.load(x, [i]) + 1.0)),
            Allocate(
                b,
                seq(
                    For(i, n, "parallel", Store(b, (i,), ex.load(a, [i]) * 2.0)),
                    For(i, n, "parallel", Store(out, (i,), ex.load(b, [i]))),
                ),
            ),
        ),
    )
    return PrimFunc(
        "k", (x, out), (), body, workspace_bytes=bytes_, attrs={"workspace_offsets": offsets}
    )


def test_workspace_buffers_lie_at_their_offsets() -> None:
    func = two_stages({"a": 0, "b": 128}, 256)
    for env in (None, pool_of(2, [])):
        x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
        run(func, [x, out], env=env, workspace=256)
        np.testing.assert_array_equal(out, (x + 1) * 2)


def test_workspace_buffers_that_share_memory_may_alias() -> None:
    apart = emit(two_stages({"a": 0, "b": 128}, 256), AVX2)
    shared = emit(two_stages({"a": 0, "b": 64}, 256), AVX2)
    assert apart.count("noalias") > shared.count("noalias")


def test_a_workspace_buffer_without_a_place_is_refused() -> None:
    with pytest.raises(InternalError, match="workspace buffer b has no offset"):
        emit(two_stages({"a": 0}, 256), AVX2)
    with pytest.raises(InternalError, match="not aligned to 64 bytes"):
        emit(two_stages({"a": 0, "b": 132}, 512), AVX2)


def test_the_same_kernel_gives_the_same_text() -> None:
    assert emit(row_sums(), AVX2) == emit(row_sums(), AVX2)


@pytest.mark.parametrize(("target", "alignment"), [(AVX2, 4), (NEON, 4), (SSE, 64)])
def test_buffers_are_noalias_and_inputs_readonly(target: Target, alignment: int) -> None:
    text = emit(row_sums(), target)
    assert f"ptr noalias readonly align {alignment} %b0" in text
    assert "ptr noalias align 64 %b1" in text


def test_names_become_c_identifiers() -> None:
    assert symbol("conv/1.relu:0") == "conv_1_relu_0"
    assert symbol("0_first") == "_0_first"


@pytest.mark.parametrize("kind", ["thread", "unrolled", "vectorized"])
def test_unlowered_loops_are_refused(kind: str) -> None:
    out = flat("out", "float32", 4)
    i = Var("i")
    thread = "threadIdx.x" if kind == "thread" else ""
    body = For(i, Const.of(4), kind, Store(out, (i,), Const.of(0.0, "float32")), thread)  # type: ignore[arg-type]
    error = TargetError if kind == "thread" else InternalError
    with pytest.raises(error, match="loop i is"):
        emit(PrimFunc("k", (out,), (), body), AVX2)


def test_a_huge_local_buffer_is_refused() -> None:
    out, local = flat("out", "float32", 4), flat("tile", "float32", 1 << 19, "local")
    body = Allocate(local, Store(out, (ZERO,), Const.of(0.0, "float32")))
    with pytest.raises(TargetError, match=r"tile: float32.* takes 2,097,152 bytes of the stack"):
        emit(PrimFunc("k", (out,), (), body), AVX2)


# -- what reaches the machine


def fill(value: float) -> PrimFunc:
    out, i = flat("out", "float32", 4096), Var("i")
    body = For(i, Const.of(4096), "serial", Store(out, (i,), Const.of(value, "float32")))
    return PrimFunc("k", (out,), (), body)


def tile(rows: int, vectors: int, lanes: int, steps: int = 1) -> PrimFunc:
    """A register tile of a matrix product: rows x (vectors * lanes), reduced over 256.

    An iteration of its loop has some `steps` of the reduction.
    """
    depth, width = 256, vectors * lanes
    a, b = flat("a", "float32", rows * depth), flat("b", "float32", depth * width)
    c, acc = flat("c", "float32", rows * width), flat("acc", "float32", rows * width, "local")
    k = Var("k")
    slots = [
        (r, v, ex.ramp(r * width + v * lanes, 1, lanes))
        for r in range(rows)
        for v in range(vectors)
    ]
    zero = ex.broadcast(Const.of(0.0, "float32"), lanes)
    update = [
        Store(
            acc,
            (at,),
            ex.call(
                "fma",
                ex.broadcast(ex.load(a, [k * steps + step + r * depth]), lanes),
                ex.load(b, [ex.ramp((k * steps + step) * width + v * lanes, 1, lanes)]),
                ex.load(acc, [at]),
            ),
        )
        for step in range(steps)
        for r, v, at in slots
    ]
    body = Allocate(
        acc,
        seq(
            *(Store(acc, (at,), zero) for _, _, at in slots),
            For(k, Const.of(depth // steps), "serial", seq(*update)),
            *(Store(c, (at,), ex.load(acc, [at])) for _, _, at in slots),
        ),
    )
    return PrimFunc("tile", (a, b, c), (), body)


@pytest.mark.parametrize("steps", [1, 4])
def test_the_tile_computes_a_product(steps: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(12, 256)), rng.normal(size=(256, 32))
    out = np.zeros(12 * 32, np.float32)
    run(tile(12, 2, 16, steps), [a.astype(np.float32), b.astype(np.float32), out])
    np.testing.assert_allclose(out.reshape(12, 32), a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("machine", "rows", "vectors", "ordered"),
    [("avx2", 4, 3, 3), ("avx2", 5, 2, 0), ("avx512", 4, 3, 0), ("avx512", 14, 2, 3)],
)
def test_steps_load_one_after_the_other_where_registers_are_few(
    machine: str, rows: int, vectors: int, ordered: int
) -> None:
    """LLVM would put loads of several steps together: 4 of them, beside the sums."""
    target = MACHINES[machine]
    text = emit(tile(rows, vectors, target.lanes(), steps=4), target)
    assert text.count("asm sideeffect") == ordered
    assert spill_count(asm_text(text)) == 0
