# SPDX-License-Identifier: Apache-2.0
"""Operators of ai.onnx.ml on maps: refused, for every value here is a tensor."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.frontend.onnx.ml.features import DOMAIN
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Node


@converter("ZipMap", since=(1,), domain=DOMAIN)
def zip_map(node: OnnxNode) -> Node:
    """Refuse maps from labels to scores."""
    raise ModelError(
        "ZipMap makes a map from labels to scores for each row; Treadle has tensors only",
        hint="export the model without it (skl2onnx: options={'zipmap': False}), so that the "
        "scores of all classes are the output",
    )


@converter("DictVectorizer", since=(1,), domain=DOMAIN)
@converter("CastMap", since=(1,), domain=DOMAIN)
def from_map(node: OnnxNode) -> Node:
    """Refuse maps as inputs."""
    raise ModelError(
        f"{node.op} takes maps; Treadle has tensors only",
        hint="export the part of the model behind it, which takes rows of features",
    )
