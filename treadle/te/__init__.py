# SPDX-License-Identifier: Apache-2.0
"""Tensor expressions and schedules: what is computed, and how its loops run."""
