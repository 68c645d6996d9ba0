# SPDX-License-Identifier: Apache-2.0
"""Random graphs against onnxruntime and onnx.reference; `python -m tests.fuzz` checks more."""

from __future__ import annotations

import pytest

from tests.fuzz.check import check_graph
from tests.fuzz.generate import make_graph
from tests.fuzz.graph import Graph
from tests.fuzz.minimise import describe

CHUNKS, GRAPHS = 10, 12


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_graphs_give_what_the_oracles_say(chunk: int) -> None:
    """Chunks, so that processes of pytest share them. A rare refusal is no wrong result."""
    refused = []
    for seed in range(chunk * GRAPHS, (chunk + 1) * GRAPHS):
        graph = make_graph(seed)
        finding = check_graph(graph)
        if finding is not None and finding.kind == "refused":
            refused += [] if _has_open_sizes(graph) else [str(finding)]
            continue
        assert finding is None, f"graph {seed}: {finding}\n{describe(graph)}"
    assert len(refused) <= 1, refused


def _has_open_sizes(graph: Graph) -> bool:
    """True where a size is not known before a run: of an input, or of what a value decides."""
    selecting = {"Compress", "NonZero", "Unique", "NonMaxSuppression"}
    return bool(graph.others) or any(n.op_type in selecting for n in graph.nodes)


def test_the_same_seed_makes_the_same_graph() -> None:
    assert describe(make_graph(3)) == describe(make_graph(3))
