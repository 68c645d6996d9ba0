# SPDX-License-Identifier: Apache-2.0
"""Elementary functions written out as arithmetic every target has; expand_math.py applies them."""
