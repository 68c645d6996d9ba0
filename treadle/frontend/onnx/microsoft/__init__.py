# SPDX-License-Identifier: Apache-2.0
"""Converters of onnxruntime's operators (domain com.microsoft)."""
