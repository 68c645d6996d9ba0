# SPDX-License-Identifier: Apache-2.0
"""Converters of Fourier transforms, as products with constant matrices of sines and cosines."""

from __future__ import annotations

import numpy as np

from treadle.dtype import to_numpy
from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, counted, dims_of, reshaped, transposed
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.frontend.onnx.tensors import dtype_of
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import known_sizes, normal_size, product_of, tensor_type
from treadle.ops import elementwise, indexing, matmul

MATRIX_LIMIT = 1 << 24
"""A transform's matrix may have this many elements."""


@converter("DFT", since=(17, 20))
def fourier_transform(node: OnnxNode) -> Node:
    """Convert a discrete Fourier transform along an axis; the last axis holds real, imaginary."""
    shape = node.dims(0)
    if node.version >= 20:
        axis = int(node.constant_scalar(2, "axis")) if node.has_input(2) else -2
    else:
        axis = node.integer("axis", 1)
    length = int(node.constant_scalar(1, "DFT length")) if node.has_input(1) else None
    at = node.axis(axis, len(shape))
    inverse, onesided = node.flag("inverse"), node.flag("onesided")
    return _transformed(node.input(0), at, length, inverse, onesided)


def _transformed(x: Node, axis: int, length: int | None, inverse: bool, onesided: bool) -> Node:
    shape = dims_of(x)
    if len(shape) < 2 or axis == len(shape) - 1 or shape[-1] not in (1, 2):
        raise ModelError(f"a Fourier transform takes [..., n, 1 or 2], not {x.type}")
    count, parts = known_sizes((shape[axis], shape[-1]))
    if length is None:
        length = 2 * (count - 1) if inverse and onesided else count
    size = 4 * count * max(length, 1)
    if length < 1 or size > MATRIX_LIMIT:
        raise ModelError(
            f"a Fourier transform of {count} elements to {length} is not supported",
            hint=f"it is a product with a matrix, which may have {MATRIX_LIMIT} elements",
        )
    matrix = _matrix(count, length, inverse, onesided)
    matrix = matrix[:, :parts].reshape(count * parts, -1)
    order = [k for k in range(len(shape)) if k not in (axis, len(shape) - 1)]
    order += [axis, len(shape) - 1]
    rows = transposed(x, order)
    lead = [shape[k] for k in order[:-2]]
    flat = reshaped(rows, (product_of(lead), count * parts))
    outputs = 1 if inverse and onesided else 2
    # In float64: terms that cancel would leave errors of the size of the largest term's last bit.
    product: Node = matmul.matmul(converted(flat, "float64"), Constant.of(matrix))
    narrow = converted(product, tensor_type(x.type).dtype)
    made = reshaped(narrow, (*lead, matrix.shape[1] // outputs, outputs))
    return transposed(made, [int(k) for k in np.argsort(order)])


def _matrix(count: int, length: int, inverse: bool, onesided: bool) -> np.ndarray:
    """Return [count, real or imaginary in, outputs * (real and imaginary out)] in float64."""
    results = length // 2 + 1 if onesided and not inverse else length
    steps = np.arange(count)[:, None] * np.arange(results)[None, :]
    angle = 2 * np.pi * (steps % length) / length
    cos, sin = np.cos(angle), np.sin(angle) * (1 if inverse else -1)
    used = np.arange(count) < length
    if inverse and onesided:  # the half that is left out mirrors the one that is given
        given = length // 2 + 1
        twice = (np.arange(count) > 0) & (2 * np.arange(count) != length)
        scale = np.where(np.arange(count) < given, np.where(twice, 2.0, 1.0), 0.0) / length
        return np.stack([cos, -sin], 1) * scale[:, None, None]
    real = np.stack([cos, sin], -1)
    imaginary = np.stack([-sin, cos], -1)
    whole = np.stack([real, imaginary], 1).reshape(count, 2, 2 * results)
    return np.asarray(whole * (used / length if inverse else used)[:, None, None])


@converter("STFT", since=(17,))
def short_time_transform(node: OnnxNode) -> Node:
    """Convert Fourier transforms of frames that step along a signal [batch, length, 1 or 2].

    A real signal may lack the last axis, as onnxruntime takes it.
    """
    shape, step = node.dims(0), int(node.constant_scalar(1, "frame step"))
    if len(shape) not in (2, 3) or step < 1:
        raise ModelError(f"STFT takes a signal [batch, length, 1 or 2], not {node.type(0)}")
    signal = node.input(0) if len(shape) == 3 else reshaped(node.input(0), (*shape, 1))
    if node.has_input(3):
        length = int(node.constant_scalar(3, "frame length"))
    else:
        length = known_sizes(node.dims(2) if node.has_input(2) else shape[1:2])[0]
    if length < 1 or (isinstance(shape[1], int) and length > shape[1]):
        raise ModelError(f"frames of {length} elements do not fit {node.type(0)}")
    frames = normal_size((shape[1] - length) // step + 1)
    starts = elementwise.multiply(counted(frames), Constant.of(step))
    places = elementwise.add(reshaped(starts, (frames, 1)), counted(length))
    cut: Node = indexing.gather(signal, places, axis=1)
    if node.has_input(2):
        cut = elementwise.multiply(cut, reshaped(node.input(2), (length, 1)))
    return _transformed(cut, 2, None, False, node.flag("onesided", True))


@converter("MelWeightMatrix", since=(17,))
def mel_weights(node: OnnxNode) -> Node:
    """Convert the triangular filters that turn a spectrum into mel bins."""
    names = ["num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"]
    bins, length, rate, low, high = (node.constant_scalar(k, n).item() for k, n in enumerate(names))
    mels = [2595 * np.log10(1 + f / 700) for f in (low, high)]
    edges = mels[0] + np.arange(bins + 2) * (mels[1] - mels[0]) / (bins + 2)
    at = ((length + 1) * (700 * (10 ** (edges / 2595) - 1)) // rate).astype(int)
    weights = np.zeros((length // 2 + 1, bins))
    rows = np.arange(length // 2 + 1)
    for k, (left, centre, right) in enumerate(zip(at, at[1:], at[2:], strict=False)):
        rising = (rows >= left) & (rows <= centre)
        weights[rising, k] = (rows[rising] - left) / max(centre - left, 1)
        if left == centre:
            weights[centre, k] = 1
        falling = (rows >= centre) & (rows < right)
        weights[falling, k] = (right - rows[falling]) / max(right - centre, 1)
    dtype = dtype_of(node.integer("output_datatype", 1))
    return Constant.of(weights.astype(to_numpy(dtype)))
