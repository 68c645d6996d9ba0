# SPDX-License-Identifier: Apache-2.0
"""What calls to a device cost on loopback: the round trip of a small one, and uploads.

Run: python -m benchmarks.rpc [--megabytes N] [--server PROGRAM] [--json FILE]

`--server` is treadle-rpc-server, as `treadle runtime build` writes it; without it the server is the
one in Python.

An upload is compared with a plain copy of the same bytes over a socket into a file, by two
processes. Both write a new file of the same folder, which is removed when the clock stands; they
take turns, and which comes first alternates. The share is the median over the rounds of what the
copy took by what the upload took beside it: a machine that others use is slow for both.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.machine import describe
from treadle import rpc
from treadle.errors import RpcError
from treadle.rpc.keys import make_key

_CALLS = 5000
_ROUNDS = 15
_PIECE = 1 << 20
_RECEIVER = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
buffer = memoryview(bytearray(1 << 20))
while True:
    sock, _ = listener.accept()
    with sock:
        with open(sys.argv[1], "wb", buffering=0) as file:
            while count := sock.recv_into(buffer):
                file.write(buffer[:count])
            sock.sendall(b"!")
        os.unlink(sys.argv[1])
"""


def main() -> None:
    """Measure with and without a key; print a line each, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=256, help="of an upload (default: 256)")
    parser.add_argument("--server", type=Path, metavar="PROGRAM", help="the server in C")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    arguments = parser.parse_args()
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_key(folder / "key")
        for title, key in (("without a key", None), ("with a key", folder / "key")):
            figures[title] = measure(folder, key, arguments.megabytes << 20, arguments.server)
            print(title, figures[title])
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({**describe(), **figures}, indent=2) + "\n")


def measure(folder: Path, key: Path | None, size: int, program: Path | None) -> dict[str, float]:
    """Return what calls, and uploads of `size` bytes, cost over a connection with a key or without.

    The server is in Python, or the program in C.
    """
    data = memoryview(os.urandom(size))
    with _server(folder, key, program) as session, _receiver(folder) as port:
        trips = sorted(_seconds_of_call(session) for _ in range(_CALLS))
        uploads, copies = [], []
        for turn in range(_ROUNDS):
            if turn % 2:
                uploads.append(_upload_seconds(session, data))
            copies.append(_copy_seconds(port, data))
            if turn % 2 == 0:
                uploads.append(_upload_seconds(session, data))
    shares = [copy / upload for copy, upload in zip(copies, uploads, strict=True)]
    return {
        "round_trip_us": statistics.median(trips) * 1e6,
        "round_trip_p99_us": trips[len(trips) * 99 // 100] * 1e6,
        "upload_gb_per_s": size / statistics.median(uploads) / 1e9,
        "copy_gb_per_s": size / statistics.median(copies) / 1e9,
        "share_of_copy": statistics.median(shares),
        "share_of_copy_lower_quartile": statistics.quantiles(shares, n=4)[0],
    }


def _seconds_of_call(session: rpc.Session) -> float:
    start = time.perf_counter()
    session.call("array.free", [])
    return time.perf_counter() - start


def _upload_seconds(session: rpc.Session, data: memoryview) -> float:
    start = time.perf_counter()
    session.upload(data, "data", resume=False)
    seconds = time.perf_counter() - start
    session.remove("data")
    return seconds


@contextmanager
def _server(folder: Path, key: Path | None, program: Path | None) -> Iterator[rpc.Session]:
    work = folder / f"work-{key is None}"
    own = [sys.executable, "-m", "treadle", "rpc"] if program is None else [str(program)]
    command = [*own, "server", "--work-dir", str(work)]
    command += ["--port", "0"] + ([] if key is None else ["--key-file", str(key)])
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        port = int(process.stderr.readline().rpartition(":")[2])
        with rpc.connect("127.0.0.1", port, key_file=key) as session:
            yield session
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def _receiver(folder: Path) -> Iterator[int]:
    command = [sys.executable, "-c", _RECEIVER, str(folder / "copy")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def _copy_seconds(port: int, data: memoryview) -> float:
    start = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port)) as sock:
        for offset in range(0, len(data), _PIECE):
            sock.sendall(data[offset : offset + _PIECE])
        sock.shutdown(socket.SHUT_WR)
        answer = sock.recv(1)
        seconds = time.perf_counter() - start
        if answer != b"!" or sock.recv(1):
            raise RpcError("the plain copy failed")
    return seconds


if __name__ == "__main__":
    main()
