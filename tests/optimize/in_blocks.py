# SPDX-License-Identifier: Apache-2.0
"""Tests of what happens in blocks of channels, on images so small that none would run in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from treadle.optimize.methods.conv_plain import conv_plain
from treadle.optimize.methods.convolution import ConvSite, why_not_in_blocks
from treadle.optimize.methods.method import METHODS


def _applies(site: ConvSite) -> str | None:
    return "it runs in blocks here" if why_not_in_blocks(site) is None else None


@pytest.fixture(autouse=True)
def in_blocks() -> Iterator[None]:
    """Run every convolution in blocks of channels that can."""
    METHODS.register(replace(conv_plain, applies=_applies))
    yield
    METHODS.register(conv_plain)
