# SPDX-License-Identifier: Apache-2.0
"""`treadle explain --kernel`: what the schedule of one kernel chose, from what, at which cost."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from treadle.build.kernel import Kernel
from treadle.cli.table import print_table
from treadle.cli.text import console, count_text, print_row
from treadle.errors import UsageError
from treadle.te.knobs import Knob, value_text


def kernel_called(name: str, kernels: Sequence[Kernel]) -> Kernel:
    """Return the kernel of this name, or the only one whose name begins so.

    Raises: UsageError where there is none, or there are several.
    """
    names = [k.name for k in kernels]
    found = [k for k in kernels if k.name == name] or [
        k for k in kernels if k.name.startswith(name)
    ]
    if len(found) == 1:
        return found[0]
    close = [k.name for k in found] or difflib.get_close_matches(name, names, 3) or names[:3]
    said = f"{len(found)} kernels are called {name}…" if found else f"there is no kernel {name}"
    raise UsageError(said, hint=f"name one, for example {', '.join(close[:3])}")


def knobs_json(kernel: Kernel, notes: Sequence[str], *, is_space: bool) -> object:
    """Return the knobs of a kernel as plain data; with all candidates where the space is wanted.

    `notes` are those of the compilation, such as which record does not fit.
    """
    return {
        "kernel": kernel.name,
        "target": str(kernel.target),
        "notes": list(notes),
        "origins": sorted(set(kernel.origins)),
        "config": kernel.choice.to_json(),
        "size": kernel.space.size,
        "knobs": [_knob_json(knob, is_space=is_space) for knob in kernel.knobs],
    }


def _knob_json(knob: Knob, *, is_space: bool) -> object:
    other = knob.next_best
    found: dict[str, object] = {
        "name": knob.name,
        "parts": list(knob.parts),
        "value": knob.value,
        "cost": knob.cost,
        "is_default": knob.is_default,
        "next_best": None if other is None else _candidate_json(knob, other),
        "candidates": len(knob.candidates),
    }
    if is_space:
        found["space"] = [_candidate_json(knob, i) for i in range(len(knob.candidates))]
    return found


def _candidate_json(knob: Knob, place: int) -> dict[str, object]:
    cost = knob.costs[place] if knob.costs else None
    return {"value": knob.candidates[place], "cost": cost}


def print_knobs(kernel: Kernel, notes: Sequence[str], *, is_space: bool) -> None:
    """Print a line per knob: its value and the next best, what the model says of each."""
    out = console()
    print_row(out, "kernel", kernel.name)
    print_row(out, "target", str(kernel.target))
    for note in notes:
        print_row(out, "note", note)
    print_row(out, "nodes", ", ".join(dict.fromkeys(o for o in kernel.origins if o)) or "(unnamed)")
    knobs = kernel.knobs
    size = f"{count_text(kernel.space.size, 'configuration')} of {count_text(len(knobs), 'knob')}"
    print_row(out, "space", size)
    print_row(out, "config", str(kernel.choice))
    if not knobs:
        return
    out.print()
    headings = ("knob", "value", "", "cost", "next best", "cost", "candidates")
    print_table(out, headings, [_line(knob) for knob in knobs])
    for knob in knobs if is_space else ():
        _print_candidates(knob)


def _line(knob: Knob) -> tuple[str, ...]:
    other = knob.next_best
    best = ("", "") if other is None else (value_text(knob.candidates[other]), _cost(knob, other))
    mark = "" if knob.is_default else "set"
    value = value_text(knob.value), mark, _cost(knob, knob.chosen)
    return (_title(knob), *value, *best, str(len(knob.candidates)))


def _title(knob: Knob) -> str:
    """Return the name of a knob and what the entries of its values are."""
    return knob.name + (f" ({' × '.join(knob.parts)})" if knob.parts else "")


def _cost(knob: Knob, place: int) -> str:
    return f"{knob.costs[place]:.5g}" if knob.costs else ""


def _print_candidates(knob: Knob) -> None:
    """Print all candidates of a knob, the cheapest first."""
    out = console()
    order = range(len(knob.candidates))
    if knob.costs:
        order = sorted(order, key=knob.costs.__getitem__)  # type: ignore[assignment]
    rows = [
        (value_text(knob.candidates[i]), _cost(knob, i), "taken" if i == knob.chosen else "")
        for i in order
    ]
    out.print()
    print_table(out, (_title(knob), "cost", ""), rows)
