# SPDX-License-Identifier: Apache-2.0
"""`NAME_run` of a model in C: the plan without the runtime, on machines of 64 and of 32 bits."""

from __future__ import annotations

import re
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
from treadle.build.executable import Executable
from treadle.errors import UsageError

DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
MICRO = "c -mtriple=thumbv7em-none-eabi -mcpu=cortex-m4"
ARMV7 = "c -mtriple=armv7-linux-gnueabihf -mcpu=cortex-a9"

COMPILER_BYTES = 700
"""Of the stack, for what a compiler keeps of a function besides its arrays."""

FLOAT, INT8, INT64 = TensorProto.FLOAT, TensorProto.INT8, TensorProto.INT64


def model_of(nodes: Sequence[object], inputs: object, outputs: object, **weights: object) -> bytes:
    """Return an ONNX model; ports are {name: (type, shape)}."""

    def ports(rows: object) -> list[object]:
        assert isinstance(rows, dict)
        return [helper.make_tensor_value_info(n, *row) for n, row in rows.items()]

    stored = [numpy_helper.from_array(np.asarray(v), n) for n, v in weights.items()]
    graph = helper.make_graph(nodes, "model", ports(inputs), ports(outputs), stored)
    opset = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString())


def quantised() -> bytes:
    """A convolution and a product of bytes between floats."""
    generator = np.random.default_rng(3)
    one, zero = np.float32(0.02), np.int8(0)
    scales = {"s": np.float32(0.04), "t": one, "u": np.float32(0.5), "z": zero}
    node = helper.make_node
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["a"]),
        node("QLinearConv", ["a", "s", "z", "w", "t", "z", "u", "z"], ["b"], pads=[1, 1, 1, 1]),
        node("Flatten", ["b"], ["c"]),
        node("QLinearMatMul", ["c", "u", "z", "v", "t", "z", "u", "z"], ["d"]),
        node("DequantizeLinear", ["d", "u", "z"], ["y"]),
    ]
    return model_of(
        nodes,
        {"x": (FLOAT, [1, 3, 6, 6])},
        {"y": (FLOAT, [1, 10])},
        w=generator.integers(-100, 100, (5, 3, 3, 3), np.int8),
        v=generator.integers(-100, 100, (180, 10), np.int8),
        **scales,
    )


def filtered() -> bytes:
    """Two convolutions that Winograd's filtering computes, the first of larger tiles."""
    generator = np.random.default_rng(4)
    v, w = (generator.standard_normal((16, c, 3, 3), np.float32) / 9 for c in (32, 16))
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "v"], ["a"], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "w"], ["y"]),
    ]
    ports = {"x": (FLOAT, [1, 32, 18, 18])}, {"y": (FLOAT, [1, 16, 16, 16])}
    return model_of(nodes, *ports, v=v, w=w)


def gathered() -> bytes:
    """Rows of a table by indices that come as data, of two axes; and an input as it is."""
    table = np.arange(60, dtype=np.float32).reshape(5, 3, 4)
    nodes = [
        helper.make_node("GatherND", ["table", "i"], ["y"]),
        helper.make_node("Identity", ["i"], ["same"]),
    ]
    outputs = {"y": (FLOAT, [2, 4]), "same": (INT64, [2, 2])}
    return model_of(nodes, {"i": (INT64, [2, 2])}, outputs, table=table)


