# SPDX-License-Identifier: Apache-2.0
"""What is done of a comparison with another tuner stays; the peer here is none."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.tuning_peer import PROBLEMS, Effort, Kept, Peer, PeerFailed, tune_peer

pytestmark = pytest.mark.tiny


class Answers(Peer):
    """Answers each round with the seconds that it took, until it fails."""

    def __init__(self, rounds: int, seconds: float = 2.0) -> None:
        self.rounds, self.seconds = rounds, seconds
        self.asked: list[dict[str, object]] = []

    def ask(self, seconds: float, **request: object) -> dict[str, object]:
        if len(self.asked) == self.rounds:
            raise PeerFailed("it ended")
        self.asked.append(request)
        return {"seconds": self.seconds, "processor": 1.5 * self.seconds}


def test_a_search_goes_on_after_its_last_whole_round(tmp_path: Path) -> None:
    never = time.monotonic() + 1000
    with pytest.raises(PeerFailed):
        tune_peer(Answers(2), "dense", 40, Kept.of(tmp_path, "dense"), never)
    kept = Kept.of(tmp_path, "dense")
    assert kept.peer == Effort(seconds=4.0, processor=6.0, asked=32)
    assert kept.mine == Effort()
    peer = Answers(9)
    tune_peer(peer, "dense", 40, kept, never)
    assert [r["trials"] for r in peer.asked] == [8]
    assert peer.asked[0]["seed"] == 32
    assert Kept.of(tmp_path, "dense").peer.asked == 40
    tune_peer(peer, "dense", 40, Kept.of(tmp_path, "dense"), never)
    assert len(peer.asked) == 1


def test_no_round_begins_when_the_time_is_over(tmp_path: Path) -> None:
    peer = Answers(9)
    tune_peer(peer, "conv1x1", 64, Kept.of(tmp_path, "conv1x1"), time.monotonic())
    assert peer.asked == []


def test_a_convolution_is_what_the_definition_says() -> None:
    problem = PROBLEMS["conv3x3"]
    x, w = problem.arrays()
    inside = np.einsum("cij,ocij->o", x[0, :, 4:7, 8:11].astype(np.float64), w)
    np.testing.assert_allclose(problem.expected()[0, :, 5, 9], inside, rtol=1e-9)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_peer_is_told_the_shape_of_the_result(name: str) -> None:
    assert PROBLEMS[name].expected().shape == PROBLEMS[name].result
