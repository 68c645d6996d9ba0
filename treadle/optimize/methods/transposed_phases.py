# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions by one convolution that makes all phases, which are then interleaved.

Outputs a stride apart read the same windows of the input: a stride product times the filters fill
blocks of channels where there are few. Positions of the kernel that a phase lacks are zeros.
"""

from __future__ import annotations

from treadle.ops.conv import conv_transpose
from treadle.optimize.methods.method import Method, least_cycles
from treadle.optimize.methods.phases import Phased, Phases
from treadle.optimize.methods.transposed import (
    TransposedSite,
    why_no_phases_in_blocks,
)


def _applies(site: TransposedSite) -> str | None:
    against = why_no_phases_in_blocks(site)
    if against is None and not isinstance(site.phases, Phases):
        return site.phases
    return against


def _estimate(site: TransposedSite) -> float:
    """The convolution by its own best method."""
    assert isinstance(site.phases, Phases)
    several = site.phases.count > 1
    return least_cycles(site.convolution_site) + several * site.interleaving_cycles()


def _build(site: TransposedSite) -> Phased:
    assert isinstance(site.phases, Phases)
    return Phased(site.convolution, site.phases)


transposed_phases = Method(
    "phases", conv_transpose, _applies, _estimate, _build, knobs=("block",), layout="NCHWc"
)
