# SPDX-License-Identifier: Apache-2.0
"""Graphs of typed operator calls."""
