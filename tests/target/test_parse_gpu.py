# SPDX-License-Identifier: Apache-2.0
"""Target strings of GPUs, and the rows behind them."""

from __future__ import annotations

import pytest

from treadle.errors import TargetError
from treadle.target.gpu_rows import GPUS
from treadle.target.parse import parse_target


@pytest.mark.parametrize(
    "text",
    [
        "cuda -arch=sm_90",
        "opencl -arch=generic",
        "opencl -arch=sm_75",
        "cuda -arch=sm_80 -max_threads_per_block=512 -num-cores=8",
    ],
)
def test_text_of_a_target_is_read_back(text: str) -> None:
    target = parse_target(text)
    assert str(target) == text
    assert parse_target(str(target)) == target


def test_a_target_has_the_facts_of_its_row() -> None:
    target = parse_target("cuda -arch=sm_90 -libs=cudnn -model=h100")
    assert (target.family, target.cores, target.cpu) == ("gpu", 132, "sm_90")
    assert target.gpu == GPUS["sm_90"].gpu
    assert parse_target("llvm").gpu is None


def test_defaults_are_named() -> None:
    assert str(parse_target("cuda")) == "cuda -arch=sm_80"
    assert str(parse_target("opencl")) == "opencl -arch=generic"


@pytest.mark.parametrize("name", GPUS)
def test_rows_are_possible_machines(name: str) -> None:
    row = GPUS[name]
    gpu = row.gpu
    assert row.products
    assert row.source
    assert gpu.block_bytes <= gpu.shared_bytes
    assert gpu.block_threads % gpu.warp == 0
    assert gpu.block_threads <= gpu.threads
    assert gpu.thread_registers * gpu.warp <= gpu.registers


def test_peaks_are_those_of_the_data_sheets() -> None:
    peaks = {name: round(row.gpu.flops / 1e12, 1) for name, row in GPUS.items()}
    assert peaks["sm_75"] == 8.1
    assert peaks["sm_80"] == 19.5
    assert peaks["sm_90"] == 66.9


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cuda -arch=sm_20", "'sm_20' is not a known architecture of GPUs"),
        ("cuda -arch=generic", "'generic' is not a known architecture"),
        ("cuda -arhc=sm_80", "has an unknown option '-arhc=sm_80'\n  hint  did you mean -arch?"),
        ("cuda -arch", "option -arch of target 'cuda -arch' has no value"),
        ("opencl -num-cores=many", "-num-cores=many of target"),
        ("cuda -arch=sm_80 -arch=sm_90", "option -arch stands twice"),
        ("vulkan", "needs GPU code generation, which is not built yet"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(TargetError) as error:
        parse_target(text)
    assert message in str(error.value)
