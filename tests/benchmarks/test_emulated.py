# SPDX-License-Identifier: Apache-2.0
"""Kernels for the 64-bit Arm, run in an emulator: results, and what the instructions are."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks import emulated
from benchmarks.kernels import Case, conv, gemm, model_of

WORD = 0xD503201F
CODE = emulated.Code({0: WORD, 8: WORD}, [(0, "a"), (4, "a.run"), (8, "b")])
LOG = b"""\
0x7000:  d503201f  nop
Trace 0: 0x7f03 [0000/0000000000007000/00000001/00000201] a
0x9000:  d503201f  nop
Trace 0: 0x7f03 [0000/0000000000009000/00000001/00000201] a
0x9004:  4e2ccd00  fmla     v0.4s,   v8.4s, v12.4s
Trace 0: 0x7f03 [0000/0000000000009004/00000001/00000201] a
Trace 0: 0x7f03 [0000/0000000000009004/00000001/00000201] a
0x9008:  d503201f  str      q1, [sp, #16]
Trace 0: 0x7f03 [0000/0000000000009008/00000001/00000201] b
"""


def test_instructions_are_counted_by_kernel_where_the_code_is_mapped() -> None:
    found = emulated.kernel_instructions(LOG.splitlines(keepends=True), CODE)
    assert found == {
        "a": Counter({"nop": 1, "fmla v0.4s, v8.4s, v12.4s": 2}),
        "b": Counter({"str q1, [sp, #16]": 1}),
    }
    assert emulated.multiply_adds(found["a"]) == 2
    assert emulated.spills(found["b"]) == 1


def test_needed_is_the_plain_algorithm_s_part_of_what_executes() -> None:
    executed = Counter({"fmla v0.4s, v8.4s, v12.4s": 600, "ldr q1, [x0]": 400})
    assert emulated.needed(gemm(4, 10, 80), executed) == pytest.approx(0.8)


def test_an_instruction_is_found_where_its_segment_lies() -> None:
    """Linkers may map a segment at another address than its place in the file."""
    header = bytearray(64)
    struct.pack_into("<Q14xHH", header, 32, 64, 56, 2)
    data = struct.pack("<IIQQQQQQ", 4, 0, 0, 0, 0, 1 << 20, 0, 0)
    code = struct.pack("<IIQQQQQQ", 1, 5, 176, 0x10B0, 0x10B0, 8, 8, 4096)
    content = bytes(header) + data + code + struct.pack("<II", 1, WORD)
    assert emulated.word_at(content, 0x10B4) == WORD
    with pytest.raises(ValueError, match="0x10b8"):
        emulated.word_at(content, 0x10B8)


CASES: list[tuple[Case, float]] = [
    (conv("conv 1x1", (1, 64, 14, 14), (64, 64, 1, 1)), 0.5),
    (conv("winograd", (1, 32, 14, 14), (32, 32, 3, 3), pads=[1] * 4), 0.9),
    (conv("depthwise", (1, 32, 14, 14), (32, 1, 3, 3), pads=[1] * 4, group=32), 0.5),
    (gemm(32, 128, 128), 0.5),
]
"""An operator, and the least share of its kernel's instructions that its plain algorithm needs.

Winograd's filtering is worth its transforms where that is far above what the others reach: it
multiplies less, and its transforms, which add, are among the instructions.
"""


@pytest.mark.slow
@pytest.mark.skipif(bool(emulated.missing_tools()), reason="no emulator or compiler for aarch64")
@pytest.mark.parametrize(("case", "share"), CASES, ids=[case.name for case, _ in CASES])
def test_arm_kernels_are_right_and_mostly_multiply_adds(
    case: Case, share: float, tmp_path: Path
) -> None:
    runner = emulated.build_runner(tmp_path)
    run, expected = emulated.emulate_model(*model_of(case), runner, "")
    np.testing.assert_allclose(run.outputs[0], expected[0], rtol=1e-4, atol=1e-4)
    executed = run.busiest()
    assert emulated.needed(case, executed) >= share
    assert emulated.spills(executed) <= emulated.multiply_adds(executed) / 1000
