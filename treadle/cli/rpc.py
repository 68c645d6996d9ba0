# SPDX-License-Identifier: Apache-2.0
"""`treadle rpc`: the tracker and the server of devices, and what a tracker knows."""

from __future__ import annotations

import argparse
import asyncio
import logging
import resource
import signal
import socket
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from treadle.cli.arguments import count, duration
from treadle.cli.text import console as make_console
from treadle.cli.text import print_row
from treadle.errors import UsageError
from treadle.rpc.device import physical_memory
from treadle.rpc.files import prepare_folder
from treadle.rpc.gate import is_loopback, listen
from treadle.rpc.keys import make_key, read_key
from treadle.rpc.registration import Registration, keep_registered
from treadle.rpc.server import Server, ServerOptions
from treadle.rpc.tls import accepting_context, connecting_context
from treadle.rpc.tracker import Tracker
from treadle.rpc.tracking import connect_tracker
from treadle.target.parse import parse_target

TRACKER_PORT, TRACKER_PORT_END = 9190, 9199
SERVER_PORT, SERVER_PORT_END = 9090, 9199
_QUOTA = 16 << 30
_CALL_SECONDS = 600.0
_FILES = 8192


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verbs of this command."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, (text, add, _) in _VERBS.items():
        verb = verbs.add_parser(name, help=text, description=text)
        add(verb)


def run(arguments: argparse.Namespace) -> int:
    """Do what the verb says."""
    _VERBS[arguments.verb][2](arguments)
    return 0


def parse_address(text: str, port: int) -> tuple[str, int]:
    """Return host and port of "host:port", "[host]:port" or "host" (an argparse type in effect).

    Raises: UsageError when it has another form.
    """
    host, colon, number = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, number = text, str(port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not number.isascii() or not number.isdigit() or not 0 < int(number) < 1 << 16:
        raise UsageError(f"{text!r} is no address", hint="write host:port, as in 127.0.0.1:9190")
    return host, int(number)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) >= 1 << 16:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no port")
    return int(text)


# ---- options -------------------------------------------------------------------------------------


def _add_port(parser: argparse.ArgumentParser, port: int, port_end: int) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="where to listen: another address than "
                        "127.0.0.1 needs --key-file (default: 127.0.0.1)")  # fmt: skip
    parser.add_argument("--port", type=_port, default=port, help="the port, or the first of those "
                        f"to try; 0 for any (default: {port})")  # fmt: skip
    parser.add_argument("--port-end", type=_port, default=port_end, help="the last port to try "
                        f"(default: {port_end})")  # fmt: skip
    parser.add_argument("--silent", action="store_true", help="print errors only")


def _add_key_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--key-file", type=Path, metavar="FILE", help="the key that all who talk "
                        "to each other have; made by treadle rpc key")  # fmt: skip


def _add_certificate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="encrypt: the certificate to "
                        "show, PEM; --key-file is needed as ever")  # fmt: skip
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="the certificate's key, PEM")


def _add_authority(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tls-ca", type=Path, metavar="FILE", help="the tracker encrypts: who "
                        "signed its certificate, PEM")  # fmt: skip


def _certificate(arguments: argparse.Namespace) -> ssl.SSLContext | None:
    if (arguments.tls_cert is None) != (arguments.tls_key is None):
        raise UsageError("--tls-cert and --tls-key are given together", hint="both are PEM files")
    if arguments.tls_cert is None:
        return None
    return accepting_context(arguments.tls_cert, arguments.tls_key)


def _authority(arguments: argparse.Namespace) -> ssl.SSLContext | None:
    return None if arguments.tls_ca is None else connecting_context(arguments.tls_ca)


def _add_tracker(parser: argparse.ArgumentParser) -> None:
    _add_port(parser, TRACKER_PORT, TRACKER_PORT_END)
    _add_key_file(parser)
    _add_certificate(parser)


def _add_server(parser: argparse.ArgumentParser) -> None:
    _add_port(parser, SERVER_PORT, SERVER_PORT_END)
    _add_key_file(parser)
    _add_certificate(parser)
    _add_authority(parser)
    parser.add_argument("--tracker", metavar="HOST:PORT", help="where to register; without it, "
                        "clients connect here, the first that comes")  # fmt: skip
    parser.add_argument("--key", metavar="NAME", help="the kind of device, by which clients ask "
                        "the tracker for one, as in rk3399")  # fmt: skip
    parser.add_argument("--custom-addr", metavar="HOST[:PORT]", help="the address that the tracker "
                        "tells clients (default: the one that it sees)")  # fmt: skip
    parser.add_argument("--work-dir", type=Path, metavar="FOLDER", help="where the files of "
                        "sessions lie (default: a temporary folder)")  # fmt: skip
    parser.add_argument("--session-timeout", type=duration, default=0.0, metavar="SECONDS",
                        help="the longest session (default: any)")  # fmt: skip
    parser.add_argument("--call-timeout", type=duration, default=_CALL_SECONDS, metavar="SECONDS",
                        help="the longest call (default: 600)")  # fmt: skip
    parser.add_argument("--quota", type=count, default=_QUOTA >> 20, metavar="MB", help="the most "
                        f"that files of a session may take (default: {_QUOTA >> 20})")  # fmt: skip


