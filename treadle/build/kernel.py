# SPDX-License-Identifier: Apache-2.0
"""One kernel of a compiled model: its graph, schedule, loops, source text and assembly."""

from __future__ import annotations

import hashlib
import re
from functools import cached_property

from treadle.build.group import function_sizes, group_space, lower_group
from treadle.errors import UsageError
from treadle.expr.nodes import Var
from treadle.graph.nodes import Function
from treadle.graph.text import function_text
from treadle.loop.nodes import PrimFunc, func_text
from treadle.lower.pipeline import LOOPS
from treadle.passes import final_text
from treadle.target.backend import Backend, CompileError, backend_of
from treadle.target.base import Target
from treadle.te.knobs import DEFAULTS, Config, Knob, Space
from treadle.te.schedule import Schedule


class Kernel:
    """A fused function on its way to machine code; every stage is text that can be read.

    `name` is its symbol in the machine code, the same for the same content in every model;
    `content` is the fused function as text without origins; `config` are the choices its schedule
    is told; `origins` are the nodes of the user's model that run in it.
    """

    def __init__(self, function: Function, target: Target, config: Config = DEFAULTS) -> None:
        self.function = function
        self.target = target
        self.config = config
        self.origins: list[str] = []
        label = re.sub(r"_\d+$", "", function.name) or "kernel"
        content = Function(function.params, function.body, label, function.attrs)
        self.content = function_text(content, origins=False)
        digest = hashlib.sha256(self.content.encode()).hexdigest()
        self.name = f"{label}_{digest[:12]}"

    @property
    def backend(self) -> Backend:
        """The back end that makes its code."""
        return backend_of(self.target)

    @property
    def sizes(self) -> tuple[Var, ...]:
        """The symbolic sizes the kernel takes, in its order."""
        return function_sizes(self.function)

    def __repr__(self) -> str:
        return f"Kernel({self.name})"

    def graph_text(self) -> str:
        """Return the fused function as graph text."""
        return function_text(self.function)

    @property
    def space(self) -> Space:
        """All configurations of its schedule."""
        return group_space(self.function, self.target, self.name)

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """What its schedule chooses with `config`: candidates, what they cost, values.

        Raises: ConfigError where the configuration does not fit the schedule.
        """
        return self.space.knobs(self.config)

    def configure(self, config: Config) -> None:
        """Take another configuration; what was made with the one before is dropped."""
        self.config = config
        self.release()

    @cached_property
    def _scheduled(self) -> tuple[list[Schedule], PrimFunc]:
        return lower_group(self.function, self.target, self.name, self.config)

    @property
    def schedule(self) -> str:
        """The schedule steps, one a line; of several cases one after the other."""
        return "\n\n".join(s.text() for s in self._scheduled[0])

    @cached_property
    def loops(self) -> PrimFunc:
        """The loop nest with multi-dimensional buffers."""
        return LOOPS.run(self._scheduled[1], label=self.name)

    @cached_property
    def lowered(self) -> PrimFunc:
        """The loop nest that is handed to the code generator."""
        return self.backend.lowering(self.target).run(self.loops, label=self.name)

    def loop_text(self) -> str:
        """Return the loop nest as Python-like text."""
        return func_text(self.loops)

    @property
    def _source_file(self) -> str:
        return f"00_{self.backend.kind}.{self.backend.suffix}"

    @cached_property
    def _source(self) -> str:
        text = self.backend.emit(self.lowered, self.target)
        final = final_text(self.name, "target", self._source_file, text)
        if final != text:
            self._check_edited(final)
        return final

    def _check_edited(self, text: str) -> None:
        try:
            self.backend.check(text, self.target)
        except CompileError as error:
            raise UsageError(
                f"the compiler refuses the edited kernel: {error}",
                at=f"{self.name}/target/{self._source_file} in the folder TREADLE_OVERRIDE names",
                hint="correct the file or remove it",
            ) from error

    def source(self) -> str:
        """Return the source text that the back end compiles: LLVM IR or C."""
        return self._source

    def asm(self) -> str:
        """Return the assembly of the target, as it runs."""
        return self.backend.assembly({self.name: self._source}, self.target)[self.name]

    def release(self) -> None:
        """Drop the intermediate forms; they are made again when asked for."""
        for name in ("_scheduled", "loops", "lowered", "_source"):
            self.__dict__.pop(name, None)
