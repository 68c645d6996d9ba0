# SPDX-License-Identifier: Apache-2.0
"""Convolutions and products for GPUs: blocks of threads fetch tiles of both factors together."""

from __future__ import annotations

from math import prod

from treadle.cost.gpu import TILES, least_product_cycles
from treadle.graph.nodes import Node
from treadle.graph.types import TensorType, tensor_type
from treadle.limits import LEAST_DEVICE_STEPS
from treadle.ops.conv import conv
from treadle.ops.lowered.staged import conv_staged, matmul_staged
from treadle.ops.matmul import matmul
from treadle.optimize.blocked import Flat, has_known_image
from treadle.optimize.methods.convolution import FLOATS, ConvSite
from treadle.optimize.methods.method import Method
from treadle.optimize.methods.product import ProductSite

_LEAST = TILES[-1]


def _against(rows: int, columns: int, steps: int) -> str | None:
    """Return what is against tiles of a result of so many rows and columns; 0: not known."""
    if 0 < rows < _LEAST.rows or 0 < columns < _LEAST.columns:
        return f"a result of {rows} x {columns} has no tile of {_LEAST.rows} x {_LEAST.columns}"
    if steps < LEAST_DEVICE_STEPS:
        return f"{steps} products an element are too few to share their factors"
    return None


def _cycles(matrices: int, rows: int, columns: int, steps: int, site: ConvSite | ProductSite
            ) -> float:  # fmt: skip
    gpu = site.target.gpu
    assert gpu is not None  # it is for the family of GPUs alone
    return least_product_cycles(matrices, rows, columns, steps, gpu)


def _conv_sizes(site: ConvSite) -> tuple[int, int, int]:
    images, height, width = site.image
    rows = site.filters // site.groups
    return rows, images * height * width, site.per_group * prod(site.kernel)


def _conv_applies(site: ConvSite) -> str | None:
    if site.data.dtype not in FLOATS or tensor_type(site.node.type).dtype != site.data.dtype:
        return f"it sums {', '.join(FLOATS)}, not {site.data.dtype}"
    if not has_known_image(site.data) or not has_known_image(tensor_type(site.node.type)):
        return "sizes of the image are not known"
    rows, columns, steps = _conv_sizes(site)
    if site.groups > 1 and rows % _LEAST.rows:
        return f"{rows} filters of a group are no whole number of tiles of {_LEAST.rows}"
    return _against(rows, columns, steps)


def _conv_estimate(site: ConvSite) -> float:
    return _cycles(site.groups, *_conv_sizes(site), site)


def _conv_build(site: ConvSite) -> Node | Flat:
    x, w = (site.values.as_plain(v) for v in site.node.args)
    made = conv_staged.call(site.attrs, (x, w), origin=site.origin)
    return made if len(site.kernel) == 1 else Flat(made)


def _product_type(site: ProductSite) -> TensorType:
    return tensor_type(site.node.type)


def _product_applies(site: ProductSite) -> str | None:
    if site.data.dtype not in FLOATS or _product_type(site).dtype != site.data.dtype:
        return f"it sums {', '.join(FLOATS)}, not {site.data.dtype}"
    if site.shape.steps == 0:
        return "how many products are summed is not known"
    return _against(site.shape.rows, site.shape.columns, site.shape.steps)


def _product_estimate(site: ProductSite) -> float:
    shape = site.shape
    return _cycles(shape.matrices, shape.rows, shape.columns, shape.steps, site)


def _product_build(site: ProductSite) -> Node:
    a, b = (site.values.as_plain(v) for v in site.node.args)
    return matmul_staged.call(site.node.attrs, (a, b), origin=site.origin)


conv_in_tiles = Method(
    "staged", conv, _conv_applies, _conv_estimate, _conv_build, families=("gpu",)
)
product_in_tiles = Method(
    "staged", matmul, _product_applies, _product_estimate, _product_build, families=("gpu",)
)
