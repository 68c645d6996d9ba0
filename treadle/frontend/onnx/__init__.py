# SPDX-License-Identifier: Apache-2.0
"""ONNX models to graphs: reading files safely, and one file of converters per operator family."""
