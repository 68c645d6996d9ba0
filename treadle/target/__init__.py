# SPDX-License-Identifier: Apache-2.0
"""Targets: what a machine can do, and the road from simple loops to its code."""
