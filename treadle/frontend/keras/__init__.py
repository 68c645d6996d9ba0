# SPDX-License-Identifier: Apache-2.0
"""Reads Keras 3's .keras files without Keras."""
