# SPDX-License-Identifier: Apache-2.0
"""Models that are linked into a program: as an object file and as C, in memory of the program's."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import treadle
from tests.processes import PATIENCE
from tests.runtime import artifacts
from tests.runtime.artifacts import ROOT
from treadle.runtime.native_package import Toolchain, build_package, find_toolchain

PROGRAM = ROOT / "tests" / "native" / "linked_program.c"
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread"]
SANITIZERS = ["-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def large_model() -> bytes:
    """A product whose loops are dealt out to threads, with a weight of 1 MiB."""
    weight = np.random.default_rng(1).standard_normal((512, 512), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [128, 512])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [128, 512])],
        [numpy_helper.from_array(weight, "w")],
    )
    opset = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString())


def convolution_model() -> bytes:
    """A convolution whose loops hold hundreds of kilobytes on the stacks of threads."""
    weight = np.random.default_rng(2).standard_normal((64, 64, 3, 3), np.float32)
    shape = [1, 64, 56, 56]
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        "convolution",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(weight, "w")],
    )
    opset = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString())


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with libtreadle.a and treadle.h for this machine."""
    artifacts.compiler()
    folder = tmp_path_factory.mktemp("package")
    build_package(folder, find_toolchain(None), ["-O1", "-Wall", "-Wextra", "-Werror"])
    return folder


def run_linked(
    folder: Path,
    package: Path,
    source: str,
    x: np.ndarray,
    *flags: str,
    compiler: Sequence[str] | None = None,
) -> np.ndarray:
    """Build the program around a model in `folder`, run it, return the output."""
    name = Path(source).stem
    header = (folder / f"{name}.h").read_text()
    arena = header.split("_ARENA_BYTES ")[1].split()[0]
    words = [f"-DMODEL={name}", f'-DMODEL_HEADER="{name}.h"', f"-DARENA_BYTES={arena}"]
    command = [
        *(compiler or artifacts.compiler()),
        *STRICT,
        *flags,
        *words,
        f"-I{package}",
        f"-I{folder}",
    ]
    files = [str(PROGRAM), str(folder / source), str(package / "libtreadle.a")]
    build = [*command, *files, "-lm", "-ldl", "-o", str(folder / "program")]
    subprocess.run(build, check=True, timeout=300)
    x.tofile(folder / "x.bin")
    command = [str(folder / "program"), str(folder / "x.bin"), str(folder / "y.bin")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return np.fromfile(folder / "y.bin", np.float32)


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("name", ["digits", "product"])
def test_runs_in_the_programs_memory_allocate_nothing(
    name: str, static: bool, tmp_path: Path, package: Path
) -> None:
    model = treadle.compile(DIGITS if name == "digits" else large_model())
    x = np.random.default_rng(0).random(model.inputs[0][2], np.float32)
    model.save(tmp_path / f"{name}.o")
    flags = ["-DCOUNT_ALLOCATIONS", *(["-static"] if static else [])]
    y = run_linked(tmp_path, package, f"{name}.o", x, *flags)
    np.testing.assert_array_equal(y, np.asarray(model(x)[0]).ravel())


def test_c_source_computes_what_its_target_does(tmp_path: Path, package: Path) -> None:
    model = treadle.compile(DIGITS, target="c")
    x = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)
    model.save(tmp_path / "digits.c")
    y = run_linked(tmp_path, package, "digits.c", x, "-DCOUNT_ALLOCATIONS", "-O1")
    np.testing.assert_allclose(y, np.asarray(model(x)[0]).ravel(), rtol=1e-5, atol=1e-7)


def sanitized(folder: Path) -> Toolchain:
    """A toolchain whose programs find misuse of memory; skip the test where there is none."""
    tools = find_toolchain(None)
    (folder / "probe.c").write_text("int main(void) { return 0; }\n")
    command = [*tools.compiler, *SANITIZERS, "probe.c", "-o", "probe"]
    built = subprocess.run(command, cwd=folder, capture_output=True, timeout=PATIENCE)
    if built.returncode != 0 or subprocess.run(["./probe"], cwd=folder).returncode != 0:
        pytest.skip("the compiler has no sanitizers")
    return tools


