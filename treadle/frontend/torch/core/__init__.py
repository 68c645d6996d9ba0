# SPDX-License-Identifier: Apache-2.0
"""The operators of ATen, one file per family."""
