# SPDX-License-Identifier: Apache-2.0
"""Converters of selections whose size depends on data."""

from __future__ import annotations

from treadle.frontend.builders.basic import converted, transposed
from treadle.frontend.builders.selection import distinct, nonzero
from treadle.frontend.tflite.node import Result, TfliteNode, converter
from treadle.graph.nodes import Node


@converter("WHERE")
def where(node: TfliteNode) -> Node:
    """Convert the coordinates of what is not zero, one row per element."""
    return transposed(nonzero(node.input(0), node.measure), (1, 0))


@converter("UNIQUE")
def unique(node: TfliteNode) -> Result:
    """Convert the distinct elements in the order of their first places, and which each one is."""
    values, _, numbers, _ = distinct(node.input(0), 0, node.measure, ascending=False)
    return [values, converted(numbers, node.result(1).dtype)]
