# SPDX-License-Identifier: Apache-2.0
"""Operators that check sizes and values, of which guards and sizes of the graph take care."""

from __future__ import annotations

from treadle.frontend.torch.node import AtenNode, aten


@aten("_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range",
      "sym_constrain_range_for_size", "_assert_async.msg")  # fmt: skip
def without_result(node: AtenNode, *_args: object, **_kwargs: object) -> None:
    """Convert a check to nothing."""
    return
