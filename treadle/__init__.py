# SPDX-License-Identifier: Apache-2.0
"""Treadle: a deep-learning compiler."""
