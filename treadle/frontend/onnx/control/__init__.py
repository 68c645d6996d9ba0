# SPDX-License-Identifier: Apache-2.0
"""Control flow of ONNX models: branches and loops, decided at import or by the run."""
