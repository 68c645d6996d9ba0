# SPDX-License-Identifier: Apache-2.0
"""Random graphs: everything derives from one seed, so a failure is told by its number."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz import elementwise as e
from tests.fuzz import heavy as h
from tests.fuzz import moves as m
from tests.fuzz.builder import Builder, Nothing
from tests.fuzz.graph import Graph

_FAMILIES: tuple[tuple[int, tuple[Callable[[Builder], object], ...]], ...] = (
    (30, (e.exact_unary, e.exact_unary, e.smooth_unary, e.smooth_unary, e.shaped_unary, e.gelu,
          e.swish)),
    (30, (e.arithmetic, e.arithmetic, e.arithmetic, e.arithmetic, e.extremes, e.sums, e.power,
          e.integer_power, e.modulo, e.bits, e.comparison, e.logic, e.where, e.clip, e.prelu,
          e.cast, e.cast, e.special, e.quantize, e.dynamic_quantize)),
    (32, (m.reshape, m.reshape, m.computed_reshape, m.flatten, m.squeeze, m.unsqueeze, m.transpose,
          m.transpose, m.expand, m.tile, m.cut, m.cut, m.split, m.split, m.concat, m.concat,
          m.gather, m.gather_elements, m.gather_nd, m.scatter, m.scatter_nd, m.pad, m.pad,
          m.depth_space, m.triangle, m.reverse, m.one_hot, m.shuffle_channels, m.fill)),
    (16, (h.reduce, h.reduce, h.reduce, h.argument, h.top, h.running_sum, h.softmax, h.softmax,
          h.norm, h.norm, h.written_layer_norm)),
    (10, (h.matmul, h.matmul, h.self_matmul, h.gemm, h.einsum, h.integer_products)),
    (14, (h.convolution_block, h.convolution_block, h.convolution_block, h.squeeze_excite,
          h.transposed_convolution, h.pool, h.pool, h.global_pool, h.batch_norm, h.resize,
          h.grid_sample)),
)  # fmt: skip
_ATTEMPTS = 12
"""How often another node is tried for each that is wanted."""


def make_graph(seed: int) -> Graph:
    """Return the graph number `seed`: 5 to 30 nodes, one or several outputs."""
    builder = Builder(seed)
    wanted = builder.random.choice((5, 5, 6, 6, 7, 8, 8, 10, 12, 16, 30))
    weights = [weight for weight, _ in _FAMILIES]
    if builder.chance(0.5):  # graphs with a leaning of their own meet rarer neighbours
        weights[builder.random.randrange(len(weights))] *= 4
    for _ in range(wanted * _ATTEMPTS):
        if len(builder.graph.nodes) >= wanted:
            break
        _, makers = builder.random.choices(_FAMILIES, weights)[0]
        try:
            builder.random.choice(makers)(builder)
        except Nothing:
            continue
    return _finished(builder)


def _finished(builder: Builder) -> Graph:
    """Choose outputs: all that nothing uses, and sometimes a value in between."""
    graph = builder.graph
    used = {n for node in graph.nodes for n in node.input}
    made = [n for node in graph.nodes for n in node.output]
    outputs = [n for n in made if n not in used]
    inner = [n for n in made if n in used]
    if inner and builder.chance(0.3):
        outputs.append(builder.random.choice(inner))
    builder.random.shuffle(outputs)
    return graph.used(outputs)
