# SPDX-License-Identifier: Apache-2.0
"""In which order reductions combine what they read: a part of what their operators compute.

Sums of floats depend on their order, so it is the same on every machine and with any number of
threads. It is blocked summation (Higham, Accuracy and Stability of Numerical Algorithms, 2nd
edition, section 4.2): accumulators take in `TERMS` elements at most, and are then combined in
pairs, so that the error grows with the logarithm of the number of elements.
"""

from __future__ import annotations

TERMS = 128
"""Elements that one accumulator takes in at most."""

LANES = 16
"""Accumulators of a contiguous run, which are combined by halves: whole vectors of any CPU."""

CHAINS = 4
"""Accumulators, or vectors of them, that take in elements alternately, so that none waits for the
addition before it."""

LONG_RUN = 128
"""Elements of a contiguous run from which it has as many vectors of accumulators."""
