# SPDX-License-Identifier: Apache-2.0
"""Operators that check sizes and values, of which guards and sizes of the graph take care."""

from __future__ import annotations

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
