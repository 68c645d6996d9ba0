# SPDX-License-Identifier: Apache-2.0
"""The back end "cuda": loop nests to kernels in CUDA C."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from treadle.errors import TargetError
from treadle.target.backend import Backend, LoadedCode, OnDone
from treadle.target.base import Target
from treadle.target.gpu_backend import constant, lowering
from treadle.target.gpu_text import emit


def _later() -> TargetError:
    return TargetError(
        "kernels for cuda are written as source; nothing here compiles or loads them yet",
        hint="write the source with: treadle kernels MODEL --target cuda --stage source",
    )


def _check(text: str, target: Target) -> None:
    raise _later()


def _compile(
    jobs: Iterable[tuple[str, str]], target: Target, on_done: OnDone | None
) -> dict[str, bytes]:
    raise _later()


def _assembly(texts: Mapping[str, str], target: Target) -> dict[str, str]:
    raise _later()


def _version(target: Target) -> str:
    raise _later()


def _load(objects: Iterable[bytes]) -> LoadedCode:
    raise _later()


def _describe() -> str:
    raise _later()


BACKEND = Backend(
    kind="cuda",
    suffix="cu",
    lowering=lowering,
    emit=emit,
    constant=constant,
    check=_check,
    compile=_compile,
    assembly=_assembly,
    version=_version,
    load=_load,
    describe=_describe,
)
