# SPDX-License-Identifier: Apache-2.0
"""What a board is, from what its programs say."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import pytest

from treadle.errors import RpcError
from treadle.rpc.probe import BoardFacts, probe
from treadle.rpc.transport import RunningServer, Transport

_HEAD = "7f454c46{bits}0100000000000000000003 00{machine}00"
ARM64 = _HEAD.format(bits="0201", machine="b7").replace(" ", "")
ARM32 = _HEAD.format(bits="0101", machine="28").replace(" ", "")


class Saying(Transport):
    """A board of which nothing is known but what it says."""

    at = "ssh:saying"

    def __init__(self, text: str) -> None:
        self._text = text

    def shell(self, script: str, source: IO[bytes] | None = None) -> str:
        return self._text

    def push(self, source: Path, path: str, *, is_program: bool = False) -> None:
        raise AssertionError("nothing is copied")

    def start(self, folder: str) -> RunningServer:
        raise AssertionError("nothing is started")

    def close(self) -> None:
        pass


def told(*lines: str, elf: str = "") -> BoardFacts:
    text = "\n".join(["system=Linux", *lines, f"elf={elf}", "cpuinfo=", "processor : 0", ""])
    return probe(Saying(text))


@pytest.mark.parametrize(
    ("lines", "triple", "version"),
    [
        (["machine=aarch64", "libc=glibc 2.31"], "aarch64-linux-gnu", "2.31"),
        (["machine=x86_64", "libc=ldd (Debian GLIBC 2.36-9) 2.36"], "x86_64-linux-gnu", "2.36"),
        (["machine=x86_64", "libc=glibc 2.36", "musl=/lib/ld-musl-x86_64.so.1"],
         "x86_64-linux-gnu", "2.36"),
        (["machine=riscv64", "libc=musl libc (riscv64)"], "riscv64-linux-musl", ""),
        (["machine=aarch64", "libc=", "musl=/lib/ld-musl-aarch64.so.1"], "aarch64-linux-musl", ""),
        (["machine=aarch64", "libc=", "android=30"], "aarch64-linux-android30", "30"),
        (["machine=arm64", "libc="], "aarch64-linux-gnu", ""),
    ],
)  # fmt: skip
def test_boards_of_each_kind(lines: list[str], triple: str, version: str) -> None:
    facts = told(*lines)
    assert facts.triple == triple
    assert facts.libc_version == version
    assert facts.cpuinfo == "processor : 0\n"


def test_programs_say_more_than_the_kernel() -> None:
    assert told("machine=aarch64", elf=ARM64).machine == "aarch64"
    with pytest.raises(
        RpcError, match="programs are of 32 bits, on a kernel for aarch64"
    ) as caught:
        told("machine=aarch64", elf=ARM32)
    assert "-o model.c" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "system is not told, not Linux"),
        ("system=Darwin\nmachine=arm64\ncpuinfo=\n", "system is Darwin"),
        ("system=Linux\nmachine=mips\ncpuinfo=\n", "machine is mips"),
        ("system=Linux\ncpuinfo=\n", "machine is not told"),
    ],
)
def test_what_no_runtime_is_for_is_refused(text: str, problem: str) -> None:
    with pytest.raises(RpcError, match=problem) as caught:
        probe(Saying(text))
    assert caught.value.at == "ssh:saying"
    assert caught.value.hint
