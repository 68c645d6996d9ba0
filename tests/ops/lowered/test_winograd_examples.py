# SPDX-License-Identifier: Apache-2.0
"""The examples of Winograd's filtering, with which operators are tested, leave nothing out."""

from __future__ import annotations

from dataclasses import fields

import pytest

from treadle.ops.lowered.conv_winograd import WinogradAttrs
from treadle.ops.lowered.winograd_examples import EXAMPLES
from treadle.ops.lowered.winograd_transforms import POINTS, TILES

pytestmark = pytest.mark.tiny

ATTRS = [WinogradAttrs(**example.attrs) for example in EXAMPLES]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [f.name for f in fields(WinogradAttrs)])
def test_every_attribute_has_several_values(name: str) -> None:
    assert len({getattr(attrs, name) for attrs in ATTRS}) > 1


def test_every_tile_and_number_of_points_occurs() -> None:
    assert {attrs.tile for attrs in ATTRS} == {*TILES}
    assert {axis.points for attrs in ATTRS for axis in attrs.axes} >= {*POINTS} - {7}
