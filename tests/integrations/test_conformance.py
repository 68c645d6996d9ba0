# SPDX-License-Identifier: Apache-2.0
"""ONNX's own backend tests, compiled and run: all pass but those `expected_failures.txt` lists.

A test that fails and is not listed is a regression; one that passes and is listed is an
improvement, and its line must go. Both fail here, with the names. Of tests about random numbers
(listed as such) only types and shapes are held to: a few coin flips are equal by chance.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase as Case
from onnx.backend.test.loader import load_model_tests

import treadle
from benchmarks import engines, light_networks, measure, networks
from tests.frontend.onnx import casts
from treadle.errors import TreadleError
from treadle.integrations.onnx_backend import TreadleBackend

pytestmark = pytest.mark.conformance

LIST = Path(__file__).with_name("expected_failures.txt")
VERSION = "1.23.2"
"""The version of the onnx package whose tests the list is about."""

RANDOM = "random numbers"
"""How the reason begins for which a test's values are not compared."""

KINDS = ("node", "simple", "real", "pytorch-converted", "pytorch-operator")
PARTS = 24

Values = Sequence[object]


@cache
def expected_failures() -> dict[str, str]:
    """Return the reason of every listed test: names stand below their reason in brackets."""
    found: dict[str, str] = {}
    reason = ""
    for line in LIST.read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if text.startswith("["):
            reason = text.strip("[]")
        elif text and not text.startswith("#"):
            assert reason, f"{text} has no reason above it"
            assert text not in found, f"{text} is listed twice"
            found[text] = reason
    return found


@cache
def cases() -> list[Case]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # while the package computes its expected values
        return [case for kind in KINDS for case in load_model_tests(kind=kind)]


def name_of(case: Case) -> str:
    return f"{case.kind}/{case.name}"


def value_of(given: object) -> object:
    return numpy_helper.to_array(given) if isinstance(given, onnx.TensorProto) else given


def read(path: Path, declared: onnx.ValueInfoProto) -> object:
    """Return the value in a file: an array, a list of them, or one that may be absent."""
    data, kind = path.read_bytes(), declared.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def read_all(pattern: str, folder: Path, declared: Sequence[onnx.ValueInfoProto]) -> Values:
    paths = [folder / pattern.format(k) for k in range(len(declared))]
    pairs = zip(paths, declared, strict=True)
    return [read(path, value) for path, value in pairs if path.exists()]


def ramp(declared: onnx.ValueInfoProto) -> np.ndarray:
    """Return what the package gives its networks: equal steps from 0 to 1."""
    shape = [d.dim_value or 1 for d in declared.type.tensor_type.shape.dim]
    count = int(np.prod(shape))
    return (np.arange(count).reshape(shape) / count).astype("float32")


def model_and_data(case: Case) -> tuple[onnx.ModelProto, list[tuple[Values, Values]]]:
    """Return a test's model and its pairs of inputs and expected outputs."""
    if case.model is not None:
        sets = case.data_sets or ()
        return case.model, [([*map(value_of, i)], [*map(value_of, o)]) for i, o in sets]
    if case.url:
        path = Path(onnx.__file__).parents[1] / case.url
        model = onnx.load(path)
        stored = {t.name for t in model.graph.initializer}
        inputs = [ramp(i) for i in model.graph.input if i.name not in stored]
        outputs = read_all(f"{path.stem}_output_{{}}.pb", path.parent, model.graph.output)
        return model, [(inputs, outputs)]
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    graph = model.graph
    return model, [
        (read_all("input_{}.pb", data, graph.input), read_all("output_{}.pb", data, graph.output))
        for data in sorted(folder.glob("test_data_set*"))
    ]


def differs(got: object, want: object, rtol: float, atol: float, random: bool = False) -> str:
    """Return how a result differs from the expected one, nothing where it does not.

    Of random numbers the type and the shape are compared.
    """
    if isinstance(want, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(want):
            return f"not a sequence of {len(want)}"
        found = (differs(g, w, rtol, atol, random) for g, w in zip(got, want, strict=True))
        return next(filter(None, found), "")
    if want is None or got is None:
        return "" if want is got else "a value is or should be absent"
    a, b = np.asarray(got), np.asarray(want)
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return f"{a.dtype}{a.shape} for {b.dtype}{b.shape}"
    if random:
        return ""
    if b.dtype.kind in "OUS":
        return "" if (a == b).all() else "other text"
    if b.dtype.name == "bfloat16":
        rtol = max(rtol, 2**-6)
    x, y = (v.astype("complex128" if v.dtype.kind == "c" else "float64") for v in (a, b))
    wrong = int((~np.isclose(x, y, rtol, atol, equal_nan=True)).sum())
    return f"{wrong} of {y.size} values differ" if wrong else ""


def known_of(
    model: onnx.ModelProto, inputs: Values, got: object, want: object
) -> tuple[object, object]:
    """Return a result and what is expected, both without what the standard leaves undefined."""
    arrays = [v for v in (*inputs[:1], got, want) if isinstance(v, np.ndarray)]
    if len(arrays) != 3 or arrays[1].shape != arrays[2].shape:
        return got, want
    known = casts.defined(model, arrays[0], arrays[2])
    return arrays[1][known], arrays[2][known]


def problem_of(case: Case, random: bool) -> str:
    """Run one test; return what is wrong with the result, nothing where it passes."""
    model, sets = model_and_data(case)
    try:
        prepared = TreadleBackend.prepare(model)
        for inputs, expected in sets:
            results = prepared.run(list(inputs))
            pairs = zip(results, expected, strict=True)
            results, expected = zip(*(known_of(model, inputs, *p) for p in pairs), strict=True)
            problem = differs(results, expected, case.rtol, case.atol, random)
            if problem:
                return problem
    except TreadleError as error:
        return " ".join(str(error).split())[:200]
    return "" if sets else "the test has no data"


@pytest.mark.parametrize("part", range(PARTS))
def test_all_but_the_listed_tests_pass(part: int) -> None:
    if onnx.__version__ != VERSION:
        pytest.skip(f"the list is about onnx {VERSION}, this is {onnx.__version__}")
    listed = expected_failures()
    regressions, improvements = [], []
    for case in cases()[part::PARTS]:
        reason = listed.get(name_of(case), "")
        random = reason.startswith(RANDOM)
        problem = problem_of(case, random)
        if problem and (random or not reason):
            regressions.append(f"{name_of(case)}: {problem}")
        elif reason and not problem and not random:
            improvements.append(name_of(case))
    texts = []
    if regressions:
        texts += ["these tests fail and are not expected to:", *regressions]
    if improvements:
        texts += [f"these tests pass now; remove them from {LIST.name}:", *improvements]
    assert not texts, "\n".join(texts)


def test_the_list_names_tests_that_exist() -> None:
    if onnx.__version__ != VERSION:
        pytest.skip(f"the list is about onnx {VERSION}, this is {onnx.__version__}")
    assert set(expected_failures()) <= set(map(name_of, cases()))


@pytest.mark.parametrize("name", light_networks.FILES)
def test_networks_with_random_weights(name: str, tmp_path: Path) -> None:
    """The networks of the suite have equal numbers as weights, which hide a wrong layout."""
    path = tmp_path / f"{name}.onnx"
    networks.write(networks.build(name), path)
    inputs = engines.random_inputs(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    outputs = [np.asarray(output) for output in treadle.compile(path).run(inputs)]
    assert measure.largest_error(outputs, session.run(None, inputs)) < 1e-4
