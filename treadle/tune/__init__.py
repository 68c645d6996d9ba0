# SPDX-License-Identifier: Apache-2.0
"""Tuning: tasks, spaces of candidates, search, measurement, records."""
