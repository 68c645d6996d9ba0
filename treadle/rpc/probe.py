# SPDX-License-Identifier: Apache-2.0
"""What a board is, found out by a script of the shell: its machine, C library and processor."""

from __future__ import annotations

import re
from dataclasses import dataclass

from treadle.errors import RpcError
from treadle.rpc.transport import Transport

SCRIPT = """
LC_ALL=C; export LC_ALL
echo "system=$(uname -s)"
echo "machine=$(uname -m)"
echo "elf=$(head -c 20 /proc/self/exe 2>/dev/null | od -A n -t x1 2>/dev/null | tr -d ' \\n')"
echo "libc=$(getconf GNU_LIBC_VERSION 2>/dev/null || ldd --version 2>&1 | head -n 1)"
echo "musl=$(ls /lib/ld-musl-* 2>/dev/null | head -n 1)"
echo "android=$(getprop ro.build.version.sdk 2>/dev/null)"
echo "cpuinfo="
cat /proc/cpuinfo 2>/dev/null || true
"""
"""Prints lines "name=value", and what the system says of its processors to the end.

`elf` is the head of a program that runs there: a 64-bit kernel may have 32-bit programs.
"""

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_ELF_MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}
_SUPPORTED = ("x86_64", "aarch64", "riscv64")
_LITTLE_64_BIT = b"\x7fELF\x02\x01"


@dataclass(frozen=True)
class BoardFacts:
    """What programs for a board are built by. `libc` is gnu, musl or android, of `libc_version`.

    The version is "" where the board does not tell; Android's is the level of its interface.
    """

    machine: str
    libc: str
    libc_version: str
    cpuinfo: str

    @property
    def triple(self) -> str:
        """The triple of its programs, as aarch64-linux-gnu."""
        suffix = self.libc_version if self.libc == "android" else ""
        return f"{self.machine}-linux-{self.libc}{suffix}"

    def __str__(self) -> str:
        version = f" {self.libc_version}" if self.libc_version else ""
        return f"{self.machine}, {'glibc' if self.libc == 'gnu' else self.libc}{version}"


def probe(board: Transport) -> BoardFacts:
    """Ask a board what it is.

    Raises: RpcError when it cannot be reached, or is nothing that the runtime is built for.
    """
    told, _, cpuinfo = board.shell(SCRIPT).partition("cpuinfo=\n")
    found = dict(line.strip().partition("=")[::2] for line in told.splitlines() if "=" in line)
    system = found.get("system", "")
    if system != "Linux":
        raise RpcError(
            f"the board's system is {system[:40] or 'not told'}, not Linux",
            at=board.at,
            hint="the runtime and the server are built for Linux and Android",
        )
    libc, version = _libc(found)
    return BoardFacts(_machine(found, board.at), libc, version, cpuinfo)


def _machine(found: dict[str, str], at: str) -> str:
    told = found.get("machine", "")
    machine = _MACHINES.get(told, told)
    elf = (
        bytes.fromhex(found["elf"])
        if re.fullmatch("([0-9a-f]{2}){20}", found.get("elf", ""))
        else b""
    )
    if elf and not elf.startswith(_LITTLE_64_BIT):
        raise RpcError(
            f"the board's programs are of 32 bits, on a kernel for {told[:40]}",
            at=at,
            hint='compile the model into a program: treadle compile --target "c -mtriple=…" '
            "-o model.c, see docs/how-to/deploy_c.md",
        )
    machine = _ELF_MACHINES.get(int.from_bytes(elf[18:20], "little"), machine) if elf else machine
    if machine in _SUPPORTED:
        return machine
    raise RpcError(
        f"the board's machine is {machine[:40] or 'not told'}, which the runtime loads no code for",
        at=at,
        hint="boards are x86_64, aarch64 or riscv64; elsewhere compile the model into a program: "
        "treadle compile --target c -o model.c, see docs/how-to/deploy_c.md",
    )


def _libc(found: dict[str, str]) -> tuple[str, str]:
    """Return the C library and its version, "" where that is not told."""
    if found.get("android", "").isdigit():
        return "android", found["android"]
    told = found.get("libc", "")
    version = re.search(r"([0-9]+\.[0-9]+)\s*$", told)
    if "glibc" in told.lower() and version:
        return "gnu", version[1]
    if found.get("musl") or "musl" in told:
        return "musl", ""
    return "gnu", version[1] if version else ""
