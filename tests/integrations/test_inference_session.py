# SPDX-License-Identifier: Apache-2.0
"""The session beside onnxruntime's: the same facts, the same results, an error where it has one."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import treadle
from treadle.build.kernel import Kernel
from treadle.errors import InputError, ModelError, TreadleError, UsageError
from treadle.integrations import inference_session as session_module
from treadle.integrations import session_onnx
from treadle.integrations.inference_session import InferenceSession, RunOptions, SessionOptions

F, D, H, INT, B = (
    TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT64,
    TensorProto.BOOL,
)  # fmt: skip

Declared = tuple[str, int, list[int | str | None] | None]


def value(name: str, kind: int, shape: list[int | str | None] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def declared(output: Declared | str | onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    if isinstance(output, onnx.ValueInfoProto):
        return output
    return onnx.ValueInfoProto(name=output) if isinstance(output, str) else value(*output)


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: list[Declared],
    outputs: list[Declared | str | onnx.ValueInfoProto],
    **weights: np.ndarray,
) -> bytes:
    made = helper.make_graph(
        nodes,
        "net",
        [value(*i) for i in inputs],
        [declared(o) for o in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name="tests"
    )
    onnx.helper.set_model_props(model, {"labels": "a,b"})
    model.model_version = 3
    return bytes(model.SerializeToString())


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


WEIGHTS = np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)

MODELS: dict[str, bytes] = {
    "fixed": model_of([node("Relu", "x", "y")], [("x", F, [2, 3])], [("y", F, [2, 3])]),
    "scalar": model_of([node("Exp", "x", "y")], [("x", F, [])], [("y", F, [])]),
    "named": model_of(
        [node("MatMul", "x w", "m"), node("Relu", "m", "y"), node("Concat", "x x", "z", axis=0)],
        [("x", F, ["batch", None, 4])],
        ["y", ("z", F, ["twice", None, 4])],
        w=WEIGHTS,
    ),
    "double": model_of([node("Add", "x x", "y")], [("x", D, ["n"])], [("y", D, ["n"])]),
    "half": model_of([node("Add", "x x", "y")], [("x", H, ["n", 2])], ["y"]),
    "integers": model_of(
        [node("ArgMax", "x", "a", axis=1, keepdims=0), node("Greater", "x t", "b")],
        [("x", F, ["n", 5])],
        [("a", INT, ["n"]), ("b", B, ["n", 5])],
        t=np.asarray(0.5, np.float32),
    ),
    "several": model_of(
        [node("Split", "x", "p q", axis=1), node("Add", "p other", "r")],
        [("x", F, ["n", 6]), ("other", F, ["n", 3])],
        ["q", "r", "p"],
    ),
    "inputs_with_values": model_of(
        [node("MatMul", "x w", "y")],
        [("x", F, ["n", 4]), ("w", F, [4, 3])],
        ["y"],
        w=WEIGHTS,
    ),
    "constant_output": model_of(
        [node("Relu", "x", "y"), node("Identity", "w", "c")],
        [("x", F, [1, 2])],
        ["y", ("c", F, [4, 3])],
        w=WEIGHTS,
    ),
    "passed_through": model_of(
        [node("Identity", "x", "y")], [("x", INT, ["n", "m"])], [("y", INT, ["n", "m"])]
    ),
    "sequence": model_of(
        [node("SplitToSequence", "x", "s", axis=0, keepdims=1)],
        [("x", F, [3, 2])],
        [helper.make_tensor_sequence_value_info("s", F, [1, 2])],
    ),
    "unranked": model_of([node("Relu", "x", "y")], [("x", F, None)], ["y"]),
}


def theirs(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def sessions() -> Callable[[str], tuple[InferenceSession, onnxruntime.InferenceSession]]:
    made: dict[str, tuple[InferenceSession, onnxruntime.InferenceSession]] = {}

    def find(name: str) -> tuple[InferenceSession, onnxruntime.InferenceSession]:
        if name not in made:
            quiet = SessionOptions(log_severity_level=3)
            made[name] = InferenceSession(MODELS[name], quiet), theirs(MODELS[name])
        return made[name]

    return find


Sessions = Callable[[str], tuple[InferenceSession, onnxruntime.InferenceSession]]


def feeds(session: onnxruntime.InferenceSession, size: int) -> dict[str, np.ndarray]:
    """Return an input for a session of onnxruntime, open sizes being `size`."""
    random = np.random.default_rng(size)
    types = {"tensor(double)": "float64", "tensor(float16)": "float16", "tensor(int64)": "int64"}
    return {
        i.name: np.asarray(
            10 * random.standard_normal([s if isinstance(s, int) else size for s in i.shape]),
            types.get(i.type, "float32"),
        )
        for i in session.get_inputs()
    }


def assert_same(mine: list[Any], others: list[Any]) -> None:
    assert len(mine) == len(others)
    for a, b in zip(mine, others, strict=True):
        if isinstance(b, list):
            assert isinstance(a, list)
            assert_same(a, b)
            continue
        assert type(a) is np.ndarray
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_facts_are_those_of_onnxruntime(sessions: Sessions, name: str) -> None:
    mine, other = sessions(name)
    for a, b in (
        (mine.get_inputs(), other.get_inputs()),
        (mine.get_outputs(), other.get_outputs()),
    ):
        assert [(i.name, i.type, i.shape) for i in a] == [(i.name, i.type, i.shape) for i in b]
    meta, others = mine.get_modelmeta(), other.get_modelmeta()
    for fact in ("producer_name", "graph_name", "version", "custom_metadata_map", "domain"):
        assert getattr(meta, fact) == getattr(others, fact), fact
    assert mine.get_providers() == other.get_providers()
    assert mine.get_provider_options() == other.get_provider_options()


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_onnxruntime(sessions: Sessions, name: str, size: int) -> None:
    mine, other = sessions(name)
    given = feeds(other, size)
    assert_same(mine.run(None, given), other.run(None, given))
    last = [other.get_outputs()[-1].name]
    for names in (last, [*last, *last], []):
        assert_same(mine.run(names, given, RunOptions()), other.run(names, given))


X = np.ones((2, 6, 4), np.float32)


@pytest.mark.parametrize(
    ("names", "feed", "words"),
    [
        (None, {"z": X}, "no input 'z'"),
        (None, {"x": X, "z": X}, "no input 'z'"),
        (None, {}, r"'x'.*give x: float32\[batch, \?, 4\]"),
        (None, {"x": X.astype(np.float64)}, r"float64\[2, 6, 4\].*\.astype\('float32'\)"),
        (None, {"x": X[0]}, "it has 2 dimensions, not 3"),
        (None, {"x": X[:, :, :3]}, r"float32\[batch, \?, 4\].*dimension 2 is 3, not 4"),
        (None, {"x": np.array([["a"]])}, "give numbers"),
        (None, {"x": np.array("a", object)}, "Python objects"),
        (None, {"x": ["a"]}, "cannot be made an array of float32"),
        (["nope"], {"x": X}, "no output 'nope'.*y, z"),
        ("y", {"x": X}, r"give a list: \['y'\]"),
    ],
)
def test_mistakes_are_told(sessions: Sessions, names: Any, feed: Any, words: str) -> None:
    mine, other = sessions("named")
    with pytest.raises((InputError, UsageError), match=f"(?s){words}"):
        mine.run(names, feed)
    if names != "y":  # which onnxruntime takes for a list of letters
        with pytest.raises(Exception, match=r"."):
            other.run(names, feed)


def test_inputs_of_every_kind(sessions: Sessions) -> None:
    mine, other = sessions("named")
    expected = other.run(None, {"x": X})
    random = np.random.default_rng(0).standard_normal((4, 6, 2)).astype(np.float32)
    assert_same(mine.run(None, {"x": X.tolist()}), expected)
    assert_same(mine.run(None, {"x": treadle.array(X)}), expected)
    assert_same(mine.run(None, {"x": X.astype(">f4")}), expected)
    assert_same(mine.run(None, {"x": random.T}), other.run(None, {"x": random.T}))


def test_results_are_the_callers_own(sessions: Sessions) -> None:
    mine, _ = sessions("named")
    first = mine.run(["y"], {"x": X})[0]
    kept = first.copy()
    mine.run(["y"], {"x": 5 * X})
    np.testing.assert_array_equal(first, kept)
    first[...] = 0  # they can be written to


def test_other_sizes_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    session = InferenceSession(MODELS["named"])
    monkeypatch.setattr(session_onnx, "compile_model", None)
    shapes = [(n, m, 4) for n in (0, 1, 3) for m in (1, 2, 7)]
    for shape in shapes:
        y, z = session.run(None, {"x": np.ones(shape, np.float32)})
        assert y.shape == (*shape[:2], 3)
        assert z.shape == (2 * shape[0], *shape[1:])


def test_a_second_start_finds_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    first = InferenceSession(MODELS["named"])
    monkeypatch.setattr(Kernel, "source", None)
    assert_same(InferenceSession(MODELS["named"]).run(None, {"x": X}), first.run(None, {"x": X}))


def test_what_cannot_stay_open_is_compiled_for_each_shape() -> None:
    with pytest.warns(UserWarning, match="compiled anew for each new set of shapes"):
        session = InferenceSession(MODELS["unranked"])
    for shape in ((3,), (2, 2), ()):
        x = np.ones(shape, np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)
    InferenceSession(MODELS["unranked"], SessionOptions(log_severity_level=3))


def test_sizes_that_change_how_many_axes_there_are_are_compiled_for() -> None:
    model = model_of(
        [node("Relu", "x", "r"), node("Squeeze", "r", "y")], [("x", F, ["n", 1, "m"])], ["y"]
    )
    mine, other = InferenceSession(model), onnxruntime.InferenceSession(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for shape in ((2, 1, 3), (1, 1, 3), (4, 1, 3), (1, 1, 1)):
            x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
            assert_same(mine.run(None, {"x": x}), other.run(None, {"x": x}))
    (said,) = (str(w.message) for w in caught)  # once, at the first such sizes
    assert "compiled anew for the sizes of this run (x 1x1x3)" in said
    assert "add_free_dimension_override_by_name" in said
    assert caught[0].filename == __file__


def test_a_session_that_logs_errors_alone_compiles_in_silence() -> None:
    model = model_of([node("Squeeze", "x", "y")], [("x", F, ["n", 1, "m"])], ["y"])
    session = InferenceSession(model, SessionOptions(log_severity_level=3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert session.run(None, {"x": np.ones((1, 1, 3), np.float32)})[0].shape == (3,)


@pytest.mark.parametrize("name", ["named", "unranked"])
def test_several_threads_may_run_at_once(sessions: Sessions, name: str) -> None:
    mine, other = sessions(name)
    wrong: list[object] = []

    def work(size: int) -> None:
        x = np.random.default_rng(size).standard_normal((size, 3, 4)).astype(np.float32)
        expected = other.run(None, {"x": x})
        for _ in range(30):
            try:
                assert_same(mine.run(None, {"x": x}), expected)
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(size,)) for size in (1, 2, 5, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_files_and_artifacts(tmp_path: Path) -> None:
    network, saved = tmp_path / "net.onnx", tmp_path / "net.tar"
    network.write_bytes(MODELS["named"])
    treadle.compile(network, dynamic=True).save(saved)
    expected = theirs(MODELS["named"]).run(None, {"x": X})
    for source in (network, str(network), saved, str(saved), saved.read_bytes()):
        session = InferenceSession(source)
        assert_same(session.run(None, {"x": X}), expected)
        assert [i.name for i in session.get_inputs()] == ["x"]
    y, z = session.get_outputs()
    assert (y.type, y.shape[0], y.shape[2]) == ("tensor(float)", "batch", 3)
    assert z.shape[0] is None
    assert session.get_modelmeta().custom_metadata_map == {}


def test_sizes_can_be_fixed_by_name() -> None:
    options = SessionOptions()
    options.add_free_dimension_override_by_name("batch", 2)
    session = InferenceSession(MODELS["named"], options)
    assert session.get_inputs()[0].shape == [2, None, 4]
    assert session.run(["y"], {"x": X})[0].shape == (2, 6, 3)
    with pytest.raises(InputError, match="dimension 0 is 3, not 2"):
        session.run(None, {"x": np.ones((3, 6, 4), np.float32)})
    options.add_free_dimension_override_by_name("bach", 2)
    with pytest.raises(UsageError, match=r"(?s)no input has a size 'bach'.*batch"):
        InferenceSession(MODELS["named"], options)


@pytest.mark.parametrize("make", [SessionOptions, onnxruntime.SessionOptions])
def test_options_of_either_kind(make: Callable[[], Any]) -> None:
    options = make()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    arena = {"arena_extend_strategy": "kSameAsRequested"}
    session = InferenceSession(MODELS["named"], options, [("CPUExecutionProvider", arena)])
    assert session._model._compiled.executor.num_threads == 1  # type: ignore[attr-defined]
    assert session.get_session_options() is options
    options.graph_optimization_level = (
        session_module.GraphOptimizationLevel.ORT_DISABLE_ALL
        if make is SessionOptions
        else onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    )
    plain = InferenceSession(MODELS["named"], options)
    assert_same(plain.run(None, {"x": X}), session.run(None, {"x": X}))
    calls = [len(s._model._compiled.instructions()) for s in (session, plain)]  # type: ignore[attr-defined]
    assert calls[0] < calls[1]


def test_what_cannot_be_honoured_is_refused(tmp_path: Path) -> None:
    for options, words in (
        (SessionOptions(enable_profiling=True), "treadle profile"),
        (SessionOptions(optimized_model_filepath="a.onnx"), "treadle compile"),
        (SessionOptions(intra_op_num_threads=-1), "intra_op_num_threads is -1"),
    ):
        with pytest.raises(UsageError, match=words):
            InferenceSession(MODELS["fixed"], options)
    with pytest.raises(UsageError, match="add_operator"):
        SessionOptions().register_custom_ops_library("lib.so")
    with pytest.raises(UsageError, match="list of names"):
        InferenceSession(MODELS["fixed"], None, "CPUExecutionProvider")  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        SessionOptions().__setattr__("intra_op_threads", 2)  # as a typo would


def test_other_providers_are_told_to_be_missing() -> None:
    providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    with pytest.warns(UserWarning, match="on the CPU: there is no CUDAExecutionProvider"):
        session = InferenceSession(MODELS["fixed"], providers=providers)
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert session_module.get_available_providers() == ["CPUExecutionProvider"]


def test_what_is_absent_says_what_to_do() -> None:
    session = InferenceSession(MODELS["fixed"])
    assert not hasattr(session, "run_with_iobinding")
    with pytest.raises(UsageError, match=r"(?s)no io_binding.*where they lie"):
        session.io_binding()
    assert session.get_overridable_initializers() == []


@pytest.mark.parametrize(
    ("source", "kind", "words"),
    [
        ("nofile.onnx", ModelError, "nofile.onnx"),
        (b"not a model", ModelError, "not an ONNX file"),
        (3, UsageError, "of type int"),
    ],
)
def test_sources_that_are_no_model(source: Any, kind: type[TreadleError], words: str) -> None:
    with pytest.raises(kind, match=words):
        InferenceSession(source)
