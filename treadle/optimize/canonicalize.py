# SPDX-License-Identifier: Apache-2.0
"""Bring a graph into one form per meaning: constants folded, weights scaled, moves merged.

The rules stand in tables, one per module (see the imports). They are exact, up to the rounding of
weights scaled at compile time instead of results at run time, and of normalisations and activations
that were written in steps.
"""

from __future__ import annotations

from treadle.graph.nodes import Function
from treadle.optimize import (
    affine,
    arithmetic,
    batch_norm,
    branches,
    flatten_rules,
    index_checks,
    layout_rules,
    movement_rules,
    padding_rules,
    recognise,
    reshape_rules,
)
from treadle.optimize.concat_runs import share_runs
from treadle.optimize.fold import ConstantFolder, merge_equal
from treadle.optimize.rule import Rule, apply_rules

RULES: tuple[Rule, ...] = (
    *arithmetic.RULES,
    *batch_norm.RULES,
    *affine.RULES,
    *branches.RULES,
    *recognise.RULES,
    *layout_rules.RULES,
    *movement_rules.RULES,
    *reshape_rules.RULES,
    *flatten_rules.RULES,
    *padding_rules.RULES,
    *index_checks.RULES,
)
"""Every rule; of two that apply to one call the earlier one wins."""


def canonicalize(function: Function) -> Function:
    """Return `function` with constants folded and all rules applied until none applies.

    What is no longer used disappears: a graph is what its results depend on.
    """
    folder = ConstantFolder()
    settled = apply_rules(function, RULES, folder)
    return share_runs(merge_equal(apply_rules(settled, (*batch_norm.EXPANSION, *RULES), folder)))


def expand_tuples(function: Function) -> Function:
    """Return `function` without operators that give tuples, as far as rules replace them."""
    return apply_rules(function, [r for r in movement_rules.RULES if r.name == "split_to_slices"])
