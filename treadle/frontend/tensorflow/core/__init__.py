# SPDX-License-Identifier: Apache-2.0
"""Converters of TensorFlow's operators, one file per family."""
