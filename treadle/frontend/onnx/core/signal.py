# SPDX-License-Identifier: Apache-2.0
"""Converters of Fourier transforms and of the filters that follow them."""

from __future__ import annotations

import numpy as np

from treadle.dtype import to_numpy
from treadle.errors import ModelError
from treadle.frontend.builders.basic import reshaped
from treadle.frontend.builders.fourier import transformed
from treadle.frontend.builders.frames import framed
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.frontend.onnx.tensors import dtype_of
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import known_sizes, normal_size
from treadle.ops import elementwise


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
    return transformed(node.input(0), at, length, inverse, onesided)


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
    cut = framed(signal, 1, frames, length, step)
    if node.has_input(2):
        cut = elementwise.multiply(cut, reshaped(node.input(2), (length, 1)))
    return transformed(cut, 2, None, False, node.flag("onesided", True))


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
