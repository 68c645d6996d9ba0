# SPDX-License-Identifier: Apache-2.0
"""Random graphs: everything derives from one seed, so a failure is told by its number."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz import control as c
from tests.fuzz import elementwise as e
from tests.fuzz import heavy as h
from tests.fuzz import layers as y
from tests.fuzz import moves as m
from tests.fuzz import select as s
from tests.fuzz import vision as v
from tests.fuzz.builder import Builder, Nothing
from tests.fuzz.graph import Graph, operands
from tests.fuzz.open_sizes import opened

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
          h.grid_sample, v.roi_align, v.deformable, v.affine_grid, v.center_crop,
          v.columns_to_image, v.unpool, v.upsample)),
    (5, (y.recurrent, y.recurrent, y.attention, y.attention, y.rotary, y.rms_norm, y.rms_norm,
         y.fused_by_exporters, y.fused_by_exporters, y.loss)),
    (9, (s.compress, s.non_zero, s.unique, s.suppress, s.number_range, s.sizes, s.sizes, s.eye,
         s.constant, s.constant, s.hardmax, s.shrink, s.dropout, s.running_product, s.reinterpret,
         s.write_rows, v.determinant, v.spectrum)),
    (5, (c.branch, c.branch, c.loop, c.loop, c.scan)),
)  # fmt: skip
_ATTEMPTS = 12
"""How often another node is tried for each that is wanted."""
_OPEN_EACH = 4
"""Every how many graphs one has open sizes, if it can."""


def make_graph(seed: int, is_open: bool = False) -> Graph:
    """Return the graph number `seed`: 5 to 30 nodes, one or several outputs.

    With `is_open` it has open sizes, if it can; else every fourth has.
    """
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
    return _finished(builder, seed, is_open or seed % _OPEN_EACH == 0)


def _finished(builder: Builder, seed: int, is_open: bool) -> Graph:
    """Choose outputs: all that nothing uses, and sometimes a value in between."""
    graph = builder.graph
    used = {n for node in graph.nodes for n in operands(node)}
    made = [n for node in graph.nodes for n in node.output]
    outputs = [n for n in made if n not in used]
    inner = [n for n in made if n in used]
    if inner and builder.chance(0.3):
        outputs.append(builder.random.choice(inner))
    if outputs and builder.chance(0.05):  # a value that no node makes
        given = [*graph.inputs, *graph.constants]
        outputs.append(builder.random.choice(given))
    builder.random.shuffle(outputs)
    finished = graph.used(outputs)
    return (opened(finished, seed) if is_open else None) or finished
