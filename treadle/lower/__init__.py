# SPDX-License-Identifier: Apache-2.0
"""Passes over loop nests, from multi-dimensional buffers down to what targets emit."""
