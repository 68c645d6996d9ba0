# SPDX-License-Identifier: Apache-2.0
"""te.extern: one shape makes one tensor, a list of shapes makes several."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from treadle import te
from treadle.loop.nodes import Buffer, Stmt


def never_built(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
    raise AssertionError("only asked for when the schedule is lowered")


@pytest.mark.parametrize("shape", [(2, 3), [2, 3]])
def test_one_shape_is_one_tensor(shape: Sequence[int]) -> None:
    made = te.extern(shape, [te.placeholder((4,), "float32")], never_built)
    assert isinstance(made, te.Tensor)
    assert [int(str(extent)) for extent in made.shape] == [2, 3]
    assert made.dtype == "float32"


def test_list_of_shapes_is_several_tensors() -> None:
    source = te.placeholder((4,), "float32")
    first, second = te.extern([(2,), (3, 1)], [source], never_built, dtype=["int64", "float32"])
    assert (first.ndim, first.dtype) == (1, "int64")
    assert (second.ndim, second.dtype) == (2, "float32")
