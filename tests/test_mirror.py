# SPDX-License-Identifier: Apache-2.0
"""Tests mirror the package: tests/P/test_M.py is of treadle/P/M.py, or of the folder treadle/P/M.

A module without a test file of its name is held by another one, listed here with the reason; a test
file that names no module is of a behaviour of its package, and says so here.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.test_architecture import PACKAGE, ROOT, modules, tree_of

pytestmark = pytest.mark.tiny

TESTS = ROOT / "tests"

FEW_LINES = 30
"""A module of so few lines of code need not have tests of its own."""

HELD: dict[str, tuple[str, tuple[str, ...]]] = {
    "auto_scheduler/test_record_format.py": (
        "files of v0.8 are read and written again line by line",
        ("auto_scheduler/log.py", "auto_scheduler/measure_record.py",
         "auto_scheduler/record_lines.py"),
    ),
    "auto_scheduler/test_search_task.py": (
        "tasks of v0.8 are tuned with every option",
        ("auto_scheduler/compute_dag.py", "auto_scheduler/hardware.py",
         "auto_scheduler/outcome.py", "auto_scheduler/screen.py",
         "auto_scheduler/search_policy.py", "auto_scheduler/tuning.py",
         "auto_scheduler/workload.py"),
    ),
    "auto_scheduler/test_steps.py": (
        "each kind of step is read", ("auto_scheduler/step_reader.py",),
    ),
    "auto_scheduler/test_task_scheduler.py": (
        "the tasks of a model are extracted and tuned", ("auto_scheduler/extract.py",),
    ),
    "autotvm/test_record.py": (
        "lines of v0.8's records are read and written again",
        ("autotvm/entity.py", "autotvm/lines.py", "autotvm/record_format.py"),
    ),
    "autotvm/test_tuner.py": (
        "templates of v0.8 are tuned", ("autotvm/measure.py", "autotvm/runs.py"),
    ),
    "autotvm/test_task.py": ("spaces of templates are listed", ("autotvm/space.py",)),
    "build/test_formats.py": (
        "each form of an artifact is written, linked and run",
        ("build/library_format.py",),
    ),
    "build/test_artifact.py": (
        "artifacts are saved, loaded and compared", ("build/loaded.py", "build/plan_json.py"),
    ),
    "build/test_kernel.py": ("kernels are called by their signature", ("build/signatures.py",)),
    "cli/test_explain.py": (
        "everything explain prints", ("build/agreement.py", "cli/explain_knobs.py"),
    ),
    "cli/test_main.py": (
        "every command is run as users run it",
        ("cli/bench.py", "cli/compile.py", "cli/named.py"),
    ),
    "cli/test_records.py": (
        "what records cover of a model is said", ("build/coverage.py",),
    ),
    "cli/test_compare.py": ("layers of two models are compared", ("cli/layers.py",)),
    "cli/test_measure.py": (
        "a machine is measured", ("cli/doctor.py", "target/probes.py"),
    ),
    "cli/test_rpc.py": ("models run on a device of the command line", ("cli/remote.py",)),
    "cli/test_tune.py": ("what tuning reports", ("cli/tune_report.py",)),
    "expr/test_simplify.py": (
        "bounds by relations are compared with all values of small ranges",
        ("expr/comparisons.py", "expr/nodes.py", "expr/quotients.py", "expr/relations.py",
         "expr/sums.py"),
    ),
    "frontend/builders/test_aten.py": (
        "an importer of another format is made of them, and compared with NumPy",
        ("frontend/builders/*.py",),
    ),
    "integrations/test_torch_compile.py": (
        "graphs of torch.compile are cut, compiled and compared with eager",
        (
            "frontend/torch/pieces.py",
            "integrations/torch_piece.py",
            "integrations/torch_views.py",
        ),
    ),
    "frontend/torch/test_parts.py": (
        "complex numbers are converted by layers and operators that have them",
        ("frontend/builders/complex_numbers.py", "frontend/builders/frames.py"),
    ),
    "frontend/torch/test_importer.py": (
        "modules are exported, imported, compiled and compared with eager",
        ("build/reading.py", "frontend/torch/core/*.py", "frontend/torch/diagnostics.py",
         "frontend/torch/export.py", "frontend/torch/node.py", "frontend/torch/reader.py",
         "frontend/torch/fused_layers.py", "frontend/torch/script.py"),
    ),
    "frontend/onnx/control/test_loops.py": (
        "loops of both kinds are compared with a reference",
        ("frontend/onnx/control/unrolled_loops.py",),
    ),
    "frontend/onnx/test_node_suite.py": (
        "the standard's own tests of each operator",
        ("frontend/onnx/core/*.py", "frontend/onnx/ml/*.py"),
    ),
    "frontend/onnx/microsoft/test_transformer.py": (
        "each operator is compared with a reference", ("frontend/onnx/microsoft/*.py",),
    ),
    "frontend/onnx/test_importer.py": (
        "models with each feature of the format",
        ("frontend/onnx/diagnostics.py", "frontend/onnx/frames.py",
         "frontend/onnx/functions.py", "frontend/onnx/node.py",),
    ),
    "frontend/onnx/test_hostile.py": (
        "files of every kind of damage",
        ("frontend/onnx/external.py", "frontend/onnx/files.py"),
    ),
    "frontend/onnx/test_open_sizes.py": (
        "models whose sizes runs decide", ("frontend/onnx/inputs.py", "frontend/symbolic.py"),
    ),
    "frontend/tflite/test_importer.py": (
        "whole files are imported, refused, and damaged",
        ("frontend/declared.py", "frontend/tflite/node.py", "build/reading.py"),
    ),
    "frontend/tflite/test_layout.py": (
        "images of whole networks are transposed once", ("frontend/builders/layout.py",),
    ),
    "frontend/keras/test_importer.py": (
        "files of layers are read, refused, and damaged",
        ("frontend/keras/archive.py", "frontend/keras/network.py"),
    ),
    "frontend/keras/test_layers.py": (
        "each layer is compared with Keras",
        ("frontend/keras/layer.py", "frontend/keras/core/*.py"),
    ),
    "frontend/tensorflow/test_control.py": (
        "lists are read and written in loops",
        ("frontend/tensorflow/context.py", "frontend/tensorflow/lists.py"),
    ),
    "frontend/tensorflow/test_graph.py": (
        "tensors are attributes of nodes", ("frontend/tensorflow/tensors.py",),
    ),
    "frontend/tensorflow/test_model.py": (
        "variables of SavedModels are restored and read",
        ("frontend/tensorflow/restore.py", "frontend/tensorflow/variables.py"),
    ),
    "frontend/tflite/test_model.py": (
        "sparse weights are parts of files", ("frontend/tflite/sparse.py",),
    ),
    "frontend/tflite/core/test_conv.py": (
        "quantised operators are compared with the interpreter",
        ("frontend/tflite/quantized.py",),
    ),
    "frontend/onnx/test_opsets.py": (
        "each version of each operator is found", ("frontend/onnx/resolve.py",),
    ),
    "integrations/test_inference_session.py": (
        "sessions answer as the library whose interface they have",
        ("integrations/session_model.py", "integrations/session_onnx.py"),
    ),
    "loop/test_from_schedule.py": (
        "nests are compared with what the tensor expressions say",
        ("loop/bodies.py", "loop/build.py", "loop/context.py", "loop/domains.py",
         "loop/elements.py", "loop/nest.py", "loop/stores.py"),
    ),
    "loop/test_threads.py": (
        "nests of threads are run with their barriers", ("lower/insert_barriers.py",),
    ),
    "lower/test_expand_math.py": (
        "each function is compared with exact values", ("lower/math/*.py",),
    ),
    "ops/schedules/test_attention.py": (
        "the stages of attention are found and scheduled", ("ops/schedules/attention_parts.py",),
    ),
    "ops/schedules/test_gpu.py": (
        "kernels for GPUs are run with all of their threads", ("ops/schedules/gpu/*.py",),
    ),
    "target/test_c_text.py": (
        "statements are printed in every language of the family", ("target/c_statements.py",),
    ),
    "target/test_gpu_text.py": (
        "kernels are printed in both languages",
        ("target/gpu_dialects.py",),
    ),
    "target/test_parse_gpu.py": ("targets have the facts of rows", ("target/gpu_rows.py",)),
    "ops/test_operators.py": (
        "the examples of each operator: type, reference, expression and compiled code agree",
        ("ops/*.py", "ops/lowered/*.py"),
    ),
    "ops/schedules/test_nests.py": (
        "whole nests are compared with kept texts",
        ("ops/schedules/stages.py",),
    ),
    "optimize/test_layout.py": (
        "graphs are laid out and compared with the plain ones",
        ("optimize/blocked.py", "optimize/blocked_rules.py"),
    ),
    "optimize/test_fuse.py": ("fused groups are outlined", ("optimize/outline.py",)),
    "optimize/methods/test_method.py": (
        "each method says where it applies, and builds what is right",
        ("optimize/methods/*.py",),
    ),
    "rpc/test_boards.py": (
        "sessions over both ways to a board", ("rpc/transport.py",),
    ),
    "rpc/test_server.py": (
        "a session does all that a device can",
        ("rpc/calls.py", "rpc/channel.py", "rpc/client.py", "rpc/device.py", "rpc/link.py",
         "rpc/remote.py", "rpc/session.py"),
    ),
    "rpc/test_tracker.py": (
        "devices are registered and lent", ("rpc/registration.py", "rpc/tracking.py"),
    ),
    "runtime/test_executor.py": ("models are run and profiled", ("runtime/native_executor.py",)),
    "runtime/test_toolchain.py": ("the runtime is built", ("runtime/native_build.py",)),
    "native/test_artifact.py": (
        "artifacts are opened by the native runtime", ("runtime/artifact_file.py",),
    ),
    "build/test_gpu_executable.py": (
        "models for GPUs are compiled, saved, loaded and refused",
        ("build/gpu_artifact.py", "build/gpu_loaded.py", "build/gpu_places.py",
         "runtime/gpu/artifact.py"),
    ),
    "runtime/gpu/test_executor.py": (
        "models run with kernels on either side", ("runtime/gpu/program.py",),
    ),
    "runtime/gpu/test_opencl.py": (
        "a device does all that the protocol says",
        ("runtime/gpu/driver.py", "runtime/gpu/opencl_library.py"),
    ),
    "build/test_kernel_library.py": (
        "kernels alone are kept in files", ("runtime/kernel_files.py",),
    ),
    "runtime/elf/test_relocations.py": (
        "object files are joined and linked", ("runtime/elf/*.py",),
    ),
    "target/test_backend.py": (
        "each back end makes every stage",
        ("target/c_backend.py", "target/llvm_backend.py", "target/text_compiler.py"),
    ),
    "target/test_c_values.py": (
        "printed C means what LLVM IR means", ("target/c_helpers.py",),
    ),
    "test_units.py": ("every limit says what it counts", ("limits.py",)),
    "target/test_intrinsics.py": (
        "each intrinsic is compared with its meaning",
        ("target/intrinsics/*.py", "target/llvm_intrinsics.py", "target/llvm_operands.py",
         "target/llvm_words.py"),
    ),
    "target/test_llvm_ir.py": (
        "functions of each form are compiled and run",
        ("target/llvm_builder.py",),
    ),
    "target/test_machine.py": (
        "each row is complete and says its source", ("target/machine_rows_*.py",),
    ),
    "target/test_parse.py": (
        "targets are read and printed again",
        ("target/base.py",),
    ),
    "target/test_workers.py": (
        "workers compile, fail and are replaced", ("target/worker.py",),
    ),
    "te/test_steps.py": (
        "each primitive is recorded, replayed and printed",
        ("te/arguments.py", "te/loops.py", "te/primitives.py", "te/script.py",
         "te/size_text.py"),
    ),
    "te/test_schedule.py": (
        "each primitive is applied, and refused where it does not fit",
        ("te/caches.py", "te/stage.py"),
    ),
    "te/test_tensor.py": ("each reduction is made", ("te/reductions.py",)),
    "tune/test_gpu_runner.py": (
        "candidates are measured by a process of their own", ("tune/gpu_process.py",),
    ),
    "tune/test_rpc_executor.py": (
        "trials run on devices", ("tune/boards.py", "tune/pool.py", "tune/remote.py"),
    ),
    "tune/test_process.py": ("a process is stopped and started", ("tune/worker.py",)),
    "tune/test_tuner.py": ("models are tuned", ("tune/foreign_records.py", "tune/proposals.py")),
    "tune/test_sketch.py": (
        "sketches of each form are listed, priced and run", ("tune/sketch_*.py",),
    ),
    "graph/test_text.py": ("functions with sizes print and parse", ("graph/symbols.py",)),
}  # fmt: skip
"""The test file that holds modules without one of their name: why it does, and which they are."""

BEHAVIOURS: dict[str, tuple[str, ...]] = {
    ".": ("architecture", "conftest", "device_story", "mirror", "networks", "open_networks",
          "public_names", "roads", "units", "words"),
    "auto_scheduler": ("names",),
    "autotvm": ("rpc_runner",),
    "build": ("dynamic", "foreign_operators", "indices", "large", "models", "networks_at_random",
              "output_views", "run_time", "run_time_broadcast", "unaligned_inputs"),
    "cli": ("gpu_commands", "interrupt"),
    "frontend/builders": ("aten",),
    "frontend/keras": ("layers",),
    "frontend/onnx": ("data_positions", "exporters", "hostile", "low_precision_weights",
                      "node_suite", "open_sizes", "opsets", "sizes_of_data", "symbolic_images"),
    "frontend/tensorflow": ("networks",),
    "frontend/tflite": ("layout",),
    "frontend/torch": ("op_db",),
    "integrations": ("conformance", "int8_models"),
    "native": ("machines", "run_model"),
    "ops": ("accuracy", "compiled_windows", "device_kernels", "empty_extents", "operators"),
    "ops/schedules": ("knobs", "nests", "spills", "symbolic"),
    "rpc": ("hostile", "server_c", "wire_c"),
    "te": ("differential", "fuzz", "scripts"),
    "tune": ("dynamic_tasks", "resume"),
}  # fmt: skip
"""Test files of what no single module does, by their folder."""

OTHER_SOURCES = {"benchmarks": "benchmarks/*.py", "native": "native/src/*.c"}
"""Folders of tests that mirror something else than the package."""

APART = {"abuse", "docs", "examples", "fuzz"}
"""Folders of tests of whole models, pages and programs."""


def code_lines(tree: ast.Module) -> int:
    """Return how many lines statements take, without imports and texts."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and not is_text:
            if isinstance(node, ast.Import | ast.ImportFrom):
                continue
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            lines |= set(range(node.lineno, last + 1))
    return len(lines)


