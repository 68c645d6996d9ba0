# SPDX-License-Identifier: Apache-2.0
"""The kernel cache: kernels come back by content, and never while a user watches the passes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import treadle
from treadle.build.kernel import ObjectCode
from treadle.build.kernel_cache import load_kernel, store_kernel
from treadle.lower.limit_stack import stack_bytes
from treadle.settings import use

MODEL = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"
SHAPES = {"image": (1, 1, 8, 8)}
KERNEL = ObjectCode(b"code", 64, 4096)


def test_kernel_comes_back(tmp_path: Path) -> None:
    with use(cache=tmp_path):
        assert load_kernel("key") is None
        store_kernel("key", KERNEL)
        assert load_kernel("key") == KERNEL
        assert load_kernel("other key") is None


def test_cache_is_left_alone_while_passes_are_watched(tmp_path: Path) -> None:
    with use(cache=tmp_path / "cache"):
        store_kernel("kept", KERNEL)
        watching = ({"dump": tmp_path}, {"override": tmp_path}, {"debug": 6}, {"time": True})
        for settings in watching:
            with use(**settings):
                assert load_kernel("kept") is None
                store_kernel("new", KERNEL)
        assert load_kernel("new") is None
        assert load_kernel("kept") == KERNEL


def test_plan_says_what_kernels_take_of_the_stack_whether_they_are_compiled_or_kept(
    tmp_path: Path,
) -> None:
    with use(cache=tmp_path):
        cold = treadle.compile(MODEL, shapes=SHAPES)
        warm = treadle.compile(MODEL, shapes=SHAPES)
    lowered = max(stack_bytes(kernel.lowered) for kernel in cold.kernels)
    assert lowered > 0
    assert [made.plan["stack_bytes"] for made in (cold, warm)] == [lowered, lowered]


def test_warm_compile_still_dumps_every_kernel(tmp_path: Path) -> None:
    with use(cache=tmp_path / "cache"):
        executable = treadle.compile(MODEL, shapes=SHAPES)
        with use(dump=tmp_path / "dump"):
            treadle.compile(MODEL, shapes=SHAPES)
        for kernel in executable.kernels:
            assert (tmp_path / "dump" / kernel.name / "lower" / "00_input.txt").is_file()


def test_edited_kernel_runs_but_is_not_kept(tmp_path: Path) -> None:
    image = np.ones((1, 1, 8, 8), np.float32)
    with use(cache=tmp_path / "cache"):
        (right,) = treadle.compile(MODEL, shapes=SHAPES)(image)
        with use(dump=tmp_path / "dump"):
            treadle.compile(MODEL, shapes=SHAPES)
        edited = tmp_path / "edited"
        passes = tmp_path / "dump" / "main" / "optimize"
        dumped = min(passes.glob("*_canonicalize.txt"))
        target = edited / dumped.relative_to(tmp_path / "dump")
        target.parent.mkdir(parents=True)
        text = dumped.read_text(encoding="utf-8")
        assert "relu" in text
        target.write_text(text.replace("relu", "negative"), encoding="utf-8")
        with use(override=edited):
            (wrong,) = treadle.compile(MODEL, shapes=SHAPES)(image)
        (again,) = treadle.compile(MODEL, shapes=SHAPES)(image)
    assert not np.allclose(np.asarray(wrong), np.asarray(right))
    assert np.array_equal(np.asarray(again), np.asarray(right))
