# SPDX-License-Identifier: Apache-2.0
"""Compiled convolutions, pools, products and resizes of random sizes against their references."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, get_args

import numpy as np
import pytest

from treadle.build.compile import compile_model
from treadle.graph.nodes import Function, Module, Var
from treadle.graph.operator import Operator
from treadle.graph.types import TensorType
from treadle.ops.conv import conv, conv_transpose
from treadle.ops.image import resize
from treadle.ops.lowered.channel_blocks import pack_nchwc, unpack_nchwc
from treadle.ops.lowered.conv_nchwc import conv2d_nchwc, depthwise_conv2d_nchwc
from treadle.ops.lowered.dense_packed import dense_packed
from treadle.ops.matmul import matmul
from treadle.ops.pool import PoolAttrs, avg_pool, ceil_size, max_pool, pool_axes
from treadle.ops.resize_coordinates import CoordinateMode, NearestMode

Case = tuple[list[tuple[int, ...]], dict[str, Any]]


def several(r: Random, n: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(r.randint(low, high) for _ in range(n))


def window(r: Random, n: int) -> dict[str, Any]:
    return {
        "strides": several(r, n, 1, 3),
        "dilations": several(r, n, 1, 2),
        "pads_before": several(r, n, 0, 2),
        "pads_after": several(r, n, 0, 2),
    }


def a_conv(r: Random) -> Case:
    n, groups = r.choice([1, 2, 2, 3]), r.choice([1, 1, 2, 3])
    per_group, filters = r.randint(1, 5), groups * r.randint(1, 20)
    x = (r.randint(1, 2), groups * per_group, *several(r, n, 8, 20))
    w = (filters, per_group, *several(r, n, 1, 4))
    return [x, w], {**window(r, n), "groups": groups}


def a_conv_transpose(r: Random) -> Case:
    n, groups = r.choice([1, 2, 2, 3]), r.choice([1, 1, 2, 3])
    channels, per_group = groups * r.randint(1, 5), r.randint(1, 9)
    x = (r.randint(1, 2), channels, *several(r, n, 5, 12))
    w = (channels, per_group, *several(r, n, 1, 4))
    return [x, w], {**window(r, n), "groups": groups, "output_padding": several(r, n, 0, 1)}


def a_conv2d_nchwc(r: Random) -> Case:
    groups, ib, ob = r.choice([1, 1, 2]), r.choice([1, 3, 4, 16]), r.choice([4, 8, 16])
    per_group, filters = r.randint(1, 3), groups * r.randint(1, 3)
    x = (r.randint(1, 2), groups * per_group, *several(r, 2, 8, 20), ib)
    w = (filters, per_group, *several(r, 2, 1, 4), ib, ob)
    return [x, w], {**window(r, 2), "groups": groups}


def a_depthwise(r: Random) -> Case:
    chunks, block = r.randint(1, 3), r.choice([4, 8, 16])
    x = (r.randint(1, 2), chunks, *several(r, 2, 8, 20), block)
    return [x, (chunks, *several(r, 2, 1, 4), block)], window(r, 2)


def a_pool(r: Random) -> Case:
    n = r.choice([1, 2, 2, 3])
    kernel, spatial = several(r, n, 1, 4), several(r, n, 10, 20)
    attrs = window(r, n)
    for name in ("pads_before", "pads_after"):
        attrs[name] = tuple(min(p, k - 1) for p, k in zip(attrs[name], kernel, strict=True))
    attrs |= {"kernel": kernel, "layout": r.choice(["NC", "NCc"])}
    if r.random() < 0.5:
        axes = pool_axes(PoolAttrs(**attrs), spatial)
        attrs["out_sizes"] = tuple(ceil_size(a) for a in axes)
    block = (r.choice([4, 16]),) if attrs["layout"] == "NCc" else ()
    return [(r.randint(1, 2), r.randint(1, 3), *spatial, *block)], attrs


def an_avg_pool(r: Random) -> Case:
    shapes, attrs = a_pool(r)
    return shapes, {**attrs, "count_include_pad": r.random() < 0.5}


def a_matmul(r: Random) -> Case:
    m, k, n = (r.choice([1, 2, 3, 7, 16, 17, 32, 50]) for _ in range(3))
    batch = several(r, r.randint(0, 2), 1, 3)
    other = tuple(1 if r.random() < 0.4 else d for d in batch)[r.choice([0, len(batch)]) :]
    return [(*batch, m, k), (*other, k, n)], {}


def a_dense(r: Random) -> Case:
    count, width, k = r.randint(1, 3), r.choice([4, 8, 16]), r.randint(1, 40)
    x = (*several(r, r.randint(1, 2), 1, 20), k)
    return [x, (count, k, width)], {"n": count * width - r.randint(0, width - 1)}


def a_pack(r: Random) -> Case:
    return [several(r, r.choice([3, 4]), 1, 20)], {"block": r.choice([3, 4, 16])}


def an_unpack(r: Random) -> Case:
    block, chunks = r.choice([3, 4, 16]), r.randint(1, 3)
    shape = (r.randint(1, 2), chunks, *several(r, 2, 1, 9), block)
    return [shape], {"channels": chunks * block - r.randint(0, block - 1)}


def a_resize(r: Random) -> Case:
    n = r.choice([1, 2, 2, 3])
    modes = [m for m in get_args(CoordinateMode) if m != "tf_crop_and_resize"]
    attrs = {
        "sizes": (-1, -1, *several(r, n, 1, 20)),
        "mode": r.choice(["nearest", "linear", "cubic"]),
        "coordinate_transformation_mode": r.choice(modes),
        "nearest_mode": r.choice(get_args(NearestMode)),
        "antialias": r.random() < 0.3,
        "exclude_outside": r.random() < 0.3,
    }
    return [(r.randint(1, 2), r.randint(1, 3), *several(r, n, 1, 12))], attrs


FAMILIES: list[tuple[Operator[Any], Callable[[Random], Case]]] = [
    (conv, a_conv),
    (conv_transpose, a_conv_transpose),
    (conv2d_nchwc, a_conv2d_nchwc),
    (depthwise_conv2d_nchwc, a_depthwise),
    (max_pool, a_pool),
    (avg_pool, an_avg_pool),
    (matmul, a_matmul),
    (dense_packed, a_dense),
    (pack_nchwc, a_pack),
    (unpack_nchwc, an_unpack),
    (resize, a_resize),
]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("operator", "draw"), FAMILIES, ids=lambda v: getattr(v, "name", ""))
def test_compiled_means_the_reference(
    operator: Operator[Any], draw: Callable[[Random], Case], seed: int
) -> None:
    shapes, attrs = draw(Random(seed))
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    params = tuple(Var(f"x{k}", TensorType(s, "float32")) for k, s in enumerate(shapes))
    call = operator(*params, **attrs)
    executable = compile_model(Module(Function(params, call), ("y",)), opt_level=3 * (seed % 2))
    result = np.asarray(executable(*arrays)[0])
    expected = operator.reference(call.attrs, *arrays)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-4)
