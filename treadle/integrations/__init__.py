# SPDX-License-Identifier: Apache-2.0
"""Treadle seen through other projects' plug-in points."""
