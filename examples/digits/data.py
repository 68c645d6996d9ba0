# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's handwritten digits, split once and for all into a training and a held-out part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

HELD_OUT = 360
"""How many of the 1,797 digits training never sees."""

SPLIT_SEED = 2026


@dataclass(frozen=True)
class Digits:
    """Images float32[n, 1, 8, 8] between 0 and 1, and their labels int64[n]."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


def load() -> tuple[Digits, Digits]:
    """Return the training digits and the held-out digits."""
    bunch = load_digits()
    images = (bunch.images / 16.0).astype(np.float32)[:, np.newaxis]
    labels = bunch.target.astype(np.int64)
    order = np.random.Generator(np.random.PCG64(SPLIT_SEED)).permutation(len(labels))
    held_out, training = order[:HELD_OUT], order[HELD_OUT:]
    return Digits(images[training], labels[training]), Digits(images[held_out], labels[held_out])
