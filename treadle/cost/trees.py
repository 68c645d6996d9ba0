# SPDX-License-Identifier: Apache-2.0
"""How walks of decision trees are cut into tasks, for a machine of which nothing is known.

The operator says in what it computes how it is shared, before there is a target.
"""

from __future__ import annotations

TASK_ROWS = 64
"""Rows that a task leads through the same trees. Nodes are read by all of them from the first cache
then; more rows would take its place: 64 of a hundred features are 26 kB."""
TASK_BLOCKS = 16
"""Blocks of trees that a task walks: few trees make several tasks, and rows are read again by each
of them."""
