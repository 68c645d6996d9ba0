# SPDX-License-Identifier: Apache-2.0
"""Languages of the C family: what their compilers call alike functions, and how integers behave.

Expressions and small functions are printed once, in C's words (`treadle.target.c_values`,
`treadle.target.c_helpers`); a dialect says what differs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_BUILTIN = re.compile(
    r"__builtin_(fabs|sqrt|fma|rint|trunc|floor|ceil|copysign|popcountll|clzll)(f?)\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a language of the C family writes expressions.

    `helper` stands before a small function that kernels call. `names` are its words for functions
    of double that C has as `__builtin_` ones; `f` ends those of float. `wraps`: an option of its
    compiler lets signed integers wrap. `rounds`: every machine it is for rounds by instructions.
    """

    helper: str = "static inline"
    names: Mapping[str, str] = field(default_factory=dict)
    f: str = "f"
    wraps: bool = True
    rounds: bool = False

    def function(self, name: str, dtype: str) -> str:
        """Return the name of a function of floats of a type: `__builtin_sqrtf`."""
        ending = self.f if dtype == "float32" else ""
        return f"{self.names.get(name, f'__builtin_{name}')}{ending}"

    def helper_text(self, text: str) -> str:
        """Return the definition of a small function, which is written in C, in this language."""

        def name_of(found: re.Match[str]) -> str:
            return self.function(found[1], "float32" if found[2] else "float64")

        words = text.replace("static inline", self.helper)
        return _BUILTIN.sub(name_of, words) if self.names else words


C = Dialect()
"""C11 with the builtins that gcc and clang share, compiled with -fwrapv."""
