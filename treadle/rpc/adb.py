# SPDX-License-Identifier: Apache-2.0
"""Boards over `adb`: commands, files, and ports that are forwarded and reversed.

`adb shell` changes bytes on the board's older systems, so the server listens on the board's own
loopback, where other programs of the board reach it too: it gets a key that is made for this
session. A port of this machine is forwarded to it.
"""

from __future__ import annotations

import re
import secrets
import subprocess
import tempfile
import time
from pathlib import Path
from shlex import quote
from typing import IO

from treadle.errors import RpcError, UsageError
from treadle.rpc.channel import Channel, open_channel
from treadle.rpc.keys import read_key
from treadle.rpc.transport import (
    ANY_CALL,
    COMMAND_SECONDS,
    SERVER,
    Background,
    RunningServer,
    Transport,
    find_program,
    put_in_place,
)
from treadle.rpc.wire import Role

_SERIAL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
_STATUS = re.compile(r"treadle-status ([0-9]+)\s*\Z")
_STARTING_SECONDS = 20.0
_STATES = {
    "unauthorized": "allow this computer on the board's screen, then try again",
    "offline": "plug it in again, or: adb reconnect",
    "no permissions": "let this user use it (udev rules; Debian: apt install adb)",
    "recovery": "start its system",
    "bootloader": "start its system",
}


def adb_board(serial: str) -> Adb:
    """Return the board of a serial number, or the only one there is for "".

    Raises: UsageError when there is none of it; RpcError when it may not be used; ToolchainError.
    """
    if serial and not _SERIAL.fullmatch(serial):
        raise UsageError(f"{serial[:100]!r} is no board for adb", hint="adb devices lists them")
    program = find_program("adb", "adb")
    states = devices(program)
    if not serial and len(states) == 1:
        (serial,) = states
    if serial not in states:
        raise UsageError(
            f"adb knows no board {serial}" if serial else f"adb knows {len(states)} boards",
            hint=f"name one of {', '.join(states)}: --board adb:SERIAL"
            if states
            else "plug it in, and allow debugging over USB; adb devices lists what is there",
        )
    if states[serial] != "device":
        raise RpcError(
            f"the board is {states[serial]}",
            at=f"adb:{serial}",
            hint=_STATES.get(states[serial], "adb devices says more"),
        )
    return Adb(serial, program)


def devices(program: str = "adb") -> dict[str, str]:
    """Return the state of every board that adb knows, by serial number. Raises: RpcError."""
    found: dict[str, str] = {}
    for line in _said([program, "devices"], "adb").splitlines():
        serial, tab, state = line.partition("\t")
        if tab:
            found[serial.strip()] = state.split(";")[0].strip()
    return found