def _add_query(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="the tracker's (default: 127.0.0.1)")
    parser.add_argument("--port", type=_port, default=TRACKER_PORT, help="the tracker's "
                        f"(default: {TRACKER_PORT})")  # fmt: skip
    _add_key_file(parser)
    _add_authority(parser)


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the file to write")


# ---- verbs ---------------------------------------------------------------------------------------


def _start_log(arguments: argparse.Namespace) -> None:
    level = logging.ERROR if arguments.silent else logging.INFO
    logging.basicConfig(level=level, format="%(levelname)s:%(name)s:%(message)s")


def _allow_many_files() -> None:
    """Let the process have as many connections as the gate allows, if the system does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _listening(arguments: argparse.Namespace, key: bytes | None) -> socket.socket:
    _allow_many_files()
    sock = listen(arguments.host, arguments.port, arguments.port_end, key)
    host, port = sock.getsockname()[:2]
    logging.getLogger("treadle.rpc").info("bind to %s:%d", host, port)
    return sock


def _key_of(arguments: argparse.Namespace) -> bytes | None:
    return None if arguments.key_file is None else read_key(arguments.key_file)


def _until_signalled(serve: Callable[[], Awaitable[None]]) -> None:
    """Run a service until SIGINT or SIGTERM asks it to end."""

    async def serve_until_asked() -> None:
        task = asyncio.ensure_future(serve())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(serve_until_asked())


def _tracker(arguments: argparse.Namespace) -> None:
    _start_log(arguments)
    key = _key_of(arguments)
    tls = _certificate(arguments)
    sock = _listening(arguments, key)
    _until_signalled(lambda: Tracker(sock, key, tls=tls).serve())


def _server(arguments: argparse.Namespace) -> None:
    if (arguments.tracker is None) != (arguments.key is None):
        raise UsageError(
            "--tracker and --key are given together: where to register, and as what",
            hint="treadle rpc server --tracker 127.0.0.1:9190 --key rk3399",
        )
    _start_log(arguments)
    key = _key_of(arguments)
    if arguments.work_dir is not None:
        _serve_in(prepare_folder(arguments.work_dir), arguments, key)
        return
    with tempfile.TemporaryDirectory(prefix="treadle-rpc-", ignore_cleanup_errors=True) as folder:
        _serve_in(prepare_folder(Path(folder)), arguments, key)


def _serve_in(folder: Path, arguments: argparse.Namespace, key: bytes | None) -> None:
    sock = _listening(arguments, key)
    options = ServerOptions(
        arguments.session_timeout, arguments.call_timeout, arguments.quota << 20, physical_memory()
    )
    tls = _certificate(arguments)
    facts = {"target": str(parse_target("llvm"))}
    is_lent = arguments.tracker is not None

    async def serve() -> None:
        server = Server(sock, key, folder, options, is_lent=is_lent, facts=facts, tls=tls)
        tasks = [asyncio.ensure_future(server.serve())]
        if is_lent:
            registration = _registration(arguments, sock.getsockname()[1])
            tasks.append(asyncio.ensure_future(keep_registered(server, registration, key)))
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    _until_signalled(serve)


def _registration(arguments: argparse.Namespace, port: int) -> Registration:
    """Return what the tracker is told; where this server listens says what it may leave out."""
    host = "" if arguments.host in ("0.0.0.0", "::") else arguments.host
    if arguments.custom_addr is not None:
        host, port = parse_address(arguments.custom_addr, port)
    elif is_loopback(arguments.host):
        host = "127.0.0.1" if arguments.host == "localhost" else arguments.host
    tracker = parse_address(arguments.tracker, TRACKER_PORT)
    return Registration(*tracker, arguments.key, host, port, _authority(arguments))


def _query(arguments: argparse.Namespace) -> None:
    key_file, tls = arguments.key_file, _authority(arguments)
    tracker = connect_tracker(arguments.host, arguments.port, key_file=key_file, tls=tls)
    summary = tracker.summary()
    print(f"Tracker address {arguments.host}:{arguments.port}\n")
    print(summary)
    if summary.devices:
        print(summary.details())


def _make_key(arguments: argparse.Namespace) -> None:
    make_key(arguments.file)
    print_row(make_console(), "wrote", f"{arguments.file}; copy it to all machines, show nobody")


Add = Callable[[argparse.ArgumentParser], None]
Verb = Callable[[argparse.Namespace], None]

_VERBS: dict[str, tuple[str, Add, Verb]] = {
    "tracker": ("know the devices, and lend them to one client at a time", _add_tracker, _tracker),
    "server": ("let clients run models and kernels on this machine", _add_server, _server),
    "query": ("print the devices of a tracker, and who waits for them", _add_query, _query),
    "key": ("make a key file", _add_key, _make_key),
}
