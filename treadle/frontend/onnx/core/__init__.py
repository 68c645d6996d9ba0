# SPDX-License-Identifier: Apache-2.0
"""Converters of ONNX's own operators, one file per family."""
