# SPDX-License-Identifier: Apache-2.0
"""What strangers send to every port: garbage, silence, huge sizes. The service is as before."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.processes import PATIENCE, children, wait_until
from tests.rpc.services import SERVERS, Service, service
from treadle import rpc
from treadle.errors import RpcError
from treadle.rpc import wire
from treadle.rpc.keys import make_key
from treadle.rpc.wire import Frame, Kind, Opening, Role

_GROWTH = 24 << 20
"""Bytes that a process may differ by from one moment to another."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hostile")
    make_key(made / "key")
    return made


PORTS = [("server", "python"), ("tracker", "python"), ("server", "c")]


@pytest.fixture(scope="module", params=PORTS, ids="-".join)
def keyed(request: pytest.FixtureRequest, folder: Path) -> Iterator[Service]:
    verb, language = request.param
    options = ("--key-file", str(folder / "key"))
    with service(folder, verb, *options, patient=True, language=language) as found:
        yield found


@pytest.fixture(scope="module", params=PORTS, ids="-".join)
def keyless(request: pytest.FixtureRequest, folder: Path) -> Iterator[Service]:
    verb, language = request.param
    with service(folder, verb, patient=True, language=language) as found:
        yield found


def serves(found: Service, key_file: Path | None) -> None:
    """Fail unless a service does its work for those who may have it."""
    if "tracker" in found.log.name:
        rpc.connect_tracker("127.0.0.1", found.port, key_file=key_file).summary()
        return
    wait_until(lambda: not children(found.pid), "no session")
    place = ("127.0.0.1", found.port)
    with rpc.connect(*place, key_file=key_file, connect_timeout=PATIENCE) as session:
        assert session.files() == {}


def opening(generator: random.Random) -> bytes:
    """Return the beginning of a connection, more or less."""
    role = generator.choice([Role.CLIENT, Role.DEVICE, 0, 9])
    data = bytearray(Opening(role, generator.random() < 0.7, generator.randbytes(32)).packed())
    kind = generator.randrange(5)
    if kind == 0:
        data = bytearray(generator.randbytes(generator.randrange(200)))
    elif kind == 1:
        data[generator.randrange(8)] = generator.randrange(256)
    elif kind == 2:
        del data[generator.randrange(len(data)) :]
    return bytes(data) + generator.randbytes(generator.choice([0, 32, 100]))


def frames(generator: random.Random) -> bytes:
    """Return frames, more or less, that may come after an opening without a key."""
    calls = ["session.open", "tracker.query", "lease.request", "device.register", "file.begin"]
    values = [generator.choice(calls), b"", "me", 0.0, 0.0, 1, [1, "a"]]
    generator.shuffle(values) if generator.random() < 0.3 else None
    frame = Frame(Kind.CALL, 1, values[: generator.randrange(8)], generator.randbytes(20))
    data = bytearray(wire.start_of(frame) + bytes(frame.blob))
    kind = generator.randrange(4)
    if kind == 0:
        struct.pack_into("<Q", data, 0, generator.choice([0, 3, 1 << 20, 1 << 31, 1 << 63]))
    elif kind == 1:
        for _ in range(3):
            data[generator.randrange(len(data))] = generator.randrange(256)
    elif kind == 2:
        del data[generator.randrange(len(data)) :]
    return Opening(generator.choice([1, 2]), False, generator.randbytes(32)).packed() + bytes(data)


def thrown_at(port: int, made: Callable[[random.Random], bytes], count: int, seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", port), 60) as sock, suppress(OSError):
            sock.sendall(made(generator))
            if generator.random() < 0.5:
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1 << 12):
                    pass


@pytest.mark.parametrize("count", [300, pytest.param(60_000, marks=pytest.mark.slow)])
def test_garbage_before_the_key_changes_nothing(keyed: Service, folder: Path, count: int) -> None:
    thrown_at(keyed.port, opening, 50, 0)
    before = keyed.memory()
    thrown_at(keyed.port, opening, count, 1)
    assert keyed.memory() < before + _GROWTH
    serves(keyed, folder / "key")


