# SPDX-License-Identifier: Apache-2.0
"""The report of a tuning run: one HTML file without anything from elsewhere."""

from __future__ import annotations

import html
from collections.abc import Sequence
from math import inf
from pathlib import Path

from treadle.cli.roofline import Limits
from treadle.cli.tune_view import best_text, of_roofline, percent_text, share_of, time_text
from treadle.files import replacing
from treadle.tune.model import TuneResult
from treadle.tune.state import TaskState

_WIDTH, _HEIGHT, _SMALL = 720, 200, 120

_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 62em; color: #222 }
table { border-collapse: collapse; width: 100% }
td, th { padding: .2em .6em; text-align: right; border-bottom: 1px solid #ddd }
td:first-child, th:first-child { text-align: left; font-family: ui-monospace, monospace }
svg { background: #fafafa; border: 1px solid #ddd }
polyline { fill: none; stroke: #0a6; stroke-width: 1.5 }
.failed { color: #a00 }
"""


_HEADINGS = (
    "kernel", "uses", "share", "before", "best", "gain", "roofline %", "trials", "state",
    "best over trials",
)  # fmt: skip


def write_report(result: TuneResult, path: Path, model: str, limits: Limits | None = None) -> None:
    """Write the report; it appears when it is complete. `limits` are the machine's.

    Raises: UsageError where the system refuses to write.
    """
    with replacing(path) as file:
        file.write(report_text(result, model, limits).encode())


def report_text(result: TuneResult, model: str, limits: Limits | None = None) -> str:
    """Return the report: the time of the model over trials, and every kernel's best.

    Where the machine's limits are given, best times are held against the roofline.
    """
    tuner, both = result.tuner, result.comparison
    title = html.escape(f"Tuning of {model}")
    facts = [f"{result.trials} trials in {result.seconds / 60:.1f} minutes", best_text(tuner)]
    if result.methods is not None and result.methods.changed:
        facts.append(f"{len(result.methods.changed)} calls are computed by another method")
    if both is not None:
        facts.append(
            f"model {time_text(both.before)} -> {time_text(both.after)} "
            f"({1 / both.share:.2f}x, run in turns)"
        )
    if result.reverted:
        facts.append(f"{len(result.reverted)} kernels were faster alone and not in the model")
    points = [(float(trials), (tuner.before - saved) * 1e3) for _, trials, saved in tuner.curve]
    if limits is not None:
        facts.append(limits.text())
    order = sorted(tuner.states, key=lambda s: -s.task.uses * _time(s))
    rows = "".join(_row(s, tuner.now, limits) for s in order)
    headings = "".join(f"<th>{heading}</th>" for heading in _HEADINGS)
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>"
        f"<p>{'<br>'.join(html.escape(f) for f in facts)}</p>"
        f"<h2>All kernels of a run, in ms, over trials</h2>{_curve(points, _WIDTH, _HEIGHT)}"
        f"<h2>Kernels</h2><table><tr>{headings}</tr>{rows}</table></body></html>\n"
    )


def _time(state: TaskState) -> float:
    return 0.0 if state.seconds == inf else state.seconds


def _row(state: TaskState, total: float, limits: Limits | None) -> str:
    before = inf if state.default is None else state.default
    gain = f"{before / state.seconds:.2f}" if before < inf and state.seconds < inf else "-"
    best = [(float(k), t * 1e6) for k, t in enumerate(state.progress.best) if t < inf]
    failed = "".join(
        f'<br><span class="failed">{number} x {html.escape(kind)}</span>'
        for kind, number in state.failures.items()
    )
    nodes = html.escape(", ".join(state.task.origins[:3]))
    cells = (
        str(state.task.uses),
        percent_text(share_of(state, total)),
        time_text(before),
        time_text(state.seconds),
        gain,
        percent_text(of_roofline(state, limits)),
        str(len(state.trials)),
        state.status,
        _curve(best, _SMALL, 28),
    )
    return (
        f'<tr><td title="{nodes}">{html.escape(state.task.name)}{failed}</td>'
        + "".join(f"<td>{cell}</td>" for cell in cells)
        + "</tr>"
    )


def _curve(points: Sequence[tuple[float, float]], width: int, height: int) -> str:
    """Return a line through points as SVG, its axes from 0 to the largest values."""
    if not points:
        return ""
    right = max(x for x, _ in points) or 1.0
    top = max(y for _, y in points) or 1.0
    steps: list[str] = []
    last = height - points[0][1] / top * (height - 4)
    for x, y in points:
        across, down = x / right * width, height - y / top * (height - 4)
        steps += [f"{across:.1f},{last:.1f}", f"{across:.1f},{down:.1f}"]
        last = down
    labels = ""
    if height > 100:
        labels = (
            f'<text x="4" y="14" font-size="11">{top:.3g}</text>'
            f'<text x="{width - 50}" y="{height - 4}" font-size="11">{right:.0f}</text>'
        )
    return (
        f'<svg width="{width}" height="{height}" role="img"><polyline points="{" ".join(steps)}"/>'
        f"{labels}</svg>"
    )
