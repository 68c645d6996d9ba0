# SPDX-License-Identifier: Apache-2.0
"""Which keys rows may see: by masks that hide all later ones, and only where that is certain."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.optimize.cases import var
from treadle.build.compile import compile_model
from treadle.graph.interpret import run
from treadle.graph.nodes import Call, Constant, Function, Module, Node
from treadle.ops.elementwise import add, multiply, where
from treadle.ops.matmul import matmul
from treadle.ops.norm import softmax
from treadle.ops.reshaping import transpose
from treadle.optimize.attention_masks import keys_ahead

HEADS, ROWS, KEYS, DEPTH = 2, 40, 48, 8
LOWEST = float(np.finfo(np.float32).min)

q, k, v = (var(n, HEADS, m, DEPTH) for n, m in (("q", ROWS), ("k", KEYS), ("v", KEYS)))
padding = var("padding", 1, 1, KEYS)


def _seen(ahead: int = 0) -> np.ndarray:
    return np.arange(KEYS) <= np.arange(ROWS)[:, None] + ahead


def _number(value: float) -> Constant:
    return Constant.of(np.float32(value))


def _chosen(scores: Node, seen: np.ndarray, low: float = -np.inf) -> Node:
    return where(Constant.of(seen), scores, _number(low))


def _added(scores: Node, seen: np.ndarray, low: float = -np.inf) -> Node:
    return add(scores, Constant.of(np.where(seen, 0, low).astype(np.float32)))


def _of_one_head(ahead: int) -> np.ndarray:
    return np.stack([_seen(ahead), _seen(0)])


def _first_row_sees_nothing() -> np.ndarray:
    return np.arange(KEYS) < np.arange(ROWS)[:, None]


Masked = Callable[[Node], Node]

HIDDEN: dict[str, tuple[Masked, int]] = {
    "chosen": (lambda s: _chosen(s, _seen()), 0),
    "added": (lambda s: _added(s, _seen()), 0),
    "the lowest number": (lambda s: _chosen(s, _seen(), LOWEST), 0),
    "the lowest number added": (lambda s: _added(s, _seen(), LOWEST), 0),
    "keys of the past": (lambda s: _chosen(s, _seen(8)), 8),
    "a window": (lambda s: _chosen(s, _seen(2) & ~_seen(-5)), 2),
    "heads that see more": (lambda s: _chosen(s, _of_one_head(4)), 4),
    "keys hidden by another mask": (lambda s: _chosen(add(s, padding), _seen()), 0),
}

SEEN: dict[str, Masked] = {
    "no mask": lambda s: s,
    "a mask from outside": lambda s: add(s, padding),
    "a row that sees nothing": lambda s: _chosen(s, _first_row_sees_nothing()),
    "hardly any hidden": lambda s: _chosen(s, _seen(KEYS - 4)),
    "low, but not too low to count": lambda s: _chosen(s, _seen(), -1e4),
    "what comes after the mask": lambda s: add(_chosen(s, _seen()), padding),
    "perhaps all seen keys as low": lambda s: _chosen(add(s, padding), _seen(), LOWEST),
    "a choice of what is hidden": lambda s: where(Constant.of(_seen()), _number(LOWEST), s),
}


def _attention(masked: Masked) -> Function:
    scores = multiply(matmul(q, transpose(k, perm=(0, 2, 1))), _number(0.3))
    return Function((q, k, v, padding), matmul(softmax(masked(scores), axis=2), v), "attention")


def _steps(masked: Masked) -> list[Call]:
    """Return the calls from the product to the scores, in order."""
    node: Node = masked(multiply(matmul(q, transpose(k, perm=(0, 2, 1))), _number(0.3)))
    found: list[Call] = []
    while isinstance(node, Call) and (not found or found[-1].op is not matmul):
        found.append(node)
        node = next(a for a in node.args if isinstance(a, Call))
    return found[::-1]


@pytest.mark.parametrize("name", HIDDEN)
def test_later_keys_are_not_seen(name: str) -> None:
    masked, ahead = HIDDEN[name]
    assert keys_ahead(_steps(masked)) == ahead


@pytest.mark.parametrize("name", SEEN)
def test_any_key_may_be_seen(name: str) -> None:
    assert keys_ahead(_steps(SEEN[name])) == -1


@pytest.mark.parametrize("name", [*HIDDEN, *SEEN])
def test_runs(name: str) -> None:
    """What a key holds that no row sees is of no account, so that it may be no number."""
    masked = HIDDEN[name][0] if name in HIDDEN else SEEN[name]
    function = _attention(masked)
    rng = np.random.default_rng(0)
    inputs = {
        p.name: rng.standard_normal(p.type.static_shape).astype(np.float32)  # type: ignore[union-attr]
        for p in function.params
    }
    inputs["padding"][..., ::3] = -np.inf if name in HIDDEN else -1e9
    inputs["padding"][..., 0] = 0
    (found,) = compile_model(Module(function, ("y",))).run(inputs)
    (wanted,) = run(function, inputs)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=1e-5 * np.nanmax(np.abs(wanted)))
