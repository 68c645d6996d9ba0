# SPDX-License-Identifier: Apache-2.0
"""Writes an ONNX graph node by node, with seeded parameters; networks are built on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, version_converter

from benchmarks.weights import Role, draw

OPSET = 17
_IR_VERSION = 8
"""What goes with opset 17."""

Attribute = int | float | str | list[int]


class Writer:
    """Nodes and parameters so far; every method returns the name of what it adds."""

    def __init__(self, network: str) -> None:
        self.network = network
        self.nodes: list[onnx.NodeProto] = []
        self.parameters: dict[str, TensorProto] = {}

    def node(self, operator: str, inputs: Sequence[str], name: str, **attributes: Attribute) -> str:
        """Add a node with one output; node and output are called `name`."""
        return self.node_of(operator, inputs, name, [name], **attributes)[0]

    def node_of(
        self,
        operator: str,
        inputs: Sequence[str],
        name: str,
        outputs: Sequence[str],
        **attributes: Attribute,
    ) -> list[str]:
        """Add a node with the given outputs."""
        node = helper.make_node(operator, list(inputs), list(outputs), name=name)
        node.attribute.extend(helper.make_attribute(key, attributes[key]) for key in attributes)
        self.nodes.append(node)
        return list(outputs)

    def parameter(self, name: str, shape: tuple[int, ...], role: Role) -> str:
        """Add a parameter drawn from the seed of the network and its name."""
        return self.constant(name, draw(self.network, name, shape, role))

    def constant(self, name: str, value: NDArray[np.generic]) -> str:
        """Add a stored array; one that is stored already under this name is shared."""
        if name not in self.parameters:
            self.parameters[name] = numpy_helper.from_array(value, name)
        return name

    def scalar(self, value: float) -> str:
        """Add a float32 scalar."""
        return self.constant(f"float.{value:.9g}", np.array(value, np.float32))

    def integers(self, *values: int) -> str:
        """Add an int64 vector, such as the shape a Reshape takes."""
        return self.constant("ints." + ".".join(map(str, values)), np.array(values, np.int64))

    def reshape(self, source: str, shape: Sequence[int], name: str) -> str:
        """Add a Reshape."""
        return self.node("Reshape", [source, self.integers(*shape)], name)

    def transpose(self, source: str, perm: Sequence[int], name: str) -> str:
        """Add a Transpose."""
        return self.node("Transpose", [source], name, perm=list(perm))

    def model(
        self,
        inputs: Mapping[str, tuple[int, Sequence[int | str]]],
        outputs: Mapping[str, Sequence[int | str]],
        opset: int | None,
    ) -> onnx.ModelProto:
        """Return the model; inputs by name with element type and shape, float32 outputs.

        A text in a shape names a size that each run decides.
        """
        graph = helper.make_graph(
            self.nodes,
            self.network,
            [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
            list(self.parameters.values()),
        )
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="treadle benchmarks")
        model.ir_version = _IR_VERSION
        return model if opset in (None, OPSET) else version_converter.convert_version(model, opset)
