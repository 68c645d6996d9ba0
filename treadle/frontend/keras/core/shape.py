# SPDX-License-Identifier: Apache-2.0
"""Layers that change shapes."""

from __future__ import annotations

from treadle.frontend.builders.basic import dims_of, transposed
from treadle.frontend.builders.shapes import flattened, reshaped_to
from treadle.frontend.keras.layer import KerasLayer, layer, rank
from treadle.graph.nodes import Node


@layer("Flatten")
def flatten(use: KerasLayer) -> Node:
    """Convert all axes but the first made one."""
    x = use.input()
    if use.is_channels_first and rank(x) > 2:
        x = transposed(x, (0, *range(2, rank(x)), 1))
    return flattened(x, 1, rank(x))


@layer("Reshape")
def reshape(use: KerasLayer) -> Node:
    """Convert another shape of every sample, of which one extent may be -1: what is left."""
    x = use.input()
    target = use.setting("target_shape")
    wanted = [-1 if d is None else int(d) for d in target]
    return reshaped_to(x, (dims_of(x)[0], *wanted))
