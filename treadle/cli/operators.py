# SPDX-License-Identifier: Apache-2.0
"""The user's own operators: Python files that register records and converters when they are run."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path

from treadle.errors import TreadleError, UsageError


def load_operators(paths: Iterable[Path]) -> None:
    """Run each file once. Raises UsageError, which names the line that fails."""
    for path in paths:
        if not path.is_file():
            raise UsageError(f"{path} is not a file", hint="--operators names a Python file")
        name = f"operators in {path.resolve()}"
        if name not in sys.modules:
            _run(path, name)


def _run(path: Path, name: str) -> None:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file", hint="its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        line = _line_in(path, error)
        problem = error.problem if isinstance(error, TreadleError) else repr(error)
        hint = error.hint if isinstance(error, TreadleError) else ""
        raise UsageError(
            f"the operators in {path} cannot be used: {problem}",
            at=f"{path}, line {line}" if line else str(path),
            hint=hint or "docs/how-to/add_operator.md shows a whole file",
        ) from None


def mistake_in(paths: Iterable[Path], error: BaseException) -> UsageError | None:
    """Return what an error becomes that arose in one of the user's files, None for any other."""
    for path in paths:
        line = _line_in(path, error)
        if line:
            return UsageError(
                f"an operator of your own fails: {type(error).__name__}: {error}",
                at=f"{path}, line {line}",
                hint="--debug shows the calls that led there",
            )
    return None


def _line_in(path: Path, error: BaseException) -> int | None:
    if isinstance(error, SyntaxError):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((f.lineno for f in reversed(frames) if Path(f.filename) == path), None)
