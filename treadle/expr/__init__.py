# SPDX-License-Identifier: Apache-2.0
"""Scalar expressions: interned nodes, what can be proved of them, and their simplification."""
