# SPDX-License-Identifier: Apache-2.0
"""Models as C source: what is not portable is refused."""

from __future__ import annotations

import pytest

from treadle.build.c_source import is_portable


@pytest.mark.tiny
def test_source_that_names_instructions_is_not_portable() -> None:
    assert is_portable(["x = __builtin_fmaf(a, b, c); __builtin_prefetch(p);"])
    assert not is_portable(["x = __builtin_ia32_pmaddwd128(a, b);"])
    assert not is_portable(["y = _mm_add_ps(a, b);"])
