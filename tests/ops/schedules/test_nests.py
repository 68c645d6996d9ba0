# SPDX-License-Identifier: Apache-2.0
"""Whole loop nests of twelve kernels, as texts, on the written machines.

A schedule that is changed on purpose gets new texts by

    python -m pytest tests/ops/schedules/test_nests.py --update-golden

and the difference of the files under golden/ shows what became of each nest.
"""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.nests import NESTS
from tests.targets import MACHINES
from treadle.build.kernel import Kernel


@pytest.mark.parametrize("name", NESTS)
def test_the_whole_nest(name: str, golden: Any) -> None:
    texts: dict[str, list[str]] = {}
    for machine, target in MACHINES.items():
        kernel = Kernel(NESTS[name](target.lanes()), target)
        text = kernel.loop_text().replace(kernel.name, name)
        texts.setdefault(text, []).append(machine)
    parts = [f"# {', '.join(machines)}\n{text}" for text, machines in texts.items()]
    golden.check(f"{name}.txt", "\n".join(parts))
