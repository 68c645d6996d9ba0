# SPDX-License-Identifier: Apache-2.0
"""Converters of classical machine learning (domain ai.onnx.ml)."""
