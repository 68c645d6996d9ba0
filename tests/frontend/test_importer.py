# SPDX-License-Identifier: Apache-2.0
"""What importers share: the converter table, the list of missing operators, folding, origins."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.errors import UnsupportedOperators
from treadle.frontend.importer import (
    ConverterTable,
    Folder,
    UnsupportedList,
    did_you_mean,
    origin_of,
    stamp_origin,
)
from treadle.graph.nodes import Constant, Var
from treadle.graph.types import TensorType
from treadle.ops import elementwise, movement, reshaping

pytestmark = pytest.mark.tiny


def test_converter_versions() -> None:
    table: ConverterTable = ConverterTable()
    first = table.converter("Op", since=(1, 6))(lambda: 1)
    later = table.converter("Op", since=(11,))(lambda: 2)
    assert table.find("", "Op", 6, exact=True) is first
    assert table.find("", "Op", 7, exact=True) is None
    assert table.find("", "Op", 10, exact=False) is first
    assert table.find("", "Op", 12, exact=False) is later
    assert table.find("other", "Op", 6, exact=True) is None
    assert table.versions("", "Op") == (1, 6, 11)
    assert table.names() == [("", "Op")]


def test_a_later_converter_of_the_same_version_wins() -> None:
    table: ConverterTable = ConverterTable()
    table.converter("Op", since=(1,))(lambda: "built in")
    own = table.converter("Op", since=(1,))(lambda: "the user's")
    assert table.find("", "Op", 1, exact=True) is own


def test_unsupported_list() -> None:
    missing = UnsupportedList()
    missing.raise_if_any("m")
    for k in range(3):
        missing.add("", "Rare", 9, f"rare_{k}")
    missing.add("com.x", "Odd", 1, "odd", "no schema")
    with pytest.raises(UnsupportedOperators) as caught:
        missing.raise_if_any("m.onnx")
    assert str(caught.value) == (
        "2 operators (4 nodes) of this model are not supported:\n"
        "  ai.onnx.Rare-9: 3 nodes, first rare_0\n"
        "  com.x.Odd-1: 1 node, first odd (no schema)\n"
        "  at    m.onnx\n"
        "  hint  register a converter for each (docs/how-to/add_operator.md), or export the "
        "model without them"
    )


def test_names() -> None:
    assert origin_of("conv1", "Conv", 3) == "conv1"
    assert origin_of("", "Conv", 3) == "Conv_3"
    assert did_you_mean("imgae", ["image", "mask"]) == "did you mean 'image'?"
    assert did_you_mean("zzz", ["image", "mask"]) == "known names are image, mask"
    assert did_you_mean("zzz", []) == "known names are (none)"


def test_origins_stop_at_the_inputs() -> None:
    x = Var("x", TensorType((2,), "float32"))
    inner = elementwise.relu(x)
    outer = elementwise.exp(inner)
    stamp_origin([outer], [x], "node")
    assert (inner.origin, outer.origin, x.origin) == ("node", "node", "")
    last = elementwise.abs(outer)
    stamp_origin([last], [outer], "next")
    assert (last.origin, outer.origin) == ("next", "node")


def test_folding_small_constants() -> None:
    a = Constant.of(np.array([2, 3]))
    total = elementwise.add(a, elementwise.multiply(a, a))
    folded = Folder().fold(total)
    assert isinstance(folded, Constant)
    np.testing.assert_array_equal(folded.value, [6, 12])


def test_nothing_that_is_large_or_unknown_is_folded() -> None:
    x = Var("x", TensorType((2,), "float32"))
    unknown = elementwise.relu(x)
    assert Folder().fold(unknown) is unknown
    wide = reshaping.broadcast_to(Constant.of(1.0, "float32"), shape=(1 << 19,))
    assert Folder().fold(wide) is wide
    through_wide = movement.slice_(wide, begin=(0,), end=(4,))
    assert Folder().fold(through_wide) is through_wide


def test_the_folding_budget_is_spent() -> None:
    folder = Folder(budget=20)
    value = elementwise.negative(Constant.of(np.zeros(4, "float32")))
    assert isinstance(folder.fold(value), Constant)
    assert folder.fold(value) is value
