# SPDX-License-Identifier: Apache-2.0
"""Where in the user's model something went wrong: errors of converters get a place and a hint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from treadle.errors import ModelError, TreadleError

MISTAKES = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NotImplementedError, TypeError,
    ValueError,
)  # fmt: skip
"""What a converter raises that meets arguments it was not written for."""


def _nothing() -> str:
    return ""


@contextmanager
def placed(
    place: Callable[[], str], *, mistake: str, advice: Callable[[], str] = _nothing
) -> Iterator[None]:
    """Give whatever goes wrong inside the place it happened at, as a ModelError.

    A place and a hint that an error already has are kept. `advice` is asked for the hint of one
    without; `mistake` is the hint where a converter meets what it was not written for, which is
    most often a model that breaks the rules of its format.
    """
    try:
        yield
    except ModelError as e:
        raise e.completed(place(), e.hint or advice()) from None
    except TreadleError as e:
        raise ModelError(e.problem, at=place(), hint=e.hint or advice()) from None
    except MemoryError:
        raise ModelError("this node needs more memory than there is", at=place()) from None
    except MISTAKES as e:
        problem = f"this node cannot be converted: {type(e).__name__}: {e}"
        raise ModelError(problem, at=place(), hint=mistake) from e
