# SPDX-License-Identifier: Apache-2.0
"""Schedules: stages of a tensor expression and the list of steps that shape their loops."""


class Schedule:
    """Stages and steps."""
