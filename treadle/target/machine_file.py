# SPDX-License-Identifier: Apache-2.0
"""The facts of one machine in a file, as `treadle doctor --measure --save` writes them.

{"format": 1, "name": "...", "source": "...", "facts": {"fma-units": "2", "caches": "32K,1M,32M"}}

Facts are written as the options of a target string are; what is left out is the CPU's row's.
"""

from __future__ import annotations

import json
from pathlib import Path

from treadle.errors import TargetError
from treadle.files import replacing
from treadle.target.machine import Machine
from treadle.target.machine_options import FACTS, OPTIONS, with_options

_FORMAT = 1
_MOST_BYTES = 1 << 20
_HINT = "write one by: treadle doctor --measure --save FILE"


def save_machine(path: Path, machine: Machine, name: str, source: str) -> None:
    """Write the facts of a machine to a file, in one step.

    Raises: UsageError where the system refuses.
    """
    facts = {fact.option: fact.write(fact.get(machine)) for fact in FACTS}
    record = {"format": _FORMAT, "name": name, "source": source, "facts": facts}
    with replacing(path) as file:
        file.write((json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())


def read_machine(path: Path, row: Machine) -> Machine:
    """Return `row` with the facts of a file.

    Raises: TargetError for a file that cannot be read or that holds anything else.
    """
    facts = _facts_of(_read(path), path)
    unknown = sorted(set(facts) - set(OPTIONS))
    if unknown:
        raise TargetError(
            f"{unknown[0]!r} is not a fact of a machine",
            at=str(path),
            hint=f"facts are {', '.join(OPTIONS)}",
        )
    return with_options(row, facts, str(path))


def _read(path: Path) -> object:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TargetError(
            f"the facts of a machine cannot be read: {reason}", at=str(path), hint=_HINT
        ) from error
    try:
        return None if len(data) > _MOST_BYTES else json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TargetError("this is not JSON", at=str(path), hint=_HINT) from error


def _facts_of(record: object, path: Path) -> dict[str, str]:
    facts = record.get("facts") if isinstance(record, dict) else None
    is_known = isinstance(record, dict) and record.get("format") == _FORMAT
    if not is_known or not isinstance(facts, dict):
        raise TargetError("this does not hold the facts of a machine", at=str(path), hint=_HINT)
    texts = {str(name): text for name, text in facts.items() if isinstance(text, str)}
    if len(texts) != len(facts):
        raise TargetError("a fact of a machine is not a text", at=str(path), hint=_HINT)
    return texts
