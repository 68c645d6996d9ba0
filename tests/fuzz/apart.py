# SPDX-License-Identifier: Apache-2.0
"""Asks the oracles in a process of their own: some nodes end onnxruntime's, or never end there."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Mapping
from functools import lru_cache
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import onnx

from tests.fuzz import oracles

SECONDS = 20.0
"""How long the oracles may take for one node, beside what starting them takes."""
START_SECONDS = 60.0
MOST_BYTES = 3 << 30
"""What they may allocate: sizes that a run decides may ask for more than there is."""


def run_node(
    node: onnx.NodeProto, inputs: Mapping[str, np.ndarray], opset: int
) -> list[list[np.ndarray]]:
    """Return what `oracles.run_node` does. Raises: oracles.Refused, where they die or hang too."""
    found: list[list[np.ndarray]] = _ask("run_node", node, inputs, opset)
    return found


def run_again(
    node: onnx.NodeProto, inputs: Mapping[str, np.ndarray], opset: int
) -> list[np.ndarray]:
    """Return what `oracles.run_again` does. Raises: oracles.Refused, where they die or hang too."""
    found: list[np.ndarray] = _ask("run_again", node, inputs, opset)
    return found


def _ask(what: str, node: onnx.NodeProto, inputs: Mapping[str, np.ndarray], opset: int) -> Any:
    # Any: what the function `what` of the oracles returns
    try:
        answer = _process().ask(what, node.SerializeToString(), dict(inputs), opset)
    except (EOFError, OSError, TimeoutError):
        _process().end()
        _process.cache_clear()
        raise oracles.Refused(f"the oracles die or hang on {node.op_type}") from None
    if isinstance(answer, MemoryError):
        raise oracles.Refused(f"{node.op_type} needs more memory than the oracles may have")
    if isinstance(answer, Exception):
        raise answer
    return answer


class _Process:
    """The oracles, in a fresh process: not a fork of one whose threads may hold a lock."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.link, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other,), daemon=True)
        self.process.start()
        other.close()
        self._receive(START_SECONDS)

    def ask(self, *question: object) -> object:
        self.link.send(question)
        return self._receive(SECONDS)

    def _receive(self, seconds: float) -> object:
        if not self.link.poll(seconds):
            raise TimeoutError
        return self.link.recv()

    def end(self) -> None:
        self.link.close()
        self.process.kill()
        self.process.join()


@lru_cache(maxsize=1)
def _process() -> _Process:
    return _Process()


def _serve(link: Connection) -> None:
    """Answer questions until the link closes; exceptions are answers."""
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    functions = {"run_node": oracles.run_node, "run_again": oracles.run_again}
    link.send("ready")
    while True:
        try:
            what, node, inputs, opset = link.recv()
        except EOFError:
            return
        try:
            link.send(functions[what](onnx.NodeProto.FromString(node), inputs, opset))
        except Exception as error:  # whatever it is, it belongs to the one who asked
            link.send(error)
