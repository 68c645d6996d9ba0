# SPDX-License-Identifier: Apache-2.0
"""Long frames sent by the native library are those that Python sends, however they go out."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
from collections.abc import Callable

import pytest

from treadle.rpc.channel import Channel
from treadle.rpc.wire import Frame, Kind, Seal
from treadle.runtime.native_frames import LongFrame, send_frames

KEY = bytes(range(32))
SIZES = (0, 1, 15, 300, (1 << 18) - 1, 1 << 18, (1 << 18) + 1, 1 << 20)


def received(sock: socket.socket) -> tuple[threading.Thread, bytearray]:
    """Return what a thread reads until the other side closes."""
    found = bytearray()

    def read() -> None:
        while piece := sock.recv(1 << 16):
            found.extend(piece)

    thread = threading.Thread(target=read)
    thread.start()
    return thread, found


def sent_by(send: Callable[[Channel, list[Frame]], None], key: bytes | None) -> bytes:
    """Return the bytes of some frames that `send` puts on a channel that does not block."""
    near, far = socket.socketpair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 12)
    near.settimeout(30)
    blob = random.Random(3).randbytes(max(SIZES))
    frames = [
        Frame(Kind.CALL, place, ["file.write", place], memoryview(blob)[:size])
        for place, size in enumerate(SIZES)
    ]
    thread, found = received(far)
    send(Channel(near, Seal(key), Seal(key), "a test"), frames)
    near.close()
    thread.join(30)
    far.close()
    return bytes(found)


@pytest.mark.parametrize("key", [None, KEY])
def test_frames_have_the_bytes_that_python_sends(key: bytes | None) -> None:
    def each(channel: Channel, frames: list[Frame]) -> None:
        for frame in frames:
            channel.send(frame)

    wanted = sent_by(each, key)
    assert len(wanted) > sum(SIZES)
    assert sent_by(Channel.send_long, key) == wanted


def test_nobody_who_reads_is_a_timeout() -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    with near, far, pytest.raises(TimeoutError):
        send_frames(near.fileno(), [LongFrame(b"start", bytes(1 << 23), KEY)], 0.05)


def test_a_closed_connection_is_an_error() -> None:
    near, far = socket.socketpair()
    far.close()
    with near, pytest.raises(BrokenPipeError):
        send_frames(near.fileno(), [LongFrame(b"start", bytes(1 << 20), None)], 1)


def test_a_signal_is_heard_and_the_frame_goes_on() -> None:
    """Its handler runs while the socket is full; then the rest is sent, once."""
    near, far = socket.socketpair()
    near.settimeout(30)
    blob = os.urandom(1 << 20)
    threads: list[tuple[threading.Thread, bytearray]] = []
    before = signal.signal(signal.SIGALRM, lambda *_: threads.append(received(far)))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        send_frames(near.fileno(), [LongFrame(b"start", blob, None)], 30)
    finally:
        signal.signal(signal.SIGALRM, before)
        near.close()
    ((thread, found),) = threads
    thread.join(30)
    far.close()
    assert bytes(found) == b"start" + blob