def files_of_tests() -> list[str]:
    return sorted(p.relative_to(TESTS).as_posix() for p in TESTS.rglob("test_*.py"))


def mirrored(path: Path) -> str:
    """Return where the tests of a module stand, from the folder of tests."""
    inside = path.relative_to(PACKAGE)
    return (inside.parent / f"test_{inside.name}").as_posix()


def holder_of(module: str) -> str | None:
    path = Path(module)
    for holder, (_, patterns) in HELD.items():
        if any(path.match(p) and path.parent == Path(p).parent for p in patterns):
            return holder
    return None


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@cache
def unheld() -> list[str]:
    """Return the modules of some length that no test file is of."""
    return [
        name_of(path)
        for path in modules()
        if path.name not in ("__init__.py", "__main__.py")
        and not (TESTS / mirrored(path)).exists()
        and code_lines(tree_of(path)) > FEW_LINES
    ]


def test_lines_of_code_are_counted_without_imports_and_texts() -> None:
    text = '"""Text."""\n'
    source = f"{text}import os\n\ndef f(\n    a,\n):\n    {text}    return (\n  a)\n\nB = 1\n"
    assert code_lines(ast.parse(source)) == 3 + 2 + 1


def test_every_module_has_tests_of_its_name_or_a_holder() -> None:
    missing = [module for module in unheld() if holder_of(module) is None]
    assert not missing, "\n".join(missing)


def test_what_is_listed_is_there_and_needed() -> None:
    left = unheld()
    for holder, (reason, patterns) in HELD.items():
        assert (TESTS / holder).is_file(), holder
        assert reason, holder
        for pattern in patterns:
            found = [m for m in left if Path(m).match(pattern)]
            assert found, f"{pattern} holds nothing that has no tests of its name"
    for folder, names in BEHAVIOURS.items():
        for name in names:
            assert (TESTS / folder / f"test_{name}.py").is_file(), f"{folder}: {name}"


def of_something(test: str) -> bool:
    path = Path(test)
    folder, name = path.parent.as_posix(), path.stem.removeprefix("test_")
    if path.parts[0] in APART or name in BEHAVIOURS.get(folder, ()):
        return True
    if folder in OTHER_SOURCES:
        return any(p.stem == name for p in ROOT.glob(OTHER_SOURCES[folder]))
    place = PACKAGE / folder / name
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def test_every_test_file_is_of_something() -> None:
    astray = [test for test in files_of_tests() if not of_something(test)]
    assert not astray, "\n".join(astray)
