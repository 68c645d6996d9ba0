# SPDX-License-Identifier: Apache-2.0
"""Maps are refused in words that say how to do without them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.onnx.ml.models import model_of
from tests.frontend.onnx.models import outputs_of
from treadle.errors import ModelError

X = np.zeros((2, 3), "float32")


def test_a_map_of_scores_is_refused_with_the_way_to_export_none() -> None:
    model = model_of("ZipMap", X, classlabels_int64s=[0, 1, 2])
    with pytest.raises(ModelError, match="ZipMap makes a map") as caught:
        outputs_of(model, {"x": X})
    assert "'zipmap': False" in caught.value.hint


@pytest.mark.parametrize("kind", ["CastMap", "DictVectorizer"])
def test_maps_as_inputs_are_refused(kind: str) -> None:
    with pytest.raises(ModelError, match=f"{kind} takes maps"):
        outputs_of(model_of(kind, X), {"x": X})
