# SPDX-License-Identifier: Apache-2.0
"""Tuning in the words of AutoTVM, on Treadle's engine."""
