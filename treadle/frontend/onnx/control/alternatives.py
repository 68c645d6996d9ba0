# SPDX-License-Identifier: Apache-2.0
"""The branches of an If whose condition each run computes.

A branch that cannot be converted (it is made for other sizes, say, and never taken with these) is
refused by the run that takes it, so that the other one can be used. Where the branches give values
of different ranks, as `x.squeeze(0)` of a tensor that may have one row does, what follows the If is
converted for each of them: the branches become longer until their results agree.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

from treadle.errors import ModelError
from treadle.frontend.builders.closure import anchored, decided_sizes, visible
from treadle.frontend.onnx.control.runtime_control import branched, refused
from treadle.frontend.onnx.diagnostics import placed
from treadle.frontend.onnx.frames import Frame, Use, bind
from treadle.frontend.onnx.node import RuntimeValueError
from treadle.graph.nodes import Node, Tuple

REASON_LIMIT = 160
"""How many characters of what is wrong with a branch are told."""

MOST_CONTINUED = 64
"""How many times what follows an If may be converted once more for a branch."""


_BRANCHES = ("then", "else")

Finish: TypeAlias = Callable[[Sequence[Sequence[Node]]], None]
"""Takes the results of both sides."""


class Conversion(Protocol):
    """The import that an If is part of."""

    continued: int
    """How many times what follows an If was converted for a branch."""

    def push(self, frame: Frame) -> None:
        """Convert a frame before going on with the one it is pushed on."""

    def note(self, text: str) -> None:
        """Add a note that a user should read."""

    def branch_frame(self, use: Use, wanted: str) -> Frame:
        """Return the nodes of one branch of an If."""

    def bind_results(self, use: Use, results: Sequence[Node]) -> None:
        """Give the outputs of a node their values."""


class Alternatives:
    """Both branches of an If on their way into the graph."""

    def __init__(self, conversion: Conversion, use: Use, condition: Node) -> None:
        self._import, self._use, self._condition = conversion, use, condition
        self._outside = set(visible(use.frame.values))

    def start(self) -> None:
        """Convert the two branches, then give the node its results."""
        frames = [self._import.branch_frame(self._use, f"{name}_branch") for name in _BRANCHES]
        self._convert(frames, self._finish)

    def _convert(self, frames: Sequence[Frame], finish: Finish) -> None:
        """Convert two frames, one after the other, and give `finish` what they compute."""
        found: list[Sequence[Node] | ModelError] = []

        def done(frame: Frame) -> None:
            found.append(anchored([frame.values[r] for r in frame.results], frame.sizes))
            go_on()

        def failed(error: ModelError) -> None:
            found.append(error)
            with placed(self._use.place, self._use.advice):
                go_on()

        def go_on() -> None:
            if len(found) == len(frames):
                finish(self._settled(found))
                return
            frame = frames[len(found)]
            frame.after, frame.failed = done, failed
            self._import.push(frame)

        go_on()

    def _settled(self, found: Sequence[Sequence[Node] | ModelError]) -> list[Sequence[Node]]:
        """Return the results of both sides; a refusal stands for a side that failed."""
        then, orelse = found
        if isinstance(then, ModelError):
            if isinstance(orelse, ModelError):
                raise then
            return [self._refusal("then", then, orelse), orelse]
        if isinstance(orelse, ModelError):
            return [then, self._refusal("else", orelse, then)]
        return [then, orelse]

    def _refusal(self, name: str, error: ModelError, like: Sequence[Node]) -> list[Node]:
        if any(isinstance(node, Tuple) for node in like):
            raise error
        reason = " ".join(f"{error.problem} ({error.at})".split())
        if len(reason) > REASON_LIMIT:
            reason = reason[: REASON_LIMIT - 1] + "…"
        origin = f"{self._use.origin}/{name}_branch"
        self._import.note(f"a run that takes {origin} is refused: {reason}")
        return refused(self._condition, like, self._outside, reason, origin)

    def _joined(self, sides: Sequence[Sequence[Node]]) -> list[Node]:
        return branched(self._use.origin, self._condition, sides, self._outside)

    def _finish(self, sides: Sequence[Sequence[Node]]) -> None:
        try:
            results = self._joined(sides)
        except RuntimeValueError:
            if self._import.continued >= MOST_CONTINUED:
                raise
            self._import.continued += 1
            self._continue(sides)
        else:
            self._import.bind_results(self._use, results)

    def _continue(self, sides: Sequence[Sequence[Node]]) -> None:
        """Convert what follows the If, to the end of its frame, with the values of each branch."""
        frame, names = self._use.frame, self._use.proto.output
        wanted = tuple(dict.fromkeys(r for r in frame.results if r not in frame.values))
        frames = [
            replace(
                frame,
                values=ChainMap(dict(zip(names, side, strict=False)), frame.values),
                defined={*frame.defined, *names},
                sizes={**frame.sizes, **decided_sizes(side)},
                results=wanted,
                use=self._use,
            )
            for side in sides
        ]

        def finish(results: Sequence[Sequence[Node]]) -> None:
            made = self._joined(results)
            frame.sizes.update(decided_sizes(made))
            for name, value in zip(wanted, made, strict=True):
                bind(frame, name, value)
            frame.position = len(frame.nodes)

        self._convert(frames, finish)
