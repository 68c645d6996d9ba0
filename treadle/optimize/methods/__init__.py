# SPDX-License-Identifier: Apache-2.0
"""How operators are computed: one file per method, and the choice between them."""
