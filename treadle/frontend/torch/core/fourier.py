# SPDX-License-Identifier: Apache-2.0
"""Converters of discrete Fourier transforms over one or several axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from treadle.errors import ModelError
from treadle.frontend.builders.basic import dims_of, reshaped
from treadle.frontend.builders.complex_numbers import Complex, joined, paired
from treadle.frontend.builders.fourier import transformed
from treadle.frontend.torch.node import AtenNode, of_complex
from treadle.graph.nodes import Node
from treadle.graph.types import Dim


def _spectrum(
    x: Complex | Node, axis: int, is_inverse: bool, scale: float, onesided: bool
) -> Complex:
    """Return transforms along an axis, of real numbers the first half where that is asked for."""
    z = x if isinstance(x, Complex) else Complex(x)
    data = reshaped(z.real, (*dims_of(z.real), 1)) if z.imag is None else joined(z)
    return paired(transformed(data, axis, None, is_inverse, onesided, scale))


def _over_axes(
    x: Complex | Node, dims: Sequence[int], is_inverse: bool, scale: float = 1.0
) -> Complex | Node:
    for dim in reversed(dims):
        x = _spectrum(x, dim, is_inverse, scale, False)
        scale = 1.0
    return x


def _scale(normalization: int, dims: Sequence[Dim]) -> float:
    """Return what a transform is multiplied by: 1, or by torch's number 1 / sqrt(n), 1 / n."""
    count = math.prod(_known(dims))
    return 1.0 if normalization == 0 or not count else float(count ** (-0.5 * normalization))


def _known(lengths: Sequence[Dim]) -> list[int]:
    """Return lengths of transforms. Raises: ModelError for one that a run decides."""
    known = [d for d in lengths if isinstance(d, int)]
    if len(known) < len(lengths):
        raise ModelError(
            "a Fourier transform of a length that each run decides is not supported",
            hint="give the axis a fixed size, for which the transform's matrices are made, or "
            "transform frames of a known length, as torch.stft does",
        )
    return known


@of_complex("_fft_c2c")
def complex_transform(
    node: AtenNode, z: Complex, dim: Sequence[int], normalization: int, forward: bool
) -> Complex | Node:
    """Convert transforms of complex numbers."""
    axes = node.axes(list(dim), z.real) if dim else ()
    scale = _scale(normalization, [dims_of(z.real)[a] for a in axes])
    return _over_axes(z, axes, not forward, scale)


@of_complex("_fft_r2c")
def transform_of_reals(
    node: AtenNode, x: Node, dim: Sequence[int], normalization: int, onesided: bool
) -> Complex | Node:
    """Convert transforms of real numbers, half of whose last axis may be left out."""
    *others, last = node.axes(list(dim), x)
    scale = _scale(normalization, [dims_of(x)[a] for a in (*others, last)])
    return _over_axes(_spectrum(x, last, False, scale, onesided), others, False)


@of_complex("_fft_c2r")
def transform_to_reals(
    node: AtenNode, z: Complex, dim: Sequence[int], normalization: int, last_dim_size: Dim
) -> Node:
    """Convert inverse transforms to real numbers, of the half that tells all of the last axis."""
    *others, last = node.axes(list(dim), z.real)
    (length,) = _known((last_dim_size,))
    scale = _scale(normalization, [*(dims_of(z.real)[a] for a in others), length])
    whole = _over_axes(z, others, True)
    assert isinstance(whole, Complex)
    made = transformed(joined(whole), last, length, True, True, scale)
    return reshaped(made, dims_of(made)[:-1])
