# SPDX-License-Identifier: Apache-2.0
"""The four commands on a real network: what they write, what they print, how they end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from tests.processes import PATIENCE
from treadle.cli import text
from treadle.cli.bench import difference
from treadle.cli.main import COMMANDS, main
from treadle.errors import InternalError

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[str, str]:
    """Run a command that must succeed; return stdout and stderr."""
    capsys.readouterr()
    assert main([str(w) for w in words]) == 0
    captured = capsys.readouterr()
    return captured.out, captured.err


# ---- compile -------------------------------------------------------------------------------------


def test_compile_prints_progress_and_summary(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out, err = run(capsys, "compile", DIGITS, "-o", tmp_path / "x.tar")
    for pattern in (
        r"read +20 nodes, input image: float32\[1,1,8,8\]",
        r"note +input 'image': the unknown dimension 0 \(N\) is compiled as 1",
        r"target +llvm -mtriple=\S+ -mcpu=\S+",
        r"fused +20 nodes → \d+ calls of \d+ kernels",
        r"weights +\d+ kB",
        r"memory +peak [\d.]+ kB planned, [\d.]+ kB naive",
        r"time +\S+ m?s: read .* optimize .* build .* plan .* write",
        r"wrote +\S+x.tar \(\d+ kB\)",
    ):
        assert re.search(pattern, out), (pattern, out)
    kernels = re.search(r"of (\d+) kernels", out)
    assert kernels is not None
    assert f"build    {kernels[1]}/{kernels[1]}" in err
    assert "\x1b" not in out + err


def test_compile_says_what_kernels_take_of_a_small_stack(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = "c -mtriple=thumbv7em-none-eabi -mcpu=cortex-m4 -stack-bytes=2K"
    out, _ = run(capsys, "compile", DIGITS, "--target", target, "-o", tmp_path / "x.c")
    assert re.search(r"stack +\S+ k?B for arrays of kernels, of 2\.0 kB \(-stack-bytes\)", out)


def test_compile_names_its_output_after_the_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(capsys, "compile", DIGITS)
    assert [p.name for p in tmp_path.iterdir()] == ["digits.tar"]


def test_compile_takes_target_shapes_and_level(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    output = tmp_path / "x.tar"
    words = ("--target", "llvm -mcpu=x86-64-v3 -mtriple=x86_64-linux-gnu", "--opt-level", "0")
    shapes = ("--input-shapes", "image:[5,1,8,8]")
    # --out is a prefix of --output, as scripts written for v0.8 may have it
    out, _ = run(capsys, "compile", DIGITS, *words, *shapes, "--out", output)
    assert "float32[5,1,8,8]" in out
    assert "-mcpu=x86-64-v3" in out
    assert "note" not in out
    with tarfile.open(output) as archive:
        assert archive.getnames() == ["mod.so", "mod.params", "mod.json"]
        manifest = archive.extractfile("mod.json")
        assert manifest is not None
        plan = json.load(manifest)["treadle"]
    assert "avx512f" not in plan["cpu_features"]
    assert len([i for i in plan["instructions"] if i["op"] == "call"]) >= 16


def test_compile_takes_a_linker(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, artifact: Path
) -> None:
    log = tmp_path / "log"
    linker = tmp_path / "my linker"
    linker.write_text(f'#!/bin/sh\necho "$@" > "{log}"\nexec cc "$@"\n')
    linker.chmod(0o755)
    run(capsys, "compile", DIGITS, "-o", tmp_path / "x.tar", "--linker", f"'{linker}' -Wl,-O1")
    assert log.read_text().startswith("-Wl,-O1 -shared")


# ---- run -----------------------------------------------------------------------------------------


def image() -> np.ndarray:
    return np.random.default_rng(3).random((1, 1, 8, 8), dtype=np.float32)


@pytest.mark.parametrize("model", ["artifact", "network"])
def test_run_reads_and_writes_npz(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, artifact: Path, model: str
) -> None:
    np.savez(tmp_path / "in.npz", image=image())
    words = ("--inputs", tmp_path / "in.npz", "--output", tmp_path / "out.npz")  # K18: a prefix
    out, _ = run(capsys, "run", artifact if model == "artifact" else DIGITS, *words)
    assert "output   probabilities: float32[1,10]" in out
    with np.load(tmp_path / "out.npz", allow_pickle=False) as outputs:
        assert outputs.files == ["probabilities"]
        found = outputs["probabilities"]
    onnxruntime = pytest.importorskip("onnxruntime")
    (expected,) = onnxruntime.InferenceSession(DIGITS).run(None, {"image": image()})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_run_prints_the_table_of_times_as_v08(
    capsys: pytest.CaptureFixture[str], artifact: Path
) -> None:
    out, _ = run(capsys, "run", artifact, "--print-time", "--repeat", "3", "--number", "2")
    lines = out.splitlines()
    at = lines.index("Execution time summary:")
    assert lines[at + 1] == " mean (ms)   median (ms)    max (ms)     min (ms)     std (ms)  "
    values = [lines[at + 2][k * 13 : k * 13 + 12] for k in range(5)]
    assert all(re.fullmatch(r" *\d+\.\d{4} *", v) for v in values)
    # In the last place printed, so that each of the three roundings is half a unit at most.
    mean, median, largest, smallest, deviation = (int(v.replace(".", "")) for v in values)
    assert smallest <= median <= largest
    assert smallest <= mean <= largest
    assert deviation <= largest - smallest + 1


def test_run_prints_the_largest_values(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, artifact: Path
) -> None:
    words = ("--fill-mode", "ones", "--print-top", "3", "-o", tmp_path / "out.npz")
    out, _ = run(capsys, "run", artifact, *words)
    assert "probabilities: the 3 largest of 10 values" in out
    rows = re.findall(r"^ +\[0, (\d)\] +(\S+)$", out, re.MULTILINE)
    with np.load(tmp_path / "out.npz") as outputs:
        values = outputs["probabilities"][0]
    assert [int(i) for i, _ in rows] == list(np.argsort(-values)[:3])
    np.testing.assert_allclose([float(v) for _, v in rows], np.sort(values)[::-1][:3], rtol=1e-5)


@pytest.mark.parametrize("mode", ["zeros", "ones", "random"])
def test_fill_modes_are_repeatable(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, artifact: Path, mode: str
) -> None:
    for name in ("a", "b"):
        run(capsys, "run", artifact, "--fill-mode", mode, "-o", tmp_path / f"{name}.npz")
    with np.load(tmp_path / "a.npz") as a, np.load(tmp_path / "b.npz") as b:
        assert a["probabilities"].tobytes() == b["probabilities"].tobytes()
        found = a["probabilities"]
    if mode != "random":
        filled = np.full((1, 1, 8, 8), mode == "ones", np.float32)
        onnxruntime = pytest.importorskip("onnxruntime")
        (expected,) = onnxruntime.InferenceSession(DIGITS).run(None, {"image": filled})
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_profile_names_every_node(capsys: pytest.CaptureFixture[str], artifact: Path) -> None:
    out, _ = run(capsys, "run", artifact, "--profile")
    for node in ("conv0", "conv3", "conv7", "dense12", "softmax"):
        assert node in out
    assert re.search(r"total +[\d.]+ ms in \d+ instructions", out)


# ---- bench ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["artifact", "network"])
def test_bench_compares(capsys: pytest.CaptureFixture[str], artifact: Path, model: str) -> None:
    words: list[str | Path] = ["--vs", "onnxruntime", "--threads", "1", "--repeat", "7"]
    words += [artifact, "--onnx", DIGITS] if model == "artifact" else [DIGITS]
    out, _ = run(capsys, "bench", *words)
    for pattern in (
        r"p50 ms +p90 ms +p99 ms +min ms +runs +runs/s +ready s",
        r"treadle( +[\d.]+){4} +7( +[\d.]+){2}\n",
        r"onnxruntime \S+( +[\d.]+){4} +7( +[\d.]+){2}\n",
        r"ratio +[\d.]+× \(treadle is [\d.]+× (faster|slower)\)",
        r"error +max\|Δ\| \S+ · relative \S+ · same top-1",
        r"threads +1 thread each, taking turns",
        r"cpu +\S.* cores usable",
    ):
        assert re.search(pattern, out), (pattern, out)


def test_open_sizes_are_given_at_the_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "open.tar"
    run(capsys, "compile", DIGITS, "--dynamic", "-o", path)
    shapes = ["--input-shapes", "image:[3,1,8,8]"]
    out, _ = run(capsys, "profile", path, "--repeat", "1", *shapes)
    assert "instructions" in out
    out, _ = run(capsys, "bench", DIGITS, "--dynamic", "--repeat", "1", *shapes)
    assert "p50 ms" in out
    assert main(["run", str(path)]) == 2
    assert "--input-shapes" in capsys.readouterr().err
    for wrong in ("image:[3,8]", "picture:[3,1,8,8]"):
        assert main(["run", str(path), "--input-shapes", wrong]) == 2
        assert wrong.split(":")[0] in capsys.readouterr().err


def test_bench_alone(capsys: pytest.CaptureFixture[str], artifact: Path) -> None:
    out, _ = run(capsys, "bench", artifact, "--repeat", "2")
    assert "treadle" in out
    assert "ratio" not in out


def test_bench_without_onnxruntime_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(["bench", str(DIGITS), "--vs", "onnxruntime"]) == 2
    assert 'pip install "treadle[bench]"' in capsys.readouterr().err


def test_bench_prints_json(
    capsys: pytest.CaptureFixture[str], artifact: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "in.npz", image=np.ones((1, 1, 8, 8), np.float32))
    words = ("--inputs", tmp_path / "in.npz", "--vs", "onnxruntime", "--onnx", DIGITS)
    out, _ = run(capsys, "bench", artifact, *words, "--json", "--repeat", "4", "--streams", "2")
    found = json.loads(out)
    assert found["inputs"] == {"image": {"dtype": "float32", "shape": [1, 1, 8, 8]}}
    assert (found["streams"], len(found["engines"])) == (2, 2)
    ours, theirs = found["engines"]
    assert ours["name"] == "treadle"
    for engine in (ours, theirs):
        times = engine["latency_ms"]
        assert 0 < times["min"] <= times["p50"] <= times["p90"] <= times["p99"]
        assert engine["runs"] == 8  # 4 of each stream
        assert engine["runs_per_second"] > 0
    faster = ours["runs_per_second"] / theirs["runs_per_second"]
    assert theirs["treadle_is_faster_by"] == pytest.approx(faster, rel=1e-2)
    assert theirs["largest_difference"] < 1e-5


@pytest.mark.parametrize("model", ["artifact", "network"])
def test_streams_run_at_once(
    capsys: pytest.CaptureFixture[str], artifact: Path, model: str
) -> None:
    path = artifact if model == "artifact" else DIGITS
    out, _ = run(capsys, "bench", path, "--streams", "3", "--threads", "2", "--time-limit", "0.1")
    assert "2 threads, 3 streams at once" in out


def test_compare_finds_differences() -> None:
    a = np.array([[1.0, 2.0, 4.0]], np.float32)
    assert str(difference([a], [a])) == "max|Δ| 0.0e+00 · relative 0.0e+00 · same top-1"
    b = np.array([[1.0, 7.0, 4.0]], np.float32)
    assert "max|Δ| 5.0e+00" in str(difference([a], [b]))
    assert "different top-1" in str(difference([a], [b]))
    assert "nan" in str(difference([a * np.nan], [a]))


# ---- options that cannot be honoured -------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("--target", "llvm -mcpu=haswell"),
        ("--target", "llvm"),
        ("--opt-level", "3"),
        ("--dynamic",),
        ("--no-winograd",),
        ("--weight-growth", "0.5"),
        ("--unchecked",),
        ("--operators", "mine.py"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("command", ["run", "bench", "profile", "compare"])
def test_a_compiled_model_is_not_compiled_otherwise(
    capsys: pytest.CaptureFixture[str], artifact: Path, command: str, words: tuple[str, ...]
) -> None:
    models = [DIGITS, artifact] if command == "compare" else [artifact]
    assert main([command, *map(str, models), *words]) == 2
    assert f"{words[0]} cannot change {artifact}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--input-shapes", "image:[3,1,8,8]"), "its sizes are fixed"),
        (("-o", "out.json"), "write out.npz"),
        (("--fill-mode", "ones", "-i", "in.npz"), "leave one of them out"),
        (("--input-shapes", "image:[2,1,8,8]", "-i", "in.npz"), "leave one of them out"),
    ],
    ids=str,
)
def test_options_that_contradict(
    capsys: pytest.CaptureFixture[str],
    artifact: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("in.npz", image=np.ones((1, 1, 8, 8), np.float32))
    assert main(["run", str(artifact), *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", ["net.whl", "net.onnx", "net.npz"])
def test_an_artifact_is_named_as_what_it_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    assert main(["compile", str(DIGITS), "-o", str(tmp_path / name)]) == 2
    assert f"write {tmp_path / 'net.tar'}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# ---- doctor and the rest -------------------------------------------------------------------------


def test_doctor_says_what_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, "doctor")
    labels = list(dict.fromkeys(line.split()[0] for line in out.splitlines()))
    assert labels == ["treadle", "python", "cpu", "features", "caches", "llvm", "c", "cuda",
                      "opencl", "gpu", "runtime", "link", "cache", "threads", "extras",
                      "result"]  # fmt: skip
    assert "all good" in out


def test_doctor_finds_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    monkeypatch.setenv("TREADLE_NUM_THREADS", "many")
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "built in (x86_64, aarch64)" in out
    assert "TREADLE_NUM_THREADS is 'many'" in out
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "no linker is found" in out
    assert 'pip install "treadle[cross]"' in out
    assert re.search("needs attention: .*link", out)


def test_compile_needs_no_linker(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    out, _ = run(capsys, "compile", DIGITS, "-o", tmp_path / "digits.tar")
    assert "digits.tar" in out
    arm = tmp_path / "arm.tar"
    run(capsys, "compile", DIGITS, "-o", arm, "--target", "llvm -mtriple=aarch64-linux-gnu")
    assert arm.is_file()


def test_doctor_finds_a_cache_that_keeps_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path))
    (tmp_path / "groups").write_text("not a folder")
    assert main(["doctor"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert f"{tmp_path / 'groups'} is not a folder of this user" in out
    assert "needs attention: cache" in out


def treadle(*words: str | Path, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "treadle", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,  # type: ignore[call-overload]
    )


def test_a_reader_that_leaves_is_no_error() -> None:
    process = treadle("doctor")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(PATIENCE) == 141


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"text")
    assert main(["compile", str(path)]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert main(["compile", str(path), "--debug"]) == 2
    captured = capsys.readouterr().err
    assert "Traceback" in captured
    assert "error: this is not an ONNX file" in captured


def test_a_defect_is_told_from_a_mistake(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("treadle.cli.doctor.run", broken)
    assert main(["doctor"]) == 1
    captured = capsys.readouterr().err
    assert "error: ZeroDivisionError: oops" in captured
    assert "defect of Treadle" in captured


def test_a_broken_invariant_is_a_defect_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise InternalError("a pass divides by zero")

    monkeypatch.setattr("treadle.cli.doctor.run", broken)
    assert main(["doctor"]) == 1
    assert "a pass divides by zero" in capsys.readouterr().err


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "compile" in capsys.readouterr().out
    for words in (["--version"], ["--help"], ["run", "--help"]):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert not end.value.code
        assert capsys.readouterr().out


@pytest.mark.parametrize("module", ["treadle", "treadle.cli.main"])
def test_both_modules_are_the_command(module: str) -> None:
    words = [sys.executable, "-m", module, "compile", "none.onnx"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ended.returncode == 2
    assert "none.onnx" in ended.stderr


def test_a_command_line_imports_the_module_of_its_command_only() -> None:
    script = """