def program_text(model: Executable, name: str) -> str:
    """Return a program that reads its inputs from a file, runs once, and writes its outputs."""
    lines = ["#include <stdio.h>", f'#include "{name}.h"']
    lines += [f"static _Alignas(64) unsigned char memory[{name.upper()}_MEMORY_BYTES];"]
    pointers = {}
    for kind, values in (("input", model.memory.inputs), ("output", model.memory.outputs)):
        sizes = [value.type.nbytes for _, value in values]
        names = [f"{kind}{i}" for i in range(len(sizes))]
        lines += [f"static _Alignas(64) char {n}[{s}];" for n, s in zip(names, sizes, strict=True)]
        pointers[kind] = names
    lines += ["int main(int argc, char** argv) {", "  (void)argc;"]
    lines += [f"  const void* inputs[] = {{{', '.join(pointers['input'])}}};"]
    lines += [f"  void* outputs[] = {{{', '.join(pointers['output'])}}};"]
    lines += ['  FILE* file = fopen(argv[1], "rb");']
    lines += [f"  if (fread({n}, 1, sizeof {n}, file) != sizeof {n}) return 99;"
              for n in pointers["input"]]  # fmt: skip
    lines += [f"  fclose(file);\n  int code = {name}_run(memory, inputs, outputs);"]
    lines += ['  if (code != 0) return code;\n  file = fopen(argv[2], "wb");']
    lines += [f"  fwrite({n}, 1, sizeof {n}, file);" for n in pointers["output"]]
    return "\n".join([*lines, "  return fclose(file);", "}", ""])


