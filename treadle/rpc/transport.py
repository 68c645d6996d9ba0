# SPDX-License-Identifier: Apache-2.0
"""Ways to a board that open none of its ports to others: commands, files, and a server's channel.

`ssh` and `adb` implement `Transport`; what is common to both lives here.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import IO

from treadle.errors import RpcError, ToolchainError
from treadle.rpc.channel import Channel

SERVER = "treadle-rpc-server"
COMMAND_SECONDS = 600.0
"""How long a command on a board, or a file that is copied there, may take."""
_GOODBYE_SECONDS = 3.0
_SHOWN = 2000


def find_program(name: str, package: str) -> str:
    """Return the path of a program. Raises: ToolchainError where it is not installed."""
    if (path := shutil.which(name)) is not None:
        return path
    raise ToolchainError(
        f"{name} is not installed", hint=f"install it (Debian: apt install {package})"
    )


class Background:
    """A process of `ssh` or `adb` with the server behind it."""

    def __init__(self, command: Sequence[str], stdin: int, stdout: int) -> None:
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (until `end`)
        # A session of its own: Ctrl-C is for the command, which then takes leave of the board.
        self.process = subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=self._said, start_new_session=True
        )

    def said(self) -> str:
        """Return the end of what it has written to standard error."""
        size = os.fstat(self._said.fileno()).st_size
        text = os.pread(self._said.fileno(), _SHOWN, max(0, size - _SHOWN))
        return text.decode(errors="replace").strip()

    def end(self) -> None:
        """Close its input, wait a little for its end, then end it."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_GOODBYE_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._said.close()


class RunningServer(ABC):
    """A server that was started on a board for one client."""

    channel: Channel

    @abstractmethod
    def said(self) -> str:
        """Return what the way to the board says went wrong, "" where it says nothing."""

    @abstractmethod
    def end(self) -> None:
        """End the server and everything that leads to it. Raises: RpcError."""


class Transport(ABC):
    """A board that commands can be run on; `at` names it as users do."""

    at: str

    @abstractmethod
    def shell(self, script: str, source: IO[bytes] | None = None) -> str:
        """Run a script of the POSIX shell there, with a file as its input; return what it prints.

        Raises: RpcError when the board cannot be reached, or the script fails.
        """

    @abstractmethod
    def push(self, source: Path, path: str, *, is_program: bool = False) -> None:
        """Copy a file to the board; it appears complete or not at all. Raises: RpcError."""

    @abstractmethod
    def start(self, folder: str) -> RunningServer:
        """Start the server that lies in a folder of the board. Raises: RpcError."""

    @abstractmethod
    def close(self) -> None:
        """Leave nothing behind on this machine."""

    def failed(self, said: str) -> RpcError:
        """Return the error of a command that has failed on the board."""
        said = said.strip()[-_SHOWN:]
        hint = "run it there by hand to see more"
        if "No space left" in said:
            hint = "make room there, or name a folder with more of it: --board-folder"
        elif "Permission denied" in said or "Read-only file system" in said:
            hint = "name a folder there that can be written and run from: --board-folder"
        return RpcError(f"the board refuses a command: {said or 'it says nothing'}", at=self.at,
                        hint=hint)  # fmt: skip


def put_in_place(path: str, size: int, *, is_program: bool) -> str:
    """Return the script that gives a file that was copied to PATH.part its name, if it is whole."""
    part, mode = quote(f"{path}.part"), "700" if is_program else "600"
    return (
        f'test "$(wc -c <{part})" -eq {size} || {{ echo "the copy is cut off" >&2; exit 1; }}; '
        f"chmod {mode} {part} && mv -f {part} {quote(path)}"
    )
