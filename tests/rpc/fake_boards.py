# SPDX-License-Identifier: Apache-2.0
"""Boards that are this machine: `ssh` and `adb` that record their calls and run commands here.

Everything else is real: the scripts, the copies, the server in C, the sessions.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_COMMON = r"""
import json, os, re, subprocess, sys, time
from pathlib import Path

board = Path(__file__).resolve().parent.parent
words = sys.argv[1:]

def read(name):
    path = board / name
    return path.read_text().strip() if path.exists() else ""

def record():
    with (board / "calls").open("a") as file:
        call = {"program": Path(__file__).name, "words": words, "pid": os.getpid()}
        file.write(json.dumps(call) + "\n")

def run(script):
    if runner := read("runner"):
        script = re.sub(r"exec (\S+/treadle-rpc-server)", rf"exec {runner} \1", script)
    path = f"{board / 'bin'}:{os.environ['PATH']}"
    return ["env", f"PATH={path}", "sh", "-c", script]

def fail(code, text):
    sys.stderr.write(text + "\n")
    sys.exit(code)

record()
"""

_SSH = r"""
if "-O" in words:
    sys.exit(0)
if fault := read("ssh-fault"):
    fail(255, fault)
place = words.index("--")
assert len(words) == place + 3, words
command = run(words[place + 2])
os.execvp(command[0], command)
"""

_ADB = r"""
def table(name):
    return [line.split() for line in read(name).splitlines()]

def ports(name, words):
    rows = table(name)
    if words[0] == "--list":
        print("\n".join(" ".join(row) for row in rows))
    elif words[0] == "--remove":
        left = [row for row in rows if row[1] != words[1]]
        if len(left) == len(rows):
            fail(1, f"adb: error: listener {words[1]} not found")
        (board / name).write_text("\n".join(" ".join(row) for row in left))
    else:
        # Both sides are this machine: a port leads to itself.
        first = words[1] if words[0] == "tcp:0" else words[0]
        rows.append([serial if name == "forward" else "UsbFfs", first, words[1]])
        (board / name).write_text("\n".join(" ".join(row) for row in rows))
        if words[0] == "tcp:0":
            print(first.removeprefix("tcp:"))

if words == ["devices"]:
    print("List of devices attached\n" + "\n".join(read("devices").splitlines()) + "\n")
    sys.exit(0)
assert words[0] == "-s", words
serial, verb, rest = words[1], words[2], words[3:]
if fault := read("adb-fault"):
    fail(1, fault)
if verb == "shell":
    (script,) = rest
    command = run(script)
    if "server" in script.split():
        time.sleep(float(read("seconds-to-start") or 0))
    if not read("is-old"):
        os.execvp(command[0], command)
    if "server" in script.split():
        os.execvp(command[0], command)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    sys.stdout.buffer.write(done.stdout.replace(b"\n", b"\r\n"))
elif verb == "push":
    done = subprocess.run(["cp", *rest], capture_output=True, text=True)
    if fault := read("push-fault"):
        fail(1, fault)
    if done.returncode:
        fail(1, f"adb: error: failed to copy {rest[0]!r}: {done.stderr}")
else:
    assert verb in ("forward", "reverse"), words
    ports(verb, rest)
"""


@dataclass(frozen=True)
class FakeBoard:
    """A folder: `calls` has what was called; files in `bin` are the board's own programs."""

    folder: Path

    def write(self, name: str, text: str) -> None:
        """Say how the board behaves: see the programs."""
        (self.folder / name).write_text(text)

    def program(self, name: str, script: str) -> None:
        """Give the board a program of its own in the place of this machine's."""
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def calls(self) -> list[dict[str, object]]:
        """Return what was called, in order: program, words, process."""
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def lines(self) -> list[str]:
        """Return the calls as text."""
        return [" ".join(map(str, call["words"])) for call in self.calls()]  # type: ignore[call-overload]

    def left(self) -> list[str]:
        """Return the work folders that are there."""
        return sorted(p.name for p in (self.folder / "tmp").iterdir())

    @property
    def tmp(self) -> str:
        """The folder to work in."""
        return str(self.folder / "tmp")


@contextmanager
def fake_board(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBoard]:
    """Put ssh and adb on PATH that lead to a board in `folder`."""
    for name in ("path", "bin", "tmp"):
        (folder / name).mkdir()
    for name, body in (("ssh", _SSH), ("adb", _ADB)):
        path = folder / "path" / name
        path.write_text(f"#!{sys.executable} -S\n{_COMMON}{body}")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'path'}:{os.environ['PATH']}")
    board = FakeBoard(folder)
    board.write("devices", "SER1\tdevice")
    yield board


ARM_CPUINFO = """\
processor\t: 0
CPU implementer\t: 0x41
CPU part\t: 0xd05

processor\t: 1
CPU implementer\t: 0x41
CPU part\t: 0xd0b
"""


def become_arm(board: FakeBoard, runner: str) -> None:
    """Let the board be an AArch64 machine, whose server `runner` runs."""
    header = (
        b"\x7fELF\x02\x01\x01" + bytes(9) + (3).to_bytes(2, "little") + (183).to_bytes(2, "little")
    )
    octal = "".join(f"\\{byte:03o}" for byte in header)
    (board.folder / "cpuinfo").write_text(ARM_CPUINFO)
    board.program("uname", 'case "$1" in -m) echo aarch64;; *) exec /bin/uname "$@";; esac')
    board.program("head", f"case \"$*\" in '-c 20 /proc/self/exe') printf '{octal}';; "
                  '*) exec /usr/bin/head "$@";; esac')  # fmt: skip
    board.program("cat", f'case "$1" in /proc/cpuinfo) exec /bin/cat {board.folder}/cpuinfo;; '
                  '*) exec /bin/cat "$@";; esac')  # fmt: skip
    board.write("runner", runner)
