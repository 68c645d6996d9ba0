# SPDX-License-Identifier: Apache-2.0
"""Weights of a compiled model: how they are stored, and what fast algorithms add to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import prod

from treadle.cost.filtering import weights_at_points
from treadle.graph import nodes as g
from treadle.graph.arrays import LARGE, in_place
from treadle.graph.nodes import Function
from treadle.graph.text import functions_of
from treadle.graph.types import tensor_type
from treadle.ops.lowered.conv_strassen import conv2d_strassen_nchwc
from treadle.ops.lowered.conv_winograd import WinogradAttrs
from treadle.ops.lowered.matmul_strassen import (
    BLOCKS,
    PRODUCTS,
    DenseStrassenAttrs,
    dense_strassen,
)
from treadle.runtime.array import is_ready
from treadle.runtime.pages import release_pages

_STRASSEN = Fraction(BLOCKS, PRODUCTS)  # blocks become sums


def store_constants(constants: Iterable[g.Constant]) -> None:
    """Store constants as kernels read them: row-major, large ones aligned.

    Until then a transposed, sliced or packed weight is a view of the model's, and takes no memory.
    What lies in a model's file anywhere is copied here, not by the first run. The nodes stay.
    """
    for constant in constants:
        given = constant.value
        is_kept = given.flags.c_contiguous and not isinstance(constant, g.DeferredConstant)
        if is_kept and (given.nbytes < LARGE or is_ready(given)):
            continue
        constant.store(in_place(given))
        release_pages(given)


def constants_of(main: Function) -> list[g.Constant]:
    """Return the constants of a function and of those it calls, each once."""
    nodes = (n for f in functions_of(main) for n in g.topological([f.body]))
    return list(dict.fromkeys(n for n in nodes if isinstance(n, g.Constant)))


def added_weight_bytes(main: Function) -> int:
    """Return the bytes that Winograd's and Strassen's weights take beyond what they are made of."""
    grown: dict[g.Constant, Fraction] = {}
    for function in functions_of(main):
        for call in g.topological([function.body]):
            if isinstance(call, g.Call) and isinstance(call.op, Function):
                grown |= _grown_weights(call, call.op)
    return int(sum(tensor_type(w.type).nbytes * (1 - share) for w, share in grown.items()))


def _grown_weights(call: g.Call, kernel: Function) -> Iterator[tuple[g.Constant, Fraction]]:
    """Yield the transformed weights of a kernel, and the share of them that the model has."""
    given = dict(zip(kernel.params, call.args, strict=True))
    for inner in g.topological([kernel.body]):
        share = _share(inner) if isinstance(inner, g.Call) else None
        if share is None:
            continue
        assert isinstance(inner, g.Call)
        place = inner.args[1]
        weights = given.get(place) if isinstance(place, g.Var) else None
        if isinstance(weights, g.Constant):
            yield weights, share


def _share(call: g.Call) -> Fraction | None:
    how = call.attrs
    if isinstance(how, WinogradAttrs | DenseStrassenAttrs) and how.plain_weights:
        return None
    if call.op in (conv2d_strassen_nchwc, dense_strassen):
        return _STRASSEN
    if not isinstance(how, WinogradAttrs):
        return None
    return Fraction(prod(how.kernel), weights_at_points(how.axes))
