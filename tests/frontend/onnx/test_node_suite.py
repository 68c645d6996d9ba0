# SPDX-License-Identifier: Apache-2.0
"""Every node test of the onnx package whose operators Treadle converts, run by the references.

A test passes, or is refused for one of the reasons below, or is listed as a mismatch.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.test_case import TestCase as Case
from onnx.backend.test.loader import load_model_tests

from tests.frontend.onnx import casts
from tests.frontend.onnx.mutants import mutant
from treadle.errors import ModelError, UnsupportedOperators
from treadle.frontend.importer import Imported
from treadle.frontend.onnx.importer import import_onnx
from treadle.frontend.onnx.node import RuntimeValueError
from treadle.graph.interpret import run

REFUSED = (
    r"the element type (float6|string|complex)\w* is not supported",
    r"\w+ (of|with) strings is not supported",
    r"it is not a tensor \((sequence|optional)_type\)",
)
"""What an importer of dense tensors, for inference, does not take."""

MISMATCHES = {
    # onnxruntime scales by the whole number of pixels too; ONNX's own reference by the fraction
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
    # another generator draws other random numbers
    "test_bernoulli",
    "test_bernoulli_double",
    "test_bernoulli_double_expanded",
    "test_bernoulli_expanded",
    "test_bernoulli_seed",
    "test_bernoulli_seed_expanded",
    "test_training_dropout",
    "test_training_dropout_default",
    "test_training_dropout_default_mask",
    "test_training_dropout_mask",
    # the expected values were accumulated in float16
    "test_attention_4d_causal_fp16",
    "test_attention_4d_causal_fp16_expanded",
}

FEWEST_PASSED = {"1.23.2": 1590}
"""How many tests pass at least, by version of the onnx package."""


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # while the package computes its expected values
        return list(load_model_tests(kind="node"))


def _array(value: object) -> np.ndarray:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value)


def _imported(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> Imported:
    """Import with the inputs that must be known fixed to their values."""
    fixed: dict[str, np.ndarray] = {}
    while True:
        try:
            return import_onnx(model, values=fixed)
        except RuntimeValueError as e:
            if not set(e.inputs) - set(fixed):
                raise
            fixed |= {n: inputs[n] for n in e.inputs}


def _problems(case: Case) -> Iterator[str]:
    for values, expected in case.data_sets or ():
        inputs = {i.name: v for i, v in zip(case.model.graph.input, values, strict=False)}
        inputs = {n: _array(v) for n, v in inputs.items()}
        main = _imported(case.model, inputs).module.main
        results = run(main, {p.name: inputs[p.name] for p in main.params})
        for got, want in zip(results, map(_array, expected), strict=True):
            if (got.shape, got.dtype) != (want.shape, want.dtype):
                yield f"{got.dtype}{got.shape} for {want.dtype}{want.shape}"
                continue
            known = casts.defined(case.model, next(iter(inputs.values()), want), want)
            yield from _differences(got[known], want[known], case)


def _differences(got: np.ndarray, want: np.ndarray, case: Case) -> Iterator[str]:
    if want.dtype.kind not in "fV":
        yield from () if np.array_equal(got, want) else ("other values",)
        return
    rtol = max(case.rtol, 2**-6) if want.dtype.name == "bfloat16" else case.rtol
    close = np.isclose(
        got.astype("float64"), want.astype("float64"), rtol, max(case.atol, 1e-6), equal_nan=True
    )
    yield from () if close.all() else ("other values",)


def test_node_suite(cases: list[Case]) -> None:
    passed, failed, unexplained = 0, set(), []
    for case in cases:
        graph = case.model.graph
        if not all(v.type.HasField("tensor_type") for v in (*graph.input, *graph.output)):
            continue  # sequences and optional values: tests/integrations/test_conformance.py
        try:
            problems = list(_problems(case))
        except UnsupportedOperators:
            continue
        except ModelError as e:
            if not any(re.search(reason, e.problem) for reason in REFUSED):
                unexplained.append(f"{case.name}: {e}")
            continue
        passed += not problems
        failed |= {case.name} if problems else set()
    assert not unexplained
    assert failed == MISMATCHES & {c.name for c in cases}
    assert passed >= FEWEST_PASSED.get(onnx.__version__, 1000)


PLACE = re.compile(r"node \S+ \(index \d+\), operator \w+(-\d+)?, opset \d+")


def test_damaged_models_of_every_operator_are_refused_with_a_place_and_advice(
    cases: list[Case],
) -> None:
    """Nothing but our own errors arises, and none that says no more than that it went wrong."""
    rng = random.Random(3)
    by_operator: dict[str, list[Case]] = {}
    for case in cases:
        by_operator.setdefault(case.model.graph.node[0].op_type, []).append(case)
    errors = []
    for case in (c for found in by_operator.values() for c in rng.choices(found, k=3)):
        try:
            import_onnx(mutant(case.model, rng))
        except ModelError as e:
            errors.append(e)
    assert len(errors) > len(by_operator)
    assert [str(e) for e in errors if not e.at or not e.hint] == []
    assert [str(e) for e in errors if ", node " in e.at and not PLACE.search(e.at)] == []
    assert [str(e) for e in errors if "cannot be converted" in e.problem] == []


@pytest.mark.parametrize(
    ("op", "shapes", "dtype", "said"),
    [
        ("TopK", ([3, 4], [2]), TensorProto.INT64, "K must be one number, not int64[2]"),
        ("Compress", ([3], []), TensorProto.BOOL, "the condition must be a vector, not bool[]"),
        ("Attention", ([3], [3]), TensorProto.FLOAT, "takes 3 to 6"),
    ],
)
def test_what_does_not_fit_is_named(
    op: str, shapes: tuple[list[int], list[int]], dtype: int, said: str
) -> None:
    inputs = [
        onnx.helper.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in zip("xk", (TensorProto.FLOAT, dtype), shapes, strict=True)
    ]
    outputs = [onnx.helper.make_empty_tensor_value_info("y")]
    node = onnx.helper.make_node(op, ["x", "k"], ["y"], name="it")
    graph = onnx.helper.make_graph([node], "g", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)])
    with pytest.raises(ModelError) as caught:
        import_onnx(model)
    assert said in f"{caught.value.problem} {caught.value.at}"
    assert "takes (" in caught.value.hint
