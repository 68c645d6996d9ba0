# SPDX-License-Identifier: Apache-2.0
"""Seeded random weights: a parameter's values follow from its network, name, shape and role alone.

The roles keep activations near unit size from the first layer to the last, so that an output says
something about every layer before it: it neither vanishes nor saturates.
"""

from __future__ import annotations

import zlib
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Role: TypeAlias = Literal[
    "filter",  # [out, in / groups, *kernel] of a convolution that a ReLU follows
    "wide_filter",  # the same after a gate or a smooth curve, which halve what passes
    "dense",  # [out, in] of a matrix product that a softmax follows
    "dense_transposed",  # the same, [in, out]
    "bias",
    "embedding",  # vectors that indices pick, before they are normalised
    "norm_scale",
    "branch_scale",  # the scale of a normalisation in a branch that is added to another tensor
    "norm_shift",
    "norm_mean",
    "norm_variance",
]

_SPREAD: dict[str, tuple[float, float]] = {
    "norm_scale": (0.8, 1.2),
    "branch_scale": (0.4, 0.6),
    "norm_variance": (0.8, 1.2),
}
"""Roles drawn evenly between two bounds."""

_DEVIATION = {"embedding": 1.0, "bias": 0.05, "norm_shift": 0.05, "norm_mean": 0.05}
"""Roles drawn from a normal distribution around zero."""


def draw(network: str, name: str, shape: tuple[int, ...], role: Role) -> NDArray[np.float32]:
    """Return the values of one parameter: float32, the same on every machine and in every order."""
    random = np.random.Generator(np.random.PCG64(zlib.crc32(f"{network}/{name}".encode())))
    if role in _SPREAD:
        low, high = _SPREAD[role]
        return random.uniform(low, high, shape).astype(np.float32)
    values = random.standard_normal(shape, dtype=np.float32)
    values *= np.float32(_deviation(role, shape))
    if role in (
        "filter",
        "wide_filter",
    ):  # what all inputs have in common, such as a ReLU's mean, is not passed on
        values -= values.mean(axis=tuple(range(1, len(shape))), keepdims=True)
    return values


def _deviation(role: Role, shape: tuple[int, ...]) -> float:
    if role == "filter":
        return float(np.sqrt(2.0 / np.prod(shape[1:])))
    if role == "wide_filter":
        return float(np.sqrt(8.0 / np.prod(shape[1:])))
    if role == "dense":
        return float(np.sqrt(1.0 / shape[-1]))
    if role == "dense_transposed":
        return float(np.sqrt(1.0 / shape[-2]))
    return _DEVIATION[role]
