# SPDX-License-Identifier: Apache-2.0
"""Which keys an attention never sees, by a mask that is known when it is compiled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from treadle.cost.attention import is_worth_trimming
from treadle.graph.nodes import Call, Constant
from treadle.graph.types import tensor_type
from treadle.ops.elementwise import add, divide, multiply, where
from treadle.ops.lowered.staged import matmul_staged
from treadle.ops.matmul import matmul

PRODUCTS = (matmul, matmul_staged)
"""Both have the same operands and attributes; the second is what a GPU has in place of the first,
but for small ones."""

_VANISHING = -1e30
"""What is this low, or is added to a product of queries and keys, leaves no weight to a key next to
any other."""


def keys_ahead(steps: Sequence[Call]) -> int:
    """Return how many keys after its own number a row may see, -1 where that may be all of them.

    `steps` lead from the product of queries and keys to float[..., rows, keys]. A key is not seen
    where the last of them makes its score so low in all heads that its weight is 0; every row sees
    a key. What the values of unseen keys are is of no account then, infinities and NaN included.

    where(r >= k, x, -inf) -> 0     x + m, where m[r, k] is -inf for k > r + 3 -> 3
    """
    if not tensor_type(steps[-1].type).is_static:
        return -1
    *_, rows, keys = tensor_type(steps[-1].type).static_shape
    hidden = _hidden(steps)
    if hidden is None:
        return -1
    whole = np.broadcast_shapes(hidden.shape, (rows, keys))
    seen = ~np.all(np.broadcast_to(hidden, whole).reshape(-1, rows, keys), axis=0)
    if not seen.any(axis=1).all():
        return -1
    last = keys - 1 - np.argmax(seen[:, ::-1], axis=1)
    ahead = max(0, int((last - np.arange(rows)).max()))
    computed = np.minimum(keys, np.arange(rows) + 1 + ahead).sum()
    return ahead if is_worth_trimming(int(computed), rows * keys) else -1


def _hidden(steps: Sequence[Call]) -> NDArray[np.bool_] | None:
    """Return where the last step makes scores too low to count; None where it does not."""
    last = steps[-1]
    inside = [a for a in last.args if a in steps]
    if len(inside) != 1:
        return None
    if last.op is where and last.args[1] is inside[0]:
        test, _, low = last.args
        if not isinstance(test, Constant) or not isinstance(low, Constant):
            return None
        hidden, lowest = ~test.value.astype(bool) & _is_low(low.value), np.max(low.value)
    elif last.op is add:
        (mask,) = (a for a in last.args if a is not inside[0])
        if not isinstance(mask, Constant):
            return None
        hidden = _is_low(mask.value)
        lowest = np.max(mask.value, where=hidden, initial=-np.inf)
    else:
        return None
    return hidden if lowest == -np.inf or _are_products(steps[:-1]) else None


def _is_low(x: NDArray[np.generic]) -> NDArray[np.bool_]:
    return np.asarray(np.less_equal(x.astype(np.float64), _VANISHING))


def _are_products(steps: Sequence[Call]) -> bool:
    """True where scores are products of queries and keys, scaled: none is low by another mask.

    A row of which all seen keys were low by another mask would share its weights with the others.
    """
    return all(s.op in PRODUCTS or (s.op in (multiply, divide) and _is_scaled(s)) for s in steps)


def _is_scaled(step: Call) -> bool:
    return any(isinstance(a, Constant) and a.value.size == 1 for a in step.args)
