# SPDX-License-Identifier: Apache-2.0
"""The TFLite importer."""