import sys
from treadle.cli.main import load
assert not load(["--help"]) and not load([])
(command,) = load(["--debug", "records", "run"])
print(command, sorted(m for m in sys.modules if m.startswith("treadle.cli.")))
"""
    words = [sys.executable, "-c", script]
    ended = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    assert ended.stdout.startswith("records [")
    others = {f"treadle.cli.{name}" for name in COMMANDS} - {"treadle.cli.records"}
    assert not [module for module in others if f"'{module}'" in ended.stdout]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_says_what_it_does_and_takes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert not end.value.code
    shown = " ".join(capsys.readouterr().out.split())
    assert COMMANDS[name] in shown
    assert "--debug" in shown


_SEES_NUMPY = """
import importlib.abc, os, runpy, sys

class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            print("numpy:", os.environ.get("OPENBLAS_THREAD_TIMEOUT"), flush=True)

sys.meta_path.insert(0, Watch())
sys.argv = ["treadle", "--version"]
"""


@pytest.mark.parametrize("entry", ["run_path('treadle_command.py'", "run_module('treadle'"])
@pytest.mark.parametrize("said", [None, "20"])
def test_idle_threads_of_numpy_sleep_in_a_command_unless_the_user_says_otherwise(
    entry: str, said: str | None
) -> None:
    given = {k: v for k, v in os.environ.items() if k != "OPENBLAS_THREAD_TIMEOUT"}
    ended = subprocess.run(
        [sys.executable, "-c", f"{_SEES_NUMPY}runpy.{entry}, run_name='__main__')"],
        env=given if said is None else {**given, "OPENBLAS_THREAD_TIMEOUT": said},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ended.stdout.startswith(f"numpy: {said or '4'}\ntreadle "), ended.stdout + ended.stderr


# ---- parts ---------------------------------------------------------------------------------------


def test_sizes_and_times_are_for_people() -> None:
    sizes = [0, 999, 1000, 97_800_000, 1_073_741_824, 123_456_000_000]
    assert [text.size_text(n) for n in sizes] == [
        "0 B", "999 B", "1.0 kB", "97.8 MB", "1.1 GB", "123 GB",
    ]  # fmt: skip
    assert [text.seconds_text(s) for s in (0.0004, 0.012, 0.5, 6.1, 71.2)] == [
        "0 ms", "12 ms", "0.50 s", "6.10 s", "71 s",
    ]  # fmt: skip
    assert text.printable("a\tb\x1b[0m\né") == "a\\tb\\x1b[0m\né"
