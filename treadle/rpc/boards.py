# SPDX-License-Identifier: Apache-2.0
"""Boards without a server: one is copied there, started for a session, and removed after it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from treadle.errors import RpcError, TreadleError, UsageError
from treadle.rpc.adb import adb_board
from treadle.rpc.board_server import BoardPackage, find_package
from treadle.rpc.client import CALL_SECONDS, Session
from treadle.rpc.probe import BoardFacts, probe
from treadle.rpc.ssh import ssh_board
from treadle.rpc.transport import SERVER, RunningServer, Transport

_WAYS = {"ssh": ssh_board, "adb": adb_board}
_MADE = re.compile(r"/[A-Za-z0-9_./+-]*/treadle-deploy\.[A-Za-z0-9]+")
"""What a work folder on a board is called; nothing else is ever removed there."""
_FOLDERS = {"android": "/data/local/tmp"}


def board_of(text: str) -> Transport:
    """Return the board that "ssh:user@host" or "adb:SERIAL" names.

    Raises: UsageError for another form; RpcError when it may not be used; ToolchainError when ssh
    or adb is not installed.
    """
    way, colon, name = text.partition(":")
    if not colon or way not in _WAYS:
        raise UsageError(
            f"{text[:100]!r} is no board",
            hint="write ssh:user@host or adb:SERIAL (adb: the only one)",
        )
    return _WAYS[way](name)


class Board:
    """A board with a folder of ours on it, in which a server can be started."""

    def __init__(
        self, transport: Transport, facts: BoardFacts, package: BoardPackage, folder: str
    ) -> None:
        """Use `opened_board` instead."""
        self.facts = facts
        self.package = package
        self.folder = folder
        self.transport = transport

    @contextmanager
    def session(
        self, session_timeout: float = 0, call_timeout: float = CALL_SECONDS
    ) -> Iterator[Session]:
        """Start the server for a session, which ends with the block.

        Raises: RpcError when it cannot be started, and when the way to the board breaks.
        """
        server = self.transport.start(self.folder)
        try:
            with Session(server.channel, b"", session_timeout, call_timeout) as session:
                yield session
        except RpcError as error:
            raise _explained(error, server) from None
        finally:
            server.end()

    def push(self, source: Path, name: str) -> str:
        """Copy a file into the folder; return its path there."""
        path = f"{self.folder}/{name}"
        self.transport.push(source, path)
        return path


def _explained(error: RpcError, server: RunningServer) -> RpcError:
    """Return the error with what ssh or adb has said of it."""
    said = server.said().replace("\n", "; ")
    if not said:
        return error
    return RpcError(f"{error.problem} ({said[-500:]})", at=error.at, hint=error.hint)


@contextmanager
def opened_board(
    transport: Transport,
    *,
    compiler: Sequence[str] | None = None,
    package: Path | None = None,
    folder: str | None = None,
    keep: bool = False,
) -> Iterator[Board]:
    """Make a board ready: find out what it is, find or build the server, copy it there.

    `compiler` builds the server, or `package` has it (see `find_package`). The work folder is made
    in `folder` of the board, and removed at the end unless `keep`.
    """
    try:
        facts = probe(transport)
        found = find_package(facts, compiler, package)
        made = _make_folder(transport, folder or _FOLDERS.get(facts.libc, "/tmp"))
        try:
            transport.push(found.server, f"{made}/{SERVER}", is_program=True)
            yield Board(transport, facts, found, made)
        except TreadleError as error:
            raise _left(transport, made, error) or error from None
        except BaseException:
            _left(transport, made, None)
            raise
        if not keep and (left := _left(transport, made, None)) is not None:
            raise left
    finally:
        transport.close()


def _make_folder(transport: Transport, parent: str) -> str:
    """Return a new folder of the board that nobody but its user may enter."""
    template = quote(f"{parent.rstrip('/')}/treadle-deploy.XXXXXXXX")
    made = transport.shell(f"umask 077; mktemp -d {template}").strip()
    if not _MADE.fullmatch(made) or "/../" in made:
        raise RpcError(
            f"the board makes no folder in {parent}: it says {made[:200]!r}",
            at=transport.at,
            hint="name one by its full path, of letters and digits: --board-folder",
        )
    return made


def _left(transport: Transport, folder: str, cause: TreadleError | None) -> TreadleError | None:
    """Remove the work folder; return an error that says that it is still there, if it is."""
    assert _MADE.fullmatch(folder)
    try:
        transport.shell(f"rm -rf {quote(folder)}")
    except RpcError as error:
        left = f"{folder} is left on the board: remove it"
        if cause is None:
            return RpcError(f"{left} ({error.problem})", at=error.at, hint=error.hint)
        return type(cause)(
            cause.problem, at=cause.at, hint=f"{cause.hint}; {left}" if cause.hint else left
        )
    return None
