# SPDX-License-Identifier: Apache-2.0
"""Operators that check sizes and values, of which guards and sizes of the graph take care."""

from __future__ import annotations

import operator

from torch import fx

from treadle.frontend.torch.diagnostics import target_name
from treadle.frontend.torch.node import AtenNode, aten

_NAMES = (
    "_assert_scalar.default", "_assert_tensor_metadata.default", "sym_constrain_range.default",
    "sym_constrain_range_for_size.default", "_assert_async.msg", "_linalg_check_errors.default",
)  # fmt: skip

CHECKS = frozenset(f"aten.{name}" for name in _NAMES)
"""The names of all these operators."""


@aten(*_NAMES)
def without_result(node: AtenNode, *_args: object, **_kwargs: object) -> None:
    """Convert a check to nothing."""
    return


def is_check(node: fx.Node) -> bool:
    """True for a call of a check, for one in an order with others, and for its results."""
    if node.target is operator.getitem:
        source = node.args[0]
        return isinstance(source, fx.Node) and source.op == "call_function" and is_check(source)
    is_ordered = target_name(node) == "with_effects"
    return (str(node.args[1]) if is_ordered else target_name(node)) in CHECKS
