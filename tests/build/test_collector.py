# SPDX-License-Identifier: Apache-2.0
"""Kernels are made without the garbage collector, which is as it was afterwards."""

from __future__ import annotations

import gc

import pytest

from treadle.build.collector import without_collector


@pytest.mark.parametrize("was_enabled", [True, False])
def test_the_collector_pauses_and_goes_on(was_enabled: bool) -> None:
    seen = without_collector(lambda _: gc.isenabled())
    failing = without_collector(lambda value: 1 // value)  # type: ignore[operator]
    try:
        (gc.enable if was_enabled else gc.disable)()
        assert seen(0) is False
        with pytest.raises(ZeroDivisionError):
            failing(0)
        assert gc.isenabled() is was_enabled
    finally:
        gc.enable()


def test_a_method_inside_of_another_leaves_it_off() -> None:
    inner = without_collector(lambda _: None)

    def body(_: object) -> bool:
        inner(None)
        return gc.isenabled()

    assert without_collector(body)(None) is False
    assert gc.isenabled()