def run_entry(
    model: Executable, inputs: Sequence[np.ndarray], folder: Path, *command: str, runner: str = ""
) -> tuple[int, bytes]:
    """Build a program around `NAME_run` without the runtime; return its exit code and outputs."""
    folder.mkdir(exist_ok=True)
    model.save(folder / "model.c")
    (folder / "main.c").write_text(program_text(model, "model"))
    (folder / "in.bin").write_bytes(b"".join(x.tobytes() for x in inputs))
    words = [*command, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-static"]
    words += [f"-I{ROOT / 'native' / 'include'}", "main.c", "model.c", "-o", "program"]
    subprocess.run(words, cwd=folder, check=True, timeout=300)
    start = [runner] if runner else []
    words = [*start, "./program", "in.bin", "out.bin"]
    code = subprocess.run(words, cwd=folder, timeout=PATIENCE).returncode
    return code, (folder / "out.bin").read_bytes() if code == 0 else b""


def random_inputs(model: Executable) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    shapes = [value.type.static_shape for _, value in model.memory.inputs]
    return [generator.standard_normal(shape, np.float32) for shape in shapes]


def wanted_of(source: bytes | Path, inputs: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([o.numpy().ravel() for o in treadle.compile(source).run(list(inputs))])


@pytest.mark.parametrize("name", ["digits", "quantised"])
@pytest.mark.parametrize("machine", ["here", "armv7"])
def test_a_model_runs_without_the_runtime(name: str, machine: str, tmp_path: Path) -> None:
    """Also as code of 32 bits: sizes and pointers are those of the machine that runs it."""
    command, runner, target = artifacts.compiler(), "", MICRO
    if machine == "armv7":
        command, runner, target = ["arm-linux-gnueabihf-gcc"], "qemu-arm", ARMV7
        if shutil.which(command[0]) is None or shutil.which(runner) is None:
            pytest.skip("arm-linux-gnueabihf-gcc or qemu-arm is not installed")
    source = DIGITS if name == "digits" else quantised()
    model = treadle.compile(source, target=target)
    inputs = random_inputs(model)
    code, out = run_entry(model, inputs, tmp_path, *command, runner=runner)
    assert code == 0
    wanted = wanted_of(source, inputs)
    np.testing.assert_allclose(np.frombuffer(out, np.float32), wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["digits", "filtered"])
@pytest.mark.parametrize("option", ["", " -stack-bytes=4K", " -stack-bytes=64"])
def test_kernels_keep_to_the_stack_of_a_board(name: str, option: str, tmp_path: Path) -> None:
    """What the arrays of a kernel take is said, and gcc tells that they take no more."""
    source = DIGITS if name == "digits" else filtered()
    model = treadle.compile(source, target=MICRO + option)
    assert sum("winograd" in k.content for k in model.kernels) == 2
    inputs = random_inputs(model)
    code, out = run_entry(model, inputs, tmp_path, *artifacts.compiler(), "-fstack-usage")
    assert code == 0
    wanted = wanted_of(source, inputs)
    np.testing.assert_allclose(np.frombuffer(out, np.float32), wanted, rtol=1e-4, atol=1e-5)
    told = re.search(r"#define MODEL_STACK_BYTES (\d+)\n", (tmp_path / "model.h").read_text())
    assert told is not None
    arrays = int(told[1])
    assert arrays == max(k.stack_bytes for k in model.kernels)
    assert arrays <= model.target.machine.stack_bytes
    text = (tmp_path / "model.c").read_text()
    assert not re.search("env->parallel", text)
    sizes = {"float": 4, "int64_t": 8, "int32_t": 4, "int8_t": 1, "uint8_t": 1, "bool": 1}
    declared = re.findall(r"^ +_Alignas\(\d+\) (\w+) \w+\[(\d+)\];", text, re.MULTILINE)
    assert all(sizes[type_] * int(count) <= arrays for type_, count in declared)
    usage = next(tmp_path.glob("*model.su"), None)
    if usage is None:
        pytest.skip("this compiler does not tell what functions take of the stack")
    frames = [int(line.split("\t")[1]) for line in usage.read_text().splitlines()]
    assert max(frames) <= arrays + COMPILER_BYTES


def test_threads_share_no_memory_that_a_kernel_is_lent() -> None:
    """What runs in parallel stays on the stack; schedules make it small enough, or it is said."""
    model = treadle.compile(DIGITS, target=f"{ARMV7} -stack-bytes=8K")
    assert any("env->parallel" in k.source() for k in model.kernels)
    assert 0 < max(k.stack_bytes for k in model.kernels) <= 8 << 10
    assert not any("stack" in note for note in model.notes)
    model = treadle.compile(DIGITS, target=f"{ARMV7} -stack-bytes=128")
    notes = [note for note in model.notes if "bytes of the stack" in note]
    large = [k for k in model.kernels if k.stack_bytes > 128]
    assert large
    assert len(notes) == len(large)
    assert re.fullmatch(
        rf"kernel {large[0].name} takes \d+ bytes of the stack, and the target has 128 "
        r"\(-stack-bytes\)",
        notes[0],
    )


def test_indices_that_are_data_are_checked_and_inputs_copied(tmp_path: Path) -> None:
    model = treadle.compile(gathered(), target=MICRO)
    good = np.array([[4, -3], [0, 2]], np.int64)
    code, out = run_entry(model, [good], tmp_path / "good", *artifacts.compiler())
    table = np.arange(60, dtype=np.float32).reshape(5, 3, 4)
    assert code == 0
    assert out == table[good[:, 0], good[:, 1]].tobytes() + good.tobytes()
    for wrong in ([[5, 0], [0, 0]], [[0, 0], [0, -4]], [[0, 0], [1 << 40, 0]]):
        given = np.array(wrong, np.int64)
        code, _ = run_entry(model, [given], tmp_path / "wrong", *artifacts.compiler())
        assert code == 2  # TD_INPUT


def test_what_the_runtime_provides_has_no_function_of_its_own(tmp_path: Path) -> None:
    node = helper.make_node("RandomNormalLike", ["x"], ["y"])
    source = model_of([node], {"x": (FLOAT, [4])}, {"y": (FLOAT, [4])})
    treadle.compile(source, target=MICRO).save(tmp_path / "noise.c")
    assert "noise_run" not in (tmp_path / "noise.c").read_text()
    assert "noise_run" not in (tmp_path / "noise.h").read_text()


@pytest.mark.parametrize("name", ["m.tar", "m.so", "m.o"])
def test_machines_that_load_nothing_get_source_only(name: str, tmp_path: Path) -> None:
    model = treadle.compile(gathered(), target=MICRO)
    with pytest.raises(UsageError, match="thumbv7em-none-eabi can be written as C source only"):
        model.save(tmp_path / name)
