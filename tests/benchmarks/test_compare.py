# SPDX-License-Identifier: Apache-2.0
"""The measuring programs: turns, errors, the table, failures, the peak kernels."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

from benchmarks import compare, engines, isa, machine, measure, networks
from treadle.cli import peak
from treadle.target import probes
from treadle.target.parse import parse_target


def text_of(rows: list[compare.Row], peers: list[str]) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        console.print(compare.table_of(rows, peers))
    return capture.get()


def figures(median_ms: float) -> dict[str, float]:
    return {"median_ms": median_ms, "max_relative_error": 1e-6, "open_seconds": 0.5}


def test_engines_take_turns() -> None:
    calls: list[str] = []

    def run_of(name: str) -> engines.Run:
        return lambda: calls.append(name) or []

    times = measure.run_in_rounds({"a": run_of("a"), "b": run_of("b")}, seconds=0)
    turn = 1 + measure.RUNS_PER_ROUND
    assert calls == (["a"] * turn + ["b"] * turn) * measure.LEAST_TURNS
    assert len(times["a"]) == len(times["b"]) == measure.RUNS_PER_ROUND * measure.LEAST_TURNS


def test_error_is_the_largest_of_all_outputs() -> None:
    reference = [np.ones(4, np.float32), np.full(4, 2, np.float32)]
    assert measure.largest_error(reference, reference) == 0
    assert measure.largest_error([reference[0], reference[1] * 1.5], reference) == 0.5
    assert measure.largest_error([reference[0], reference[1][:2]], reference) == float("inf")
    assert measure.largest_error([reference[0] * np.nan, reference[1]], reference) == float("inf")


def test_table_shows_ratios_and_failures() -> None:
    good = compare.Row("net", 1, {"treadle": figures(2.0), "onnxruntime": figures(3.0)})
    bad = compare.Row("broken", 2, failure="it broke")
    text = text_of([good, bad], ["onnxruntime"])
    assert "1.50" in text
    assert "failed" in text


def test_the_fastest_peer_counts() -> None:
    times = {"treadle": figures(2.0), "onnxruntime": figures(4.0), "openvino": figures(3.0)}
    rows = [
        compare.Row("a", 1, times),
        compare.Row("b", 1, {**times, "treadle": figures(12.0)}),
        compare.Row("broken", 1, failure="it broke"),
    ]
    assert rows[0].ratio_to_best() == 1.5
    assert rows[1].ratio_to_best() == 0.25
    assert compare.geometric_means(rows)[1] == pytest.approx((1.5 * 0.25) ** 0.5)
    text = text_of(rows, ["onnxruntime", "openvino", "inductor"])
    assert "1.50" in text
    assert "–" in text


def test_an_engine_without_the_network_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> engines.Run:
        raise engines.NotAvailableError("no such form")

    monkeypatch.setitem(engines.ENGINES, "a", refuse)
    monkeypatch.setitem(engines.ENGINES, "b", lambda *_: lambda: [np.ones(3, np.float32)])
    path = tmp_path / "squeezenet.onnx"
    networks.write(networks.build("squeezenet"), path)
    assert set(measure.measure(path, ["a", "b"], 1, seconds=0)) == {"b"}


def test_indices_stay_inside_the_table(tmp_path: Path) -> None:
    table = numpy_helper.from_array(np.zeros((7, 2), np.float32), "table")
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "ids"], ["rows"]),
            helper.make_node("Cast", ["mask"], ["weights"], to=TensorProto.FLOAT),
        ],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.INT64, (500,)) for n in ("ids", "mask")],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("rows", "weights")],
        [table],
    )
    onnx.save(helper.make_model(graph), tmp_path / "g.onnx")
    inputs = engines.random_inputs(tmp_path / "g.onnx")
    assert set(inputs["ids"].tolist()) == set(range(7))
    assert set(inputs["mask"].tolist()) == {0, 1}


def test_failure_of_a_child_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"not a model")
    row = compare.measure_apart(broken, 1, ["onnxruntime"], seconds=0)
    assert row.failure
    assert not row.figures


def test_a_network_is_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "squeezenet.onnx"
    networks.write(networks.build("squeezenet"), path)
    row = compare.measure_apart(path, 1, ["onnxruntime"], seconds=0)
    assert row.failure == ""
    assert row.figures["onnxruntime"]["median_ms"] > 0
    assert row.figures["onnxruntime"]["max_relative_error"] == 0


def test_fma_kernel_computes_what_is_counted() -> None:
    target = parse_target("llvm")
    types = (ctypes.c_int64, ctypes.c_float, ctypes.c_float)
    kernel = peak.compile_probe(probes.fma_kernel(target), ctypes.c_float, *types)
    count = probes.lanes_of(target) * probes.chain_count(target)
    value = 1.0
    for _ in range(5):
        value = value * 0.5 + 1.0
    assert kernel.call(5, 0.5, 1.0) == pytest.approx(value * count)


def test_read_kernel_reads_everything() -> None:
    target = parse_target("llvm")
    types = (ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    kernel = peak.compile_probe(probes.read_kernel(target), ctypes.c_int32, *types)
    block = probes.lanes_of(target) * probes.chain_count(target)
    values = np.zeros(3 * block + 64, np.int32)
    start = -values.ctypes.data % 64 // 4
    used = values[start : start + 3 * block]
    used[:] = np.random.default_rng(0).integers(0, 1 << 30, used.size)
    assert kernel.call(1, 3, used.ctypes.data) == np.bitwise_xor.reduce(used)
    assert kernel.call(2, 3, used.ctypes.data) == 0  # every bit twice


def test_machine_has_no_name() -> None:
    described = machine.describe()
    assert set(described) == {
        *("cpu", "llvm_cpu", "cores", "features", "system", "python", "packages")
    }
    assert machine.usable_cores() >= 1


def test_the_share_of_the_peak_counts_the_operations_of_the_network(tmp_path: Path) -> None:
    path = tmp_path / "squeezenet.onnx"
    networks.write(networks.build("squeezenet"), path)
    found = measure.measure(path, ["treadle", "onnxruntime"], 1, seconds=0)
    ours = found["treadle"]
    done = ours["of_peak"] * ours["peak_gflops"] * ours["fastest_ms"] * 1e6
    assert done == pytest.approx(0.70e9, rel=0.05)  # the convolutions of SqueezeNet 1.0 and 1.1
    assert found["onnxruntime"]["peak_gflops"] == ours["peak_gflops"]
    assert "103%" in text_of(
        [
            compare.Row(
                "net",
                1,
                {"treadle": {**ours, "of_peak": 1.03}, **{"onnxruntime": found["onnxruntime"]}},
            )
        ],
        ["onnxruntime"],
    )


def test_engines_are_held_only_where_the_machine_has_more(monkeypatch: pytest.MonkeyPatch) -> None:
    avx2 = isa.ISAS["avx2"]
    monkeypatch.setattr(machine, "features", lambda: ["avx2"])
    with compare.held_to(avx2, ["inductor"]) as settings:
        assert settings == {}
    monkeypatch.setattr(machine, "features", lambda: ["avx2", "avx512f"])
    refused = pytest.raises(isa.NotBoundError, match="inductor cannot be held to avx2")
    with refused, compare.held_to(avx2, ["inductor"]):
        pass
    with compare.held_to(avx2, []) as settings:
        assert settings["TREADLE_HOST_CPU"] == avx2.cpu
