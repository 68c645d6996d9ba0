# SPDX-License-Identifier: Apache-2.0
"""What fast algorithms cost in weights."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from treadle.graph import nodes as g
from treadle.graph.nodes import Function
from treadle.graph.text import functions_of
from treadle.graph.types import tensor_type
from treadle.ops.lowered.conv_strassen import conv2d_strassen_nchwc
from treadle.ops.lowered.conv_winograd import WinogradAttrs
from treadle.ops.lowered.matmul_strassen import LEFT, dense_strassen

_STRASSEN = Fraction(4, len(LEFT))  # four blocks become seven sums
_TAPS = 9


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
    if call.op in (conv2d_strassen_nchwc, dense_strassen):
        return _STRASSEN
    if not isinstance(call.attrs, WinogradAttrs) or call.attrs.plain_weights:
        return None
    return Fraction(_TAPS, (call.attrs.points * call.attrs.stride) ** 2)