@pytest.mark.parametrize("count", [200, pytest.param(40_000, marks=pytest.mark.slow)])
def test_garbage_frames_change_nothing(keyless: Service, count: int) -> None:
    thrown_at(keyless.port, frames, 50, 2)
    before = keyless.memory()
    thrown_at(keyless.port, frames, count, 3)
    assert keyless.memory() < before + _GROWTH
    serves(keyless, None)


@pytest.mark.parametrize("size", [1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_sizes_are_refused_before_memory_is_taken(keyless: Service, size: int) -> None:
    before = keyless.memory()
    with socket.create_connection(("127.0.0.1", keyless.port), 60) as sock:
        sock.sendall(Opening(Role.CLIENT, False, bytes(32)).packed())
        sock.sendall(struct.pack("<QHHI", size, Kind.CALL, 0, 1))
        assert len(sock.recv(48, socket.MSG_WAITALL)) == 48
        assert sock.recv(1) == b""  # hung up at the header alone
    assert keyless.memory() < before + _GROWTH
    serves(keyless, None)


def test_silent_slow_and_half_open_connections_hold_nobody_up(keyed: Service, folder: Path) -> None:
    hello = Opening(Role.CLIENT, True, bytes(32)).packed()
    with ExitStack() as stack:
        for sent in (b"", hello[:1], hello[:47], hello, hello + b"half a proof"):
            for _ in range(20):
                sock = stack.enter_context(socket.create_connection(("127.0.0.1", keyed.port)))
                sock.sendall(sent)
        serves(keyed, folder / "key")
        serves(keyed, folder / "key")


def thrown_in_sessions(found: Service, key_file: Path | None, count: int, seed: int) -> None:
    """Send mutated frames inside sessions, 40 in each; with a key their codes are right."""
    generator = random.Random(seed)
    for _ in range(count):
        wait_until(lambda: not children(found.pid), "no session")
        session = rpc.connect("127.0.0.1", found.port, key_file=key_file, connect_timeout=PATIENCE)
        channel = session._calls._channel
        for _ in range(40):
            with suppress(OSError, RpcError):
                data = frames(generator)[48:]
                channel.socket.settimeout(0.01)
                channel.socket.sendall(data + channel._out.code(Kind.CALL, data))
        channel.close()


@pytest.mark.parametrize("count", [6, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("has_key", [False, True], ids=["without a key", "with a key"])
@pytest.mark.parametrize("language", SERVERS)
def test_a_session_survives_no_wrong_frame_and_the_server_all(
    folder: Path, language: str, has_key: bool, count: int
) -> None:
    """Mutated frames inside sessions: each ends its session, if it ends anything."""
    key_file = folder / "key" if has_key else None
    options = ("--key-file", str(key_file)) if key_file else ()
    with service(folder, "server", *options, patient=True, language=language) as found:
        thrown_in_sessions(found, key_file, count, seed=4)
        serves(found, key_file)
        assert "Traceback" not in found.log.read_text()


@pytest.mark.parametrize("language", SERVERS)
def test_too_many_failures_slow_an_address_down(folder: Path, language: str) -> None:
    other = folder / f"other-{language}"
    make_key(other)
    options = ("--key-file", str(folder / "key"))
    with service(folder, "server", *options, strict=True, language=language) as found:

        def refusal(seconds: float) -> str:
            with pytest.raises(RpcError) as raised:
                rpc.connect("127.0.0.1", found.port, key_file=other, connect_timeout=seconds)
            return raised.value.problem

        assert "another key" in refusal(PATIENCE)
        # One failure a second is forgiven: who waits longer is heard again.
        wait_until(lambda: "too many attempts" in refusal(0.8), "slowed down")
        serves(found, folder / "key")  # it waits for its turn
