# SPDX-License-Identifier: Apache-2.0
"""Reads TensorFlow's SavedModels and GraphDefs without TensorFlow."""
