# SPDX-License-Identifier: Apache-2.0
"""Loop and Scan on their way into the graph: unrolled, or as a loop of the plan.

A loop whose number of iterations is known is unrolled while that makes few nodes. What becomes many
nodes, or whose end each run decides, is a loop of the plan, where its body can be one for all
iterations.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import onnx

from treadle.errors import ModelError
from treadle.frontend.builders.closure import visible
from treadle.frontend.onnx.control.runtime_control import LoopParameters, Running
from treadle.frontend.onnx.control.unrolled_loops import Repetition
from treadle.frontend.onnx.frames import Frame, Use
from treadle.frontend.onnx.node import RuntimeValueError
from treadle.graph.nodes import Node

REPETITION_LIMIT = 50_000
"""How many nodes the bodies of loops may become when they are unrolled."""

UNROLLED_NODES = 3_000
"""More than this many nodes are a loop of the plan, where its body is one: each takes some 2 ms to
compile, and the time that an iteration costs of its own is nothing compared with as many nodes."""


class Conversion(Protocol):
    """The import that a loop is part of."""

    def push(self, frame: Frame) -> None:
        """Convert a frame before going on with the one it is pushed on."""

    def bind_results(self, use: Use, results: Sequence[Node]) -> None:
        """Give the outputs of a node their values."""

    def initializers(self, graph: onnx.GraphProto) -> dict[str, Node]:
        """Return the initializers of a body by name."""

    def folded(self, results: Sequence[Node]) -> list[Node]:
        """Return results, those computed of constants alone as constants."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """The loop that a frame is one iteration of, and its node."""

    repetition: Repetition
    use: Use
    own: Mapping[str, Node]
    at_run_time: Callable[[], Running]
    may_run: bool = True
    """Whether it was not tried yet to make it a loop of the plan."""


class Loops:
    """The loops of one import, and how many nodes unrolling has made."""

    def __init__(self, conversion: Conversion) -> None:
        self._import = conversion
        self.parameters = LoopParameters()
        self._repeated = 0

    def _finish_iteration(self, frame: Frame, iteration: Iteration) -> None:
        iteration.use.frame.sizes.update(frame.sizes)
        self._next_iteration(frame, iteration)

    def _next_iteration(self, frame: Frame, iteration: Iteration) -> None:
        try:
            iteration.repetition.take([frame.values[r] for r in frame.results])
        except RuntimeValueError:
            self.run_time(iteration.use, iteration.at_run_time())
            return
        self.iterate(iteration)

    def run_time(
        self, use: Use, running: Running, otherwise: Callable[[], None] | None = None
    ) -> None:
        """Convert the body of a loop once, and again while its states turn out to vary.

        `otherwise` goes on where the body cannot be one for all iterations.
        """
        own = self._import.initializers(running.body)
        outside = set(visible(use.frame.values))

        def done(frame: Frame) -> None:
            results = [frame.values[r] for r in frame.results]
            try:
                made = None
                if not running.widen(results):
                    made = running.results(results, outside, frame.sizes)
            except ModelError:
                if otherwise is None:
                    raise
                otherwise()
                return
            if made is None:
                start()
            else:
                self._import.bind_results(use, made)

        def start() -> None:
            given = running.given()
            self.parameters.add(given.values(), use.inputs)
            frame = self._body_frame(use, running.body, {**own, **given}, "body")
            frame.after = done
            if otherwise is not None:
                frame.failed, frame.is_unrolled_else = lambda _: otherwise(), True
            self._import.push(frame)

        start()

    def iterate(self, iteration: Iteration) -> None:
        """Start the next iteration of a loop, or hand its results to the node it stands for."""
        use, body = iteration.use, iteration.repetition.body
        given = iteration.repetition.inputs()
        if given is None:
            self._import.bind_results(use, self._import.folded(iteration.repetition.outputs()))
            return
        self._repeated += max(len(body.node), 1)
        # What comes to more in the end is not unrolled up to the limit first.
        whole = max(self._repeated, iteration.repetition.certain * max(len(body.node), 1))
        if whole > REPETITION_LIMIT and not iteration.repetition.is_batched:
            self._repeated = 0
            self.run_time(use, iteration.at_run_time())
            return
        if whole > UNROLLED_NODES and iteration.may_run and not iteration.repetition.is_batched:
            self._try_loop(iteration, given)
            return
        self._unroll(iteration, given)

    def _try_loop(self, iteration: Iteration, given: Sequence[Node]) -> None:
        """Make a loop one of the plan; where its body cannot be one, go on to unroll it."""
        before, self._repeated = self._repeated, 0

        def otherwise() -> None:
            self._repeated = before
            self._unroll(replace(iteration, may_run=False), given)

        try:
            self.run_time(iteration.use, iteration.at_run_time(), otherwise)
        except ModelError:
            otherwise()

    def _unroll(self, iteration: Iteration, given: Sequence[Node]) -> None:
        """Convert one iteration of a loop; the others follow it."""
        use, body = iteration.use, iteration.repetition.body
        self._check_budget(use)
        own = {**iteration.own, **dict(zip((i.name for i in body.input), given, strict=False))}
        frame = self._body_frame(use, body, own, str(iteration.repetition.done))
        frame.after = lambda f: self._finish_iteration(f, iteration)
        self._import.push(frame)

    def _body_frame(
        self, use: Use, body: onnx.GraphProto, own: MutableMapping[str, Node], name: str
    ) -> Frame:
        return Frame(
            nodes=body.node,
            values=ChainMap(own, use.frame.values),
            opsets=use.frame.opsets,
            results=tuple(o.name for o in body.output),
            prefix=f"{use.origin}/{name}/",
            attributes=use.frame.attributes,
            defined=set(own),
            use=use,
        )

    def _check_budget(self, use: Use) -> None:
        if self._repeated > REPETITION_LIMIT:
            raise ModelError(
                f"the model has more than {REPETITION_LIMIT} nodes after its loops are unrolled; "
                f"the limit is passed in {use.proto.op_type}",
                hint="give fewer iterations, or export the layer as one operator",
            )