def test_linked_and_loaded_models_are_clean_under_sanitizers(tmp_path: Path) -> None:
    """The whole runtime is instrumented; a shared object is loaded whole, damaged and stripped."""
    artifacts.compiler()
    tools = sanitized(tmp_path)
    package = tmp_path / "package"
    build_package(package, tools, SANITIZERS)
    model = treadle.compile(DIGITS)
    x = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)
    model.save(tmp_path / "digits.o")
    y = run_linked(tmp_path, package, "digits.o", x, *SANITIZERS)
    np.testing.assert_array_equal(y, np.asarray(model(x)[0]).ravel())
    model.save(tmp_path / "digits.so")
    data = (tmp_path / "digits.so").read_bytes()
    (tmp_path / "damaged.so").write_bytes(data[:5000] + bytes([data[5000] ^ 1]) + data[5001:])
    (tmp_path / "short.so").write_bytes(data[:3000])
    source = ROOT / "examples" / "deploy" / "classify.c"
    command = [*tools.compiler, *STRICT, *SANITIZERS, f"-I{package}", str(source)]
    command += [str(package / "libtreadle.a"), "-ldl", "-o", str(tmp_path / "classify")]
    subprocess.run(command, check=True, timeout=120)
    picture = ROOT / "examples" / "deploy" / "seven.pgm"
    for name, said in (
        ("digits.so", "class 7"),
        ("damaged.so", "does not match the hash"),
        ("short.so", "not a valid shared object"),
    ):
        words = [str(tmp_path / "classify"), str(tmp_path / name), str(picture), "--threads", "2"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
        assert said in done.stdout + done.stderr, done.stderr
        assert "Sanitizer" not in done.stderr
        assert done.returncode == (0 if name == "digits.so" else 1)


@pytest.mark.slow
def test_a_static_program_of_another_c_library_needs_no_loader(tmp_path: Path) -> None:
    if shutil.which("musl-gcc") is None:
        pytest.skip("musl-gcc is not installed")
    package = tmp_path / "package"
    build_package(package, find_toolchain(None, ["musl-gcc"]), ["-O1"])
    treadle.compile(DIGITS).save(tmp_path / "digits.o")
    program = ROOT / "examples" / "deploy" / "classify_static.c"
    command = ["musl-gcc", *STRICT, "-static", f"-I{package}", f"-I{tmp_path}", str(program)]
    command += [str(tmp_path / "digits.o"), str(package / "libtreadle.a"), "-o", "program"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    picture = ROOT / "examples" / "deploy" / "seven.pgm"
    done = subprocess.run(["./program", str(picture)], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.startswith("class 7,"), done.stderr
    assert b"dlopen" not in (tmp_path / "program").read_bytes()


def test_sizes_that_runs_decide_need_memory_that_grows(tmp_path: Path, package: Path) -> None:
    """The header promises no size, and td_open_static says why; the other way works."""
    node = helper.make_node("Relu", ["x"], ["y"])
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "xy"]
    graph = helper.make_graph([node], "open", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    treadle.compile(model, dynamic=True).save(tmp_path / "open.o")
    assert "ARENA_BYTES" not in (tmp_path / "open.h").read_text()
    (tmp_path / "program.c").write_text("""
#include <stdio.h>
#include "open.h"
int main(void) {
  static char memory[4096];
  td_error error;
  td_executor* model;
  if (td_open_static(open_model(), memory, sizeof memory, &model, &error) != TD_ARGUMENT) return 1;
  puts(error.text);
  if (td_open_linked(open_model(), &model, &error) != TD_OK) return 2;
  const float x[3] = {-1, 2, -3};
  const int64_t shape[1] = {3};
  td_tensor input = {x, shape, 1};
  if (td_run_shaped(model, &input, NULL, &error) != TD_OK) return 3;
  const float* y = td_executor_output_data(model, 0);
  printf("%g %g %g\\n", y[0], y[1], y[2]);
  td_close(model);
  return 0;
}
""")
    command = [*artifacts.compiler(), *STRICT, f"-I{package}", "program.c", "open.o"]
    command += [str(package / "libtreadle.a"), "-ldl", "-o", "program"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    done = subprocess.run(
        ["./program"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "the model has sizes that each run decides: how much memory it needs is not known before",
        "0 2 0",
    ]


@pytest.mark.slow
def test_threads_of_another_c_library_have_the_stack_that_kernels_need(tmp_path: Path) -> None:
    if shutil.which("musl-gcc") is None:
        pytest.skip("musl-gcc is not installed")
    package = tmp_path / "package"
    build_package(package, find_toolchain(None, ["musl-gcc"]), ["-O1"])
    model = treadle.compile(convolution_model())
    x = np.random.default_rng(0).random(model.inputs[0][2], np.float32)
    model.save(tmp_path / "convolution.o")
    y = run_linked(tmp_path, package, "convolution.o", x, "-static", compiler=["musl-gcc"])
    np.testing.assert_array_equal(y, np.asarray(model(x)[0]).ravel())