def _run(command: list[str], at: str, source: IO[bytes] | None = None) -> tuple[int, str, str]:
    stdin = subprocess.DEVNULL if source is None else source
    try:
        done = subprocess.run(command, stdin=stdin, capture_output=True, timeout=COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        raise RpcError(f"adb is not done after {COMMAND_SECONDS:g} s", at=at) from None
    out, errors = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    return done.returncode, out, errors


def _said(command: list[str], at: str) -> str:
    code, out, errors = _run(command, at)
    if code == 0:
        return out
    raise RpcError(
        f"adb fails: {(errors.strip() or out.strip())[-1000:] or 'it says nothing'}",
        at=at,
        hint="see that the board is there: adb devices",
    )


class Adb(Transport):
    """A board that adb leads to. `close` removes the ports that were forwarded and reversed."""

    def __init__(self, serial: str, program: str) -> None:
        self.at = f"adb:{serial}"
        self._serial = serial
        self._command = [program, "-s", serial]
        self._forwarded: set[int] = set()
        self._reversed: set[int] = set()

    # ---- commands and files ----------------------------------------------------------------------

    def shell_command(self, script: str) -> list[str]:
        """Return the command that runs a script on the board."""
        return [*self._command, "shell", f"exec sh -c {quote(script)}"]

    def shell(self, script: str, source: IO[bytes] | None = None) -> str:
        # Before Android 7 adb does not tell how a command ends, and mixes its errors with the rest.
        told = f"( {script}\n); echo treadle-status $?"
        code, out, errors = _run([*self._command, "shell", told], self.at, source)
        out = out.replace("\r\n", "\n")
        status = _STATUS.search(out)
        if code != 0 or status is None:
            raise RpcError(
                f"adb fails: {(errors or out).strip()[-1000:] or 'it says nothing'}",
                at=self.at,
                hint="see that the board is there: adb devices",
            )
        out = out[: status.start()]
        if status[1] != "0":
            raise self.failed(errors.strip() or out)
        return out

    def push(self, source: Path, path: str, *, is_program: bool = False) -> None:
        code, out, errors = _run([*self._command, "push", str(source), f"{path}.part"], self.at)
        if code != 0:
            raise self.failed(errors.strip() or out)
        self.shell(put_in_place(path, source.stat().st_size, is_program=is_program))

    # ---- ports -----------------------------------------------------------------------------------

    def forward(self, port: int) -> int:
        """Return a port of this machine that leads to a port of the board's loopback."""
        told = _said([*self._command, "forward", "tcp:0", f"tcp:{port}"], self.at).strip()
        if not told.isdigit():
            raise RpcError(f"adb forwards to no port: it says {told[:200]!r}", at=self.at,
                           hint="use a newer adb")  # fmt: skip
        self._forwarded.add(int(told))
        return int(told)

    def reverse(self, port: int, board_port: int | None = None) -> int:
        """Let a port of the board's loopback lead to one of this machine; return the board's."""
        board_port = port if board_port is None else board_port
        _said([*self._command, "reverse", f"tcp:{board_port}", f"tcp:{port}"], self.at)
        self._reversed.add(board_port)
        return board_port

    def forwards(self) -> list[tuple[str, str]]:
        """Return what leads from this machine to the board: pairs such as ("tcp:1", "tcp:2")."""
        rows = (
            line.split()
            for line in _said([*self._command, "forward", "--list"], self.at).splitlines()
        )
        return [(row[1], row[2]) for row in rows if len(row) == 3 and row[0] == self._serial]

    def reverses(self) -> list[tuple[str, str]]:
        """Return what leads from the board to this machine."""
        rows = (
            line.split()
            for line in _said([*self._command, "reverse", "--list"], self.at).splitlines()
        )
        return [(row[1], row[2]) for row in rows if len(row) == 3]

    def remove_forward(self, port: int) -> None:
        """End what `forward` has begun; nothing is said of what is gone already."""
        self._forwarded.discard(port)
        _run([*self._command, "forward", "--remove", f"tcp:{port}"], self.at)

    def remove_reverse(self, board_port: int) -> None:
        """End what `reverse` has begun; nothing is said of what is gone already."""
        self._reversed.discard(board_port)
        _run([*self._command, "reverse", "--remove", f"tcp:{board_port}"], self.at)

    def close(self) -> None:
        for port in tuple(self._forwarded):
            self.remove_forward(port)
        for port in tuple(self._reversed):
            self.remove_reverse(port)

    # ---- the server ------------------------------------------------------------------------------

    def start(self, folder: str) -> RunningServer:
        with tempfile.TemporaryDirectory(prefix="treadle-adb-") as name:
            key = Path(name) / "key"
            key.touch(0o600)
            key.write_text(secrets.token_hex(32) + "\n")
            self.push(key, f"{folder}/key")
            return _Server(self, folder, read_key(key))


class _Server(RunningServer):
    """A server on the board's loopback, and the port of this machine that leads there.

    The server ends when the input of its shell does: also when the board is unplugged. Its log has
    a name of its own, for one of an earlier server would tell a port that is closed.
    """

    def __init__(self, board: Adb, folder: str, key: bytes) -> None:
        self._board, self._log = board, f"{folder}/log-{secrets.token_hex(8)}"
        self._port: int | None = None
        words = [f"{folder}/{SERVER}", "server", "--port", "0", "--key-file", f"{folder}/key"]
        words += ["--work-dir", f"{folder}/work", *ANY_CALL]
        script = (
            f"exec 3<&0; (cat; kill $$) <&3 >/dev/null 2>&1 & exec 3<&-; "
            f"exec {' '.join(map(quote, words))} </dev/null >{quote(self._log)} 2>&1"
        )
        command = board.shell_command(script)
        self._process = Background(command, subprocess.PIPE, subprocess.DEVNULL)
        try:
            self._port = board.forward(self._listening())
            self.channel: Channel = open_channel("127.0.0.1", self._port, Role.CLIENT, key)
        except RpcError:
            self.end()
            raise

    def _listening(self) -> int:
        """Return the board's port, as the server says in its log."""
        end = time.monotonic() + _STARTING_SECONDS
        while True:
            has_ended = self._process.process.poll() is not None
            log = self._board.shell(f"cat {quote(self._log)} 2>/dev/null || true")
            if found := re.search(r"bind to .*:([0-9]+)", log):
                return int(found[1])
            if has_ended or time.monotonic() > end:
                said = log.strip() or self._process.said() or "it says nothing"
                raise RpcError(f"the server does not start: {said[-1000:]}", at=self._board.at)
            time.sleep(0.05)

    def said(self) -> str:
        return self._process.said()

    def end(self) -> None:
        if self._port is not None:
            self._board.remove_forward(self._port)
        self._process.end()
