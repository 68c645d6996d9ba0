# SPDX-License-Identifier: Apache-2.0
"""Converters of TFLite's operators, one file per family."""
