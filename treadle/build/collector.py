# SPDX-License-Identifier: Apache-2.0
"""The garbage collector of Python, which finds nothing among the expressions of a kernel.

A kernel is made of some ten thousand small objects without cycles: reference counts free them. The
collector would walk over them, and over all modules, several times.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


def without_collector(make: Callable[[S], T]) -> Callable[[S], T]:
    """Return a method that runs without the garbage collector, where that runs at all."""

    @wraps(make)
    def made(self: S) -> T:
        if not gc.isenabled():
            return make(self)
        gc.disable()
        try:
            return make(self)
        finally:
            gc.enable()

    return made
