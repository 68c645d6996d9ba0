# SPDX-License-Identifier: Apache-2.0
"""Converters of Keras's layers and operations, one file per family."""
