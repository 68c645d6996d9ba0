# SPDX-License-Identifier: Apache-2.0
"""Schedules for GPUs: how many launches, and the results of all their threads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.gpus import flat_result, interpreted, kernel_of, variables
from treadle.build.kernel import Kernel
from treadle.build.launches import launches_of
from treadle.expr.nodes import Var as Size
from treadle.graph.nodes import Call, Node, Var
from treadle.ops.conv import conv
from treadle.ops.elementwise import add, relu
from treadle.ops.lowered.staged import conv_staged, matmul_staged
from treadle.ops.matmul import matmul
from treadle.ops.norm import softmax
from treadle.ops.reduce import mean, sum_
from treadle.ops.reshaping import transpose
from treadle.runtime.extents import Extent
from treadle.te.knobs import Config


def arrays_of(params: Sequence[Var], random: np.random.Generator) -> list[np.ndarray]:
    """Return small whole numbers, so that sums are exact."""
    shapes = (p.type.static_shape for p in params)  # type: ignore[union-attr]  # tensors
    return [random.integers(-3, 4, s).astype(np.float32) for s in shapes]


def check(
    body: Node,
    params: Sequence[Var],
    expected: np.ndarray,
    arrays: Sequence[np.ndarray],
    launches: int = 1,
    **config: object,
) -> Kernel:
    """Run a kernel with all its threads, and count its launches."""
    kernel = kernel_of(body, params, Config.of(config))
    found = interpreted(kernel.loops, arrays, expected)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert len(launches_of(kernel.lowered)) == launches
    return kernel


def blocks_of(kernel: Kernel, number: int = 0) -> tuple[object, tuple[int, int, int]]:
    launch = launches_of(kernel.lowered)[number]
    return launch.grid, launch.block


@pytest.mark.parametrize("vectors", [False, True])
def test_elements_have_a_thread_each_or_four(vectors: bool, random: np.random.Generator) -> None:
    params = variables((3, 8, 4), (8, 1))
    x, y = arrays_of(params, random)
    made = add(*params)
    kernel = check(made, params, x + y, [x, y], **{"add.vectors": vectors})
    assert blocks_of(kernel) == ((1, 1, 1), (24 if vectors else 96, 1, 1))


def test_moves_are_inlined_into_one_launch(random: np.random.Generator) -> None:
    params = variables((5, 6))
    (x,) = arrays_of(params, random)
    body = relu(transpose(*params, perm=(1, 0)))
    check(body, params, np.maximum(x.T, 0), [x])


def softmax_of(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize("columns", [5, 40, 150])
def test_a_row_is_a_block(columns: int, random: np.random.Generator) -> None:
    params = variables((3, columns))
    (x,) = arrays_of(params, random)
    kernel = check(softmax(*params, axis=1), params, softmax_of(x), [x], row_threads=32)
    assert blocks_of(kernel) == ((3, 1, 1), (32, 1, 1))


def test_sums_of_rows_are_a_block_each(random: np.random.Generator) -> None:
    params = variables((4, 200))
    (x,) = arrays_of(params, random)
    kernel = check(sum_(*params, axes=(1,)), params, x.sum(1), [x])
    assert blocks_of(kernel)[0] == (4, 1, 1)


def test_means_of_images_are_one_launch(random: np.random.Generator) -> None:
    params = variables((2, 6, 5, 5))
    (x,) = arrays_of(params, random)
    check(mean(*params, axes=(2, 3)), params, x.mean((2, 3)), [x])


def test_short_sums_are_a_thread_each(random: np.random.Generator) -> None:
    params = variables((1, 2, 6, 6), (3, 2, 3, 3), (3, 1, 1))
    x, w, b = arrays_of(params, random)
    made = conv(params[0], params[1], pads_before=(1, 1), pads_after=(1, 1))
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    expected = np.maximum(np.einsum("nchwij,ocij->nohw", views, w) + b, 0)
    kernel = check(relu(add(made, params[2])), params, expected, [x, w, b])
    assert "pad" not in kernel.source()  # its test stands in the sum


def test_few_long_sums_have_several_threads_each(random: np.random.Generator) -> None:
    params = variables((2, 150), (150, 40), (40,))
    a, b, c = arrays_of(params, random)
    made = add(matmul(params[0], params[1]), params[2])
    kernel = check(made, params, a @ b + c, [a, b, c], threads_each=2)
    assert blocks_of(kernel) == ((4, 1, 1), (32, 2, 1))


SIZES = [(16, 32, 16), (17, 33, 8), (20, 44, 32), (35, 40, 9)]


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_a_product_in_tiles(m: int, n: int, k: int, random: np.random.Generator) -> None:
    params = variables((m, k), (k, n), (n,))
    a, b, c = arrays_of(params, random)
    body = relu(add(matmul_staged(*params[:2]), params[2]))
    tile = {"tile": (16, 32, 4, 4), "parts": 1, "fetch_ahead": True}
    kernel = check(body, params, np.maximum(a @ b + c, 0), [a, b, c], **tile)
    assert blocks_of(kernel) == ((-(-n // 32), -(-m // 16), 1), (32, 1, 1))


FRAGMENTS = {"parts": 1, "steps": 8, "fetch_ahead": True, "fragments": True}
"""Factors are read a step ahead."""


@pytest.mark.parametrize(("m", "n", "k"), [(16, 32, 16), (20, 44, 32), (35, 40, 9)])
def test_a_product_that_reads_factors_ahead(
    m: int, n: int, k: int, random: np.random.Generator
) -> None:
    params = variables((m, k), (k, n), (n,))
    a, b, c = arrays_of(params, random)
    body = relu(add(matmul_staged(*params[:2]), params[2]))
    tile = {"tile": (16, 32, 4, 4), **FRAGMENTS}
    kernel = check(body, params, np.maximum(a @ b + c, 0), [a, b, c], **tile)
    found = flat_result(kernel.lowered, [a, b, c], m * n).reshape(m, n)
    assert np.array_equal(found, np.maximum(a @ b + c, 0))
    assert "fragment" in kernel.source()


def large_product() -> tuple[Kernel, list[Var]]:
    """A product of one tile, with as many sums a thread as there are registers for."""
    params = variables((128, 16), (16, 128))
    config = Config.of({"tile": (128, 128, 16, 8), "parts": 1})
    return kernel_of(matmul_staged(*params), params, config), params


def test_threads_with_many_sums_read_factors_ahead() -> None:
    kernel, _ = large_product()
    assert blocks_of(kernel) == ((1, 1, 1), (128, 1, 1))
    assert {k.name: k.value for k in kernel.knobs}.items() >= FRAGMENTS.items()
    text = kernel.source()
    assert "*(float4*)(left_fragment + " in text
    assert "*(float4*)(right_fragment + " in text


@pytest.mark.slow
def test_many_sums_a_thread_are_right(random: np.random.Generator) -> None:
    kernel, params = large_product()
    a, b = arrays_of(params, random)
    found = flat_result(kernel.lowered, [a, b], 128 * 128).reshape(128, 128)
    assert np.array_equal(found, a @ b)


def test_a_product_of_several_matrices(random: np.random.Generator) -> None:
    params = variables((2, 1, 16, 8), (3, 8, 36))
    a, b = arrays_of(params, random)
    kernel = check(matmul_staged(*params), params, a @ b, [a, b], parts=1)
    assert blocks_of(kernel)[0] == (2, 1, 6)


@pytest.mark.parametrize("has_tail", [False, True])
def test_steps_in_parts_are_two_launches(has_tail: bool, random: np.random.Generator) -> None:
    params = variables((16, 32), (32, 32))
    a, b = arrays_of(params, random)
    made = matmul_staged(*params)
    expected = np.maximum(a @ b, 0) if has_tail else a @ b
    body = relu(made) if has_tail else made
    kernel = check(body, params, expected, [a, b], launches=2, parts=2)
    assert blocks_of(kernel) == ((1, 1, 2), (32, 1, 1))


def test_a_result_smaller_than_any_tile_has_threads_for_elements(
    random: np.random.Generator,
) -> None:
    params = variables((8, 16), (16, 8))
    a, b = arrays_of(params, random)
    check(matmul_staged(*params), params, a @ b, [a, b])


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, object]]] = {
    "padded": ((1, 2, 6, 7), (17, 2, 3, 3), {"pads_before": (1, 1), "pads_after": (1, 1)}),
    "images that tiles cross": ((3, 8, 5, 5), (16, 8, 1, 1), {}),
    "strided": ((1, 8, 12, 13), (16, 8, 1, 1), {"strides": (2, 2)}),
    "in groups": ((1, 4, 7, 7), (32, 2, 2, 2), {"groups": 2}),
    "signals": ((2, 3, 20), (16, 3, 3), {"dilations": (2,)}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_in_tiles(name: str, random: np.random.Generator) -> None:
    shape, kernel, attrs = CONVOLUTIONS[name]
    params = variables(shape, kernel, (kernel[0], 1))
    x, w, b = arrays_of(params, random)
    made = conv_staged(params[0], params[1], **attrs)
    assert isinstance(made, Call)
    expected = conv_staged.reference(made.attrs, x, w) + b
    tile = {"tile": (16, 32, 4, 4)}
    check(add(made, params[2]), params, expected, [x, w, b], **tile, parts=1)
    kernel = check(add(made, params[2]), params, expected, [x, w, b], **tile, **FRAGMENTS)
    found = flat_result(kernel.lowered, [x, w, b], expected.size).reshape(expected.shape)
    assert np.array_equal(found, expected)


N = Size("n")


@pytest.mark.parametrize("rows", [1, 16, 37])
def test_rows_of_a_product_that_a_run_decides(rows: int, random: np.random.Generator) -> None:
    params = variables((N, 16), (16, 40))
    a, b = (random.integers(-3, 4, s).astype(np.float32) for s in ((rows, 16), (16, 40)))
    kernel = kernel_of(relu(matmul_staged(*params)), params, Config.of({"tile": (16, 32, 4, 4)}))
    expected = np.maximum(a @ b, 0)
    assert np.array_equal(interpreted(kernel.loops, [a, b], expected, [rows]), expected)
    (launch,) = launches_of(kernel.lowered)
    assert [Extent("", g).of([rows]) for g in launch.grid] == [2, -(-rows // 16), 1]


@pytest.mark.parametrize("images", [1, 3])
def test_images_that_a_run_counts(images: int, random: np.random.Generator) -> None:
    params = variables((N, 2, 5, 5), (16, 2, 3, 3))
    shapes = ((images, 2, 5, 5), (16, 2, 3, 3))
    x, w = (random.integers(-3, 4, s).astype(np.float32) for s in shapes)
    made = conv_staged(*params, pads_before=(1, 1), pads_after=(1, 1))
    expected = conv_staged.reference(made.attrs, x, w)
    kernel = kernel_of(made, params, Config.of({"tile": (16, 32, 4, 4)}))
    assert np.array_equal(interpreted(kernel.loops, [x, w], expected, [images]), expected)


def test_what_is_fetched_ahead_has_registers() -> None:
    params = variables((4096, 4096), (4096, 4096))

    def is_ahead(**config: object) -> object:
        kernel = kernel_of(matmul_staged(*params), params, Config.of(config))
        return next(k.value for k in kernel.knobs if k.name == "fetch_ahead")

    assert is_ahead()
    assert is_ahead(tile=(128, 128, 8, 8))
    assert is_ahead(tile=(128, 64, 8, 8), steps=8)
    assert not is_ahead(tile=(128, 64, 8, 8), steps=16)
    assert is_ahead(tile=(64, 64, 8, 8), steps=8)
    assert not is_ahead(tile=(64, 64, 8, 8), steps=16)


def test_every_thread_reads_shared_memory_side_by_side() -> None:
    params = variables((64, 64), (64, 64))
    text = kernel_of(matmul_staged(*params), params).source()
    assert "__shared__ __align__(16) float left[" in text
    assert "*(float4*)(right + " in text
    assert "*(float4*)(total + " in text
