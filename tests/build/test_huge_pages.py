# SPDX-License-Identifier: Apache-2.0
"""Small weights lie together on huge pages, in the plan and in the graph alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import treadle
from tests.optimize.cases import function, var
from treadle.build.compile import compile_model
from treadle.build.huge_pages import share_huge_pages
from treadle.graph.nodes import Constant, Function, Module, topological
from treadle.limits import MOVED_BYTES
from treadle.ops.elementwise import add
from treadle.runtime.array import address_of
from treadle.runtime.pages import HUGE_PAGE

X = var("x", 300, 300)


def _sums(count: int, *shape: int) -> Function:
    """Return x and `count` constants, added up."""
    body = X
    for k in range(count):
        body = add(body, Constant.of(np.full(shape, k, np.float32)))  # type: ignore[assignment]
    return function(body, params=[X])


def _values(f: Function) -> list[np.ndarray]:
    return [n.value for n in topological([f.body]) if isinstance(n, Constant)]


@pytest.mark.parametrize("count", [6, 30, 70])  # parts of a chunk, more than one, several
def test_small_arrays_move_and_keep_their_elements(count: int) -> None:
    f = _sums(count, 300, 300)
    arrays = _values(f)
    constants = {f"p{k}": v for k, v in enumerate(arrays)}
    before = {name: (v, v.copy()) for name, v in constants.items()}
    share_huge_pages(constants, f)
    pages = {address_of(v) // HUGE_PAGE for v in constants.values()}
    used = sum(v.nbytes for v in arrays)
    assert len(pages) <= used // HUGE_PAGE + used // MOVED_BYTES + 2
    for name, (old, elements) in before.items():
        assert constants[name] is not old
        assert address_of(constants[name]) % 64 == 0
        np.testing.assert_array_equal(constants[name], elements)
    held = {id(v) for v in constants.values()}
    assert all(id(v) in held for v in _values(f))


def test_few_small_arrays_and_large_ones_stay() -> None:
    f = _sums(2, 300, 300)
    large = np.zeros(HUGE_PAGE, np.uint8)
    few = {"large": large, **{f"p{k}": v for k, v in enumerate(_values(f))}}
    before = dict(few)
    share_huge_pages(few, f)
    assert all(few[name] is value for name, value in before.items())
    f = _sums(9, 300, 300)
    many = {"large": large, **{f"p{k}": v for k, v in enumerate(_values(f))}}
    share_huge_pages(many, f)
    assert many["large"] is large


def test_a_model_runs_and_is_saved_from_where_its_weights_lie(
    tmp_path: Path,
) -> None:
    f = _sums(9, 300, 300)
    x = np.random.default_rng(0).normal(size=(300, 300)).astype(np.float32)
    model = compile_model(Module(f))
    (made,) = model.run([x])
    np.testing.assert_allclose(np.asarray(made), x + sum(range(9)), rtol=1e-6)
    model.save(tmp_path / "m.tar")
    (loaded,) = treadle.load(tmp_path / "m.tar").run([x])
    np.testing.assert_array_equal(np.asarray(loaded), np.asarray(made))
