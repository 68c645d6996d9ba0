# SPDX-License-Identifier: Apache-2.0
"""The text benchmark gives every step all keys before it, and both engines the same words."""

from __future__ import annotations

import numpy as np

from benchmarks import open_networks
from benchmarks.decode import Arrays, Decoder, onnxruntime_run


def test_steps_continue_the_prompt() -> None:
    model = open_networks.gpt2_cached(layers=1, width=64, vocabulary=50)
    run, lengths = onnxruntime_run(model.SerializeToString(), 1), []

    def watched(inputs: Arrays) -> list[np.ndarray]:
        lengths.append((inputs["input_ids"].shape[1], inputs["past.key.0"].shape[2]))
        return run(inputs)

    decoder, words = Decoder.of(model), np.array([[3, 1, 4]])
    times, said, logits = decoder.generate(watched, words, 3)
    assert lengths == [(3, 0), (1, 3), (1, 4), (1, 5)]
    assert len(times.steps) == 3
    whole = np.concatenate([words, *said[:3]], axis=1)
    (at_once, *_) = run({"input_ids": whole, **decoder.start(1)})
    np.testing.assert_allclose(logits[:, -1], at_once[:, -1], atol=1e-4)
    _, _, again = decoder.generate(run, words, 3, said)
    np.testing.assert_array_equal(again, logits)
