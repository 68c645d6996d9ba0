# SPDX-License-Identifier: Apache-2.0
"""Boards over `ssh`: the server there speaks through its standard input and output.

No port of the board is open, not even to its own users; who may log in is who may run code. Host
keys, passwords, agents and jump hosts are ssh's own affair. The first command logs in, the others
share its connection.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from shlex import quote
from typing import IO

from treadle.errors import RpcError, UsageError
from treadle.rpc.channel import Channel, open_channel_on
from treadle.rpc.transport import (
    COMMAND_SECONDS,
    SERVER,
    Background,
    RunningServer,
    Transport,
    find_program,
    put_in_place,
)
from treadle.rpc.wire import Role

_ADDRESS = re.compile(
    r"((?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]*)@)?"
    r"(?P<host>[A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?\])"
    r"(:(?P<port>[0-9]{1,5}))?"
)
_OWN_FAILURE = 255
"""The exit code of ssh where it is ssh that fails, not the command."""
_OPENING_SECONDS = 60.0
_HINTS = (
    ("Host key verification failed", "log in once by hand, to see whose key it is: ssh {}"),
    ("Permission denied", "see that you can log in: ssh-copy-id {}"),
)


def ssh_board(address: str) -> Ssh:
    """Return the board "user@host", "host" or "host:port". Raises: UsageError, ToolchainError."""
    found = _ADDRESS.fullmatch(address)
    if found is None or not 0 < int(found["port"] or 22) < 1 << 16:
        raise UsageError(
            f"{address[:100]!r} is no board for ssh", hint="write ssh:user@host or ssh:user@host:22"
        )
    host = found["host"].removeprefix("[").removesuffix("]")
    name = f"{found['user']}@{host}" if found["user"] else host
    return Ssh(name, int(found["port"]) if found["port"] else None)


class Ssh(Transport):
    """A board that `ssh` leads to, as its configuration says."""

    def __init__(self, destination: str, port: int | None) -> None:
        self.at = f"ssh:{destination}" + (f":{port}" if port else "")
        self._destination = destination
        self._folder = tempfile.mkdtemp(prefix="treadle-ssh-")
        options = ["-T", "-o", "ControlMaster=auto", "-o", f"ControlPath={self._folder}/way"]
        options += ["-o", "ControlPersist=60", "-o", "ServerAliveInterval=15"]
        options += ["-p", str(port)] if port else []
        self._options = [find_program("ssh", "openssh-client"), *options]

    def _command(self, script: str) -> list[str]:
        return [*self._options, "--", self._destination, f"exec sh -c {quote(script)}"]

    def shell(self, script: str, source: IO[bytes] | None = None) -> str:
        stdin = subprocess.DEVNULL if source is None else source
        try:
            done = subprocess.run(
                self._command(script), stdin=stdin, capture_output=True, timeout=COMMAND_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise RpcError(
                f"a command is not done after {COMMAND_SECONDS:g} s", at=self.at
            ) from None
        said = done.stderr.decode(errors="replace")
        if done.returncode == _OWN_FAILURE:
            raise self.unreachable(said)
        if done.returncode != 0:
            raise self.failed(said)
        return done.stdout.decode(errors="replace")

    def unreachable(self, said: str) -> RpcError:
        """Return the error for what ssh says when it fails itself."""
        hint = next((h for text, h in _HINTS if text in said), "see that this works: ssh {} true")
        return RpcError(
            f"ssh fails: {said.strip()[-1000:] or 'it says nothing'}",
            at=self.at,
            hint=hint.format(self._destination),
        )

    def push(self, source: Path, path: str, *, is_program: bool = False) -> None:
        script = put_in_place(path, source.stat().st_size, is_program=is_program)
        with source.open("rb") as file:
            self.shell(f"cat >{quote(f'{path}.part')} && {{ {script}; }}", file)

    def start(self, folder: str) -> RunningServer:
        words = [
            f"{folder}/{SERVER}",
            "server",
            "--stdio",
            "--silent",
            "--work-dir",
            f"{folder}/work",
        ]
        command = self._command(f"exec {' '.join(map(quote, words))}")
        return _Server(self, command)

    def close(self) -> None:
        with_master = [*self._options, "-O", "exit", "--", self._destination]
        subprocess.run(with_master, stdin=subprocess.DEVNULL, capture_output=True)
        shutil.rmtree(self._folder, ignore_errors=True)


class _Server(RunningServer):
    """A server whose input and output are a socket of this process, through ssh."""

    def __init__(self, board: Ssh, command: list[str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = Background(command, theirs.fileno(), theirs.fileno())
        try:
            self.channel: Channel = open_channel_on(
                ours, board.at, Role.CLIENT, None, seconds=_OPENING_SECONDS
            )
        except RpcError as error:
            self._process.process.poll()
            said = self._process.said()
            self.end()
            raise RpcError(
                f"the server does not start: {said or error.problem}", at=board.at, hint=error.hint
            ) from None

    def said(self) -> str:
        return self._process.said()

    def end(self) -> None:
        self._process.end()
