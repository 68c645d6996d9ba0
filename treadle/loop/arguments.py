# SPDX-License-Identifier: Apache-2.0
"""The arguments of a kernel: tensors, and the sizes it takes for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from treadle.errors import UsageError
from treadle.expr.nodes import Var
from treadle.expr.traversal import free_vars
from treadle.te.operations import Tensor


def size_params(args: Sequence[Tensor | Var]) -> list[Var]:
    """Return the size parameters of a function of these arguments, in order.

    Raises: UsageError for a tensor that stands there twice, and for what is no argument.
    """
    sizes: dict[Var, None] = {}
    for tensor, count in Counter(a for a in args if isinstance(a, Tensor)).items():
        if count > 1:
            raise UsageError(
                f"tensor {tensor.name} stands {count} times among the arguments",
                hint="pass every input and output tensor once",
            )
    for a in args:
        if isinstance(a, Tensor):
            for d in a.shape:
                sizes.update(dict.fromkeys(free_vars(d)))
        elif isinstance(a, Var):
            sizes.setdefault(a)
        else:
            raise UsageError(
                f"an argument of a kernel is {a!r}", hint="pass tensors, and sizes made by te.var"
            )
    return list(sizes)
