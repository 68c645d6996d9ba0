# SPDX-License-Identifier: Apache-2.0
"""Compiled kernels kept on disk under what they are made of, so that nothing is lowered twice.

The key is the whole content: the fused function as text, the target with every number schedules
read, what the schedule is told, and a digest of the compiler's own source. What operators
from outside this package compute is in none of these (their Python may read anything), so kernels
with one are lowered in every compilation; from there on the back end keeps them, by their source
text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from treadle.build.compiler_digest import compiler_digest
from treadle.build.kernel import ObjectCode
from treadle.graph import nodes as g
from treadle.graph.nodes import Function
from treadle.graph.operator import Operator
from treadle.ops import BUILT_IN
from treadle.settings import get as current_settings
from treadle.target.backend import backend_of
from treadle.target.base import Target
from treadle.target.cache import kernel_cache, object_cache_folder
from treadle.te.choice import Choice
from treadle.te.knobs import DEFAULTS

_SIZE_BYTES = 8


def _code_of(operator: Operator[Any]) -> tuple[object, ...]:
    """Return what of a record decides the code of a kernel, comparable by identity."""
    return operator.compute, operator.cases, dict(operator.schedule)


_BUILT_IN = {operator: _code_of(operator) for operator in BUILT_IN}


def foreign_operators(function: Function) -> Iterable[Operator[Any]]:
    """Yield the operators of a fused function that are not, or no longer, this package's."""
    for node in g.topological([function.body]):
        if not isinstance(node, g.Call) or not isinstance(node.op, Operator):
            continue
        if _BUILT_IN.get(node.op) != _code_of(node.op):
            yield node.op


def kernel_key(
    name: str, text: str, function: Function, target: Target, choice: Choice = DEFAULTS
) -> str | None:
    """Return the key of a kernel, everything its code depends on; None where that is not known."""
    compiler = compiler_digest()
    if compiler is None or any(foreign_operators(function)):
        return None
    version = backend_of(target).version(target)
    chosen = json.dumps(choice.to_json(), sort_keys=True)
    return "\n".join([name, compiler, version, repr(asdict(target)), chosen, text])


def cache_folders() -> tuple[Path, Path]:
    """Return the folders of the kernels by group and by LLVM IR."""
    return current_settings().cache / "groups", object_cache_folder()


def load_kernel(key: str | None) -> ObjectCode | None:
    """Return a kernel kept under `key`, None where there is none or the passes are watched."""
    if key is None or current_settings().is_watched:
        return None
    data = kernel_cache(cache_folders()[0]).load(key)
    if data is None or len(data) <= _SIZE_BYTES:
        return None
    start = _SIZE_BYTES + int.from_bytes(data[:_SIZE_BYTES], "little")
    return ObjectCode(data[start:], **json.loads(data[_SIZE_BYTES:start]))


def store_kernel(key: str | None, kernel: ObjectCode) -> None:
    """Keep a kernel under `key`, unless the passes are watched."""
    if key is None or current_settings().is_watched:
        return
    facts = json.dumps({"workspace": kernel.workspace, "stack": kernel.stack}).encode()
    head = len(facts).to_bytes(_SIZE_BYTES, "little") + facts
    kernel_cache(cache_folders()[0]).store(key, head + kernel.code)
