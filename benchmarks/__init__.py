# SPDX-License-Identifier: Apache-2.0
"""Benchmark networks, and the programs that measure Treadle on them beside its peers."""
