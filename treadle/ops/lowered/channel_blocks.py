# SPDX-License-Identifier: Apache-2.0
"""Moves into the channel-blocked layout NCHWc, out of it, and of channels within it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr, cast
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.types import TensorType, Type, tensor_type
from treadle.ops.conv import known_extent


@dataclass(frozen=True, slots=True)
class PackAttrs(Attrs):
    """`block`: how many channels lie next to each other in memory."""

    block: int


def _infer_pack(attrs: PackAttrs, x: Type) -> TensorType:
    data = tensor_type(x)
    if data.ndim < 2 or attrs.block < 1:
        raise TypeMismatch(f"the channels of {data} do not pack into blocks of {attrs.block}")
    chunks = -(-known_extent(data, 1, "channels") // attrs.block)
    return data.with_shape((data.shape[0], chunks, *data.shape[2:], attrs.block))


def _compute_pack(attrs: PackAttrs, x: te.Tensor) -> te.Tensor:
    shape = _infer_pack(attrs, TensorType(x.shape, x.dtype)).shape
    channels = known_extent(TensorType(x.shape, x.dtype), 1, "channels")

    def element(n: Expr, chunk: Expr, *i: Expr) -> Expr:
        c = chunk * attrs.block + i[-1]
        value = x[(n, c, *i[:-1])]
        if channels % attrs.block == 0:
            return value
        return te.if_then_else(c < channels, value, te.const(0, x.dtype))

    return te.compute_one(shape, element, name="pack_nchwc")


def reference_pack(attrs: PackAttrs, x: np.ndarray) -> np.ndarray:
    """Return x [n, c, *spatial] as [n, c/block, *spatial, block], zeros in the rest."""
    missing = -x.shape[1] % attrs.block
    full = np.pad(x, [(0, 0), (0, missing), *[(0, 0)] * (x.ndim - 2)])
    split = full.reshape(x.shape[0], full.shape[1] // attrs.block, attrs.block, *x.shape[2:])
    return np.ascontiguousarray(np.moveaxis(split, 2, -1))


pack_nchwc: Operator[PackAttrs] = register(
    Operator(
        name="pack_nchwc",
        infer=_infer_pack,
        reference=reference_pack,
        compute=_compute_pack,
        attrs_type=PackAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((1, 16, 5, 7),), {"block": 8}),
            Example(((2, 3, 4, 4),), {"block": 3}),
            Example(((1, 5, 3, 3),), {"block": 4}),
            Example(((1, 1, 1, 1),), {"block": 16}),
            Example(((2, 9, 5),), {"block": 4}, ("int8",), -9, 9),
        ),
    )
)


@dataclass(frozen=True, slots=True)
class UnpackAttrs(Attrs):
    """`channels`: how many channels to keep; the last block may have more."""

    channels: int


def _infer_unpack(attrs: UnpackAttrs, x: Type) -> TensorType:
    data = tensor_type(x)
    if data.ndim < 3:
        raise TypeMismatch(f"{data} has no blocked channels [n, c/b, *spatial, b]")
    chunks, block = known_extent(data, 1, "channel blocks"), known_extent(data, -1, "block")
    if not (chunks - 1) * block < attrs.channels <= chunks * block:
        raise TypeMismatch(f"{chunks} blocks of {block} do not hold {attrs.channels} channels")
    return data.with_shape((data.shape[0], attrs.channels, *data.shape[2:-1]))


def _compute_unpack(attrs: UnpackAttrs, x: te.Tensor) -> te.Tensor:
    shape = _infer_unpack(attrs, TensorType(x.shape, x.dtype)).shape
    block = x.shape[-1]

    def element(n: Expr, c: Expr, *i: Expr) -> Expr:
        return x[(n, te.floordiv(c, block), *i, te.floormod(c, block))]

    return te.compute_one(shape, element, name="unpack_nchwc")


def reference_unpack(attrs: UnpackAttrs, x: np.ndarray) -> np.ndarray:
    """Return x [n, c/block, *spatial, block] as [n, channels, *spatial]."""
    split = np.moveaxis(x, -1, 2)
    full = split.reshape(x.shape[0], x.shape[1] * x.shape[-1], *x.shape[2:-1])
    return np.ascontiguousarray(full[:, : attrs.channels])


unpack_nchwc: Operator[UnpackAttrs] = register(
    Operator(
        name="unpack_nchwc",
        infer=_infer_unpack,
        reference=reference_unpack,
        compute=_compute_unpack,
        attrs_type=UnpackAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((1, 2, 5, 7, 8),), {"channels": 16}),
            Example(((1, 2, 3, 3, 4),), {"channels": 5}),
            Example(((1, 1, 1, 1, 16),), {"channels": 1}),
            Example(((2, 3, 5, 4),), {"channels": 9}, ("int8",), -9, 9),
        ),
    )
)


def element_of(place: np.ndarray, height: int, width: int, block: int) -> np.ndarray:
    """Return where in [c/block, height, width, block] the image of a channel begins (elements).

    `place` is block number * block + lane.
    """
    chunk, lane = np.divmod(place, block)
    return chunk * (height * width * block) + lane


def channel_at(x: te.Tensor, element: Expr) -> tuple[Expr, Expr]:
    """Return block number and lane of the channel that begins at `element` of [n, c/b, h, w, b].

    What reads the channel adds its position to `element` again, so nothing is divided.
    """
    at = cast(element, dt.INDEX)
    image = x.shape[2] * x.shape[3] * x.shape[4]
    return te.floordiv(at, image), te.floormod(at, image)


def check_static_image(data: TensorType) -> None:
    """Raise TypeMismatch unless places in [n, c/b, h, w, b] can be numbered."""
    for axis, what in ((1, "channel blocks"), (2, "height"), (3, "width"), (4, "block")):
        known_extent(data, axis, what)


def _infer_reorder(attrs: Attrs, x: Type, places: Type) -> TensorType:
    data, table = tensor_type(x), tensor_type(places)
    if data.ndim != 5 or table.ndim != 2 or table.dtype != "int32":
        raise TypeMismatch(f"{data} and {table} are not [n, c/b, h, w, b] and int32[blocks, b]")
    check_static_image(data)
    return data.with_shape((data.shape[0], table.shape[0], *data.shape[2:4], table.shape[1]))


def _compute_reorder(attrs: Attrs, x: te.Tensor, places: te.Tensor) -> te.Tensor:
    def element(n: Expr, chunk: Expr, h: Expr, w: Expr, lane: Expr) -> Expr:
        block, place = channel_at(x, places[chunk, lane])
        return x[n, block, h, w, place]

    shape = (x.shape[0], places.shape[0], *x.shape[2:4], places.shape[1])
    return te.compute_one(shape, element, name="reorder_nchwc")


def _reference_reorder(attrs: Attrs, x: np.ndarray, places: np.ndarray) -> np.ndarray:
    chunks, lanes = np.divmod(places, prod(x.shape[2:]))
    picked = x[:, chunks, :, :, lanes]  # [chunks, b, n, h, w]
    return np.ascontiguousarray(picked.transpose(2, 0, 3, 4, 1))


reorder_nchwc: Operator[Attrs] = register(
    # Channel `lane` of block k is the one whose image begins `places[k, lane]` elements into x.
    Operator(
        name="reorder_nchwc",
        infer=_infer_reorder,
        reference=_reference_reorder,
        compute=_compute_reorder,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(
                ((2, 3, 5, 7, 4), (2, 4)),
                inputs={1: element_of(np.array([[0, 9, 2, 7], [3, 3, 11, 4]], np.int32), 5, 7, 4)},
            ),
            Example(
                ((1, 2, 3, 3, 4), (1, 8)),
                inputs={1: element_of(np.array([[7, 6, 5, 4, 3, 2, 1, 0]], np.int32), 3, 3, 4)},
            ),
        ),
    )
)


def _infer_splice(attrs: Attrs, x: Type, runs: Type) -> TensorType:
    data, table = tensor_type(x), tensor_type(runs)
    if data.ndim != 5 or table.ndim != 3 or table.dtype != "int32" or table.shape[2] != 2:
        raise TypeMismatch(f"{data} and {table} are not [n, c/b, h, w, b] and int32[blocks, r, 2]")
    check_static_image(data)
    return data.with_shape((data.shape[0], table.shape[0], *data.shape[2:]))


def _compute_splice(attrs: Attrs, x: te.Tensor, runs: te.Tensor) -> list[te.Tensor]:
    made = _infer_splice(attrs, TensorType(x.shape, x.dtype), TensorType(runs.shape, runs.dtype))
    count = known_extent(TensorType(runs.shape, runs.dtype), 1, "runs")

    def element(n: Expr, chunk: Expr, h: Expr, w: Expr, lane: Expr) -> Expr:
        value: Expr = te.const(0, x.dtype)
        for run in reversed(range(count)):
            block, place = channel_at(x, cast(runs[chunk, run, 0], dt.INDEX) + lane)
            inside = lane < cast(runs[chunk, run, 1], dt.INDEX)
            value = te.if_then_else(inside, x[n, block, h, w, place], value)
        return value

    return [te.compute_one(made.shape, element, name="splice_nchwc")]


def _reference_splice(attrs: Attrs, x: np.ndarray, runs: np.ndarray) -> np.ndarray:
    n, _, height, width, block = x.shape
    made = np.zeros((n, len(runs), height, width, block), x.dtype)
    for chunk, of_block in enumerate(runs.tolist()):
        start = 0
        for first, end in of_block:
            for lane in range(start, end):
                source, place = divmod(first + lane, height * width * block)
                made[:, chunk, :, :, lane] = x[:, source, :, :, place]
            start = max(start, end)
    return made


splice_nchwc: Operator[Attrs] = register(
    # Block k holds runs of neighbouring channels, each read as one vector: lane l below
    # `runs[k, r, 1]`, and no lower end, is the channel whose image begins `runs[k, r, 0] + l`
    # elements into x. Lanes beyond the last end are zeros.
    Operator(
        name="splice_nchwc",
        infer=_infer_splice,
        reference=_reference_splice,
        compute=_compute_splice,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(
                ((2, 3, 5, 7, 4), (2, 2, 2)),
                inputs={1: np.array([[[2, 2], [138, 4]], [[140, 4], [0, 4]]], np.int32)},
            ),
            Example(
                ((1, 2, 3, 3, 4), (1, 3, 2)),
                inputs={1: np.array([[[36, 1], [-1, 2], [1, 3]]], np.int32)},
            ),
        ),
    )
)
