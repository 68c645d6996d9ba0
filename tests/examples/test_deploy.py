# SPDX-License-Identifier: Apache-2.0
"""The deploy examples build by the commands they name, and tell a seven; on other machines, too.

Other machines run in QEMU, where it and a cross compiler are installed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import treadle
from tests.processes import PATIENCE
from tests.runtime import artifacts
from tests.runtime.artifacts import ROOT
from treadle.cli.main import main
from treadle.runtime.native_package import build_package, find_toolchain

DEPLOY = ROOT / "examples" / "deploy"
PICTURE = DEPLOY / "seven.pgm"
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"


def pixels() -> np.ndarray:
    words = [w for line in PICTURE.read_text().splitlines()[2:] for w in line.split()]
    return (np.array(words[3:], np.float32) / np.float32(words[2])).reshape(1, 1, 8, 8)


@pytest.fixture(scope="module")
def score() -> float:
    """What the model says of the picture on this machine."""
    scores = np.asarray(treadle.compile(DIGITS)(pixels())[0])[0]
    assert scores.argmax() == 7
    return float(scores[7])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runtime for this machine, where commands of the examples run."""
    artifacts.compiler()
    folder = tmp_path_factory.mktemp("deploy")
    build_package(folder, find_toolchain(None), ["-O1"])
    for name in ("examples", "native"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def run(command: Sequence[str | Path], folder: Path) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def commands_of(source: Path) -> list[list[str]]:
    """Return the commands that the head of an example names."""
    head = source.read_text().split("#include")[0]
    lines = re.sub(r"\\\n \*", " ", head).splitlines()
    found = [line[6:].strip() for line in lines if line.startswith(" *     ")]
    starts = ("treadle ", "cc ", "c++ ", "./", "arm-none-eabi-gcc ", "qemu-system-arm ")
    return [shlex.split(re.sub(r"\(.*\)", "", c)) for c in found if c.startswith(starts)]


@pytest.mark.parametrize("name", ["classify.c", "classify_static.c", "classify.cpp"])
def test_the_commands_in_an_example_work(
    name: str, place: Path, score: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    commands = commands_of(DEPLOY / name)
    assert [c[0] for c in commands][:2] == ["treadle", "treadle"]
    assert len(commands) == 4  # one builds, one runs
    for command in commands:
        if command[:3] == ["treadle", "runtime", "build"]:
            continue  # what `place` is
        if command[0] == "treadle":
            assert main(command[1:]) == 0
        else:
            strict = ["-Wall", "-Wextra", "-Werror"] if command[0] in ("cc", "c++") else []
            if strict and shutil.which(command[0]) is None:
                pytest.skip(f"{command[0]} is not installed")
            out = run([*command, *strict], place)
    assert_seven(out, score)


BOARDS = {
    "cortex-m3": ("mps2-an385", []),
    "cortex-m4": ("mps2-an386", ["-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]),
    "cortex-m7": ("mps2-an500", ["-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"]),
}


def test_a_microcontroller_tells_a_seven_without_an_allocator(
    place: Path, score: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the commands in the example, for the M4; and on boards with and without a float unit."""
    monkeypatch.chdir(place)
    compiled, built, ran = commands_of(DEPLOY / "classify_bare.c")
    for program in (built[0], ran[0]):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    assert main(compiled[1:]) == 0
    for cpu, (board, floats) in BOARDS.items():
        own = [word for word in built if not word.startswith(("-mfloat-abi", "-mfpu"))]
        own[own.index("-mcpu=cortex-m4")] = f"-mcpu={cpu}"
        assert cpu != "cortex-m4" or sorted([*own, *floats]) == sorted(built)
        run([*own, *floats, "-mthumb", "-Wall", "-Wextra", "-Werror"], place)
        command = [board if word == "mps2-an386" else word for word in ran]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0
        assert_seven(done.stderr, score)  # where QEMU writes what a debugger shows
    names = run(["arm-none-eabi-nm", "classify_bare"], place)
    assert "digits_run" in names
    assert not re.search(r"alloc|free|sbrk|pthread|td_", names)


def assert_seven(out: str, score: float, tolerance: float = 1e-5) -> None:
    found = re.match(r"class 7, score (\S+)\n", out)
    assert found is not None, out
    assert abs(float(found[1]) - score) <= tolerance


def test_the_example_tells_times_and_binds_threads(place: Path, score: float) -> None:
    treadle.compile(DIGITS).save(place / "model.tar")
    command = ["cc", "-std=c11", "-O1", "-pthread", "-I.", "examples/deploy/classify.c"]
    run([*command, "libtreadle.a", "-ldl", "-o", "program"], place)
    out = run(["./program", "model.tar", PICTURE, "--profile"], place)
    assert_seven(out, score)
    assert len(re.findall(r"^ +\d+\.\d\d us  call fused_\w+$", out, re.MULTILINE)) == 10
    cpu = min(os.sched_getaffinity(0))
    assert_seven(run(["./program", "model.tar", PICTURE, "--cpus", str(cpu)], place), score)
    for words, said in (
        (["--cpus", "999999"], "this process may not run on CPU 999999"),
        (["--cpus", "1,"], "usage"),
        (["--threads", "9999"], "9999 is not a number of threads"),
    ):
        command = ["./program", "model.tar", str(PICTURE), *words]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode != 0
        assert said in done.stderr


def test_pictures_of_every_kind_are_read(place: Path, score: float) -> None:
    """Text and binary, one and two bytes, gray and colours, and four times as large."""
    treadle.compile(DIGITS).save(place / "model.tar")
    command = ["cc", "-std=c11", "-O1", "-pthread", "-I.", "examples/deploy/classify.c"]
    run([*command, "libtreadle.a", "-ldl", "-o", "program"], place)
    gray = np.rint(pixels()[0, 0] * 16).astype(np.uint8)
    colours = np.repeat(gray[..., None], 3, axis=2)
    large = np.kron(gray, np.ones((4, 4), np.uint8))
    deep = (gray.astype(np.int32) * 1000).astype(">u2")
    pictures = {
        "P5\n#no\n 8\t8 16\n": gray.tobytes(),
        "P6 8 8 16\n": colours.tobytes(),
        "P3 8 8 #\n#\n16\n": " ".join(map(str, colours.ravel())).encode(),
        "P5 32 32 16 ": large.tobytes(),
        "P5 8 8 16000 ": deep.tobytes(),
    }
    for head, data in pictures.items():
        (place / "picture").write_bytes(head.encode() + data)
        assert_seven(run(["./program", "model.tar", "picture"], place), score)
    for text, said in (
        (b"", "no PGM or PPM file"),
        (b"P5 8 8", "its header makes no sense"),
        (b"P5 99999999999999999999 8 16 ", "its header makes no sense"),
        (b"P5 8 8 16 \1\2", "it ends too early"),
        (b"P2 1 1 16 17", "a sample is too large"),
    ):
        (place / "picture").write_bytes(text)
        command = ["./program", "model.tar", "picture"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 1
        assert said in done.stderr


MACHINES = {
    "aarch64": ("aarch64-linux-gnu", "aarch64", ("tar", "so", "o", "c")),
    "riscv64": ("riscv64-linux-gnu", "riscv64", ("tar", "so", "o", "c")),
    "arm": ("arm-linux-gnueabihf", "", ("c",)),  # 32 bits: no machine code of ours, but C
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_every_format_runs_on_another_machine(name: str, tmp_path: Path, score: float) -> None:
    triple, architecture, formats = MACHINES[name]
    compiler, emulator = f"{triple}-gcc", f"qemu-{name}"
    if shutil.which(compiler) is None or shutil.which(emulator) is None:
        pytest.skip(f"{compiler} or {emulator} is not installed")
    build_package(tmp_path, find_toolchain(triple))
    for form in formats:
        kind, options = (
            ("c", "") if form == "c" else ("llvm", f" -mtriple={architecture}-linux-gnu")
        )
        model = treadle.compile(DIGITS, target=kind + options)
        model.save(tmp_path / f"digits.{form}")
        loaded = form in ("tar", "so")
        source = DEPLOY / ("classify.c" if loaded else "classify_static.c")
        linked = [] if loaded else [f"digits.{form}"]
        library = ["libtreadle.a", "-ldl", "-lm", "-o", "program", *([] if loaded else ["-static"])]
        run([compiler, "-std=c11", "-O2", "-pthread", "-I.", source, *linked, *library], tmp_path)
        command = [emulator, "-L", f"/usr/{triple}", "./program"]
        out = run([*command, *([f"digits.{form}"] if loaded else []), PICTURE], tmp_path)
        assert_seven(out, score, 1e-4)
