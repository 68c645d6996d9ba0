# SPDX-License-Identifier: Apache-2.0
"""Names as they may stand in generated code."""

from __future__ import annotations

import re


def symbol(name: str) -> str:
    """Return a name as a C identifier."""
    clean = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{clean}" if clean[:1].isdigit() or not clean else clean
