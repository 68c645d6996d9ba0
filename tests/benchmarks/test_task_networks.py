# SPDX-License-Identifier: Apache-2.0
"""The exported networks of tasks run, and are the same each time."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from benchmarks import task_networks  # noqa: E402

pytestmark = pytest.mark.torch
SMALL = ("perceptron", "recommender", "gru_tagger", "espcn", "yolo_like", "sam_like", "transducer")


@pytest.mark.parametrize("name", SMALL)
def test_a_network_runs_with_its_drawn_weights(name: str) -> None:
    results = []
    for _ in range(2):
        module, inputs = task_networks.seeded(task_networks.NETWORKS[name])
        with torch.no_grad():
            results.append(module(*inputs))
    first, second = results
    assert torch.isfinite(first).all()
    assert first.std() > 0
    torch.testing.assert_close(first, second)
