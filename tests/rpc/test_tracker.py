# SPDX-License-Identifier: Apache-2.0
"""The tracker with servers and clients: leases, queues, restarts, deaths."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.processes import wait_until
from tests.rpc.services import Service, device_of, kernels, service, states, tracker_of
from treadle import rpc
from treadle.errors import RpcError
from treadle.rpc import wire
from treadle.rpc.channel import open_channel
from treadle.rpc.keys import make_key
from treadle.rpc.tracking import DeviceStatus, QueueStatus, Summary
from treadle.rpc.wire import Frame, Kind, Role


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tracker")
    make_key(made / "key")
    return made


@pytest.fixture(scope="module")
def tracker(folder: Path) -> Iterator[Service]:
    with service(folder, "tracker", "--key-file", str(folder / "key")) as found:
        yield found


@pytest.fixture(scope="module")
def device(folder: Path, tracker: Service) -> Iterator[Service]:
    with device_of(folder, tracker, "board", "--key-file", str(folder / "key")) as found:
        yield found


@pytest.fixture
def asked(tracker: Service, device: Service, folder: Path) -> rpc.TrackerSession:
    made = tracker_of(tracker, folder / "key")
    wait_until(lambda: states(made) == ["free"], "a free device")
    return made


def test_the_summary_has_the_form_that_tools_read() -> None:
    device = DeviceStatus("127.0.0.1", 9090, "rk3399", "busy", 12.4, "me@here:1", "it crashed")
    summary = Summary((device,), (QueueStatus("rk3399", 1, 0, 2), QueueStatus("x", 0, 0, 1)))
    assert str(summary) == (
        "Server List\n"
        "----------------------------\n"
        "server-address\tkey\n"
        "----------------------------\n"
        "127.0.0.1:9090\tserver:rk3399\n"
        "----------------------------\n"
        "\n"
        "Queue Status\n"
        "------------------------------\n"
        "key      total  free  pending\n"
        "------------------------------\n"
        "rk3399   1      0     2      \n"
        "x        0      0     1      \n"
        "------------------------------\n"
    )
    assert "busy with me@here:1 for 12 s" in summary.details()
    assert "last error: it crashed" in summary.details()


def test_a_device_is_lent_and_comes_back(asked: rpc.TrackerSession) -> None:
    with asked.request("board", session_timeout=600) as session:
        session.upload(b"data", "file")
        (found,) = asked.summary().devices
        assert (found.key, found.state) == ("board", "busy")
        assert str(os.getpid()) in found.client
        with pytest.raises(RpcError, match="no device 'board' has become free within 0"):
            asked.request("board", wait_timeout=0.3)
    wait_until(lambda: states(asked) == ["free"], "free again")


def test_who_has_no_lease_is_refused(
    asked: rpc.TrackerSession, device: Service, folder: Path
) -> None:
    with pytest.raises(RpcError, match="lent by a tracker"):
        rpc.connect("127.0.0.1", device.port, key_file=folder / "key")
    with pytest.raises(RpcError, match="no device 'other'"):
        asked.request("other", wait_timeout=0.2)
    make_key(folder / "wrong")
    with pytest.raises(RpcError, match="another key"):
        rpc.connect_tracker("127.0.0.1", device.port, key_file=folder / "wrong").summary()


def test_a_session_that_crashes_is_in_the_summary(asked: rpc.TrackerSession) -> None:
    with asked.request("board") as session:
        session.upload(kernels(), "bad.so")
        with pytest.raises(RpcError, match="Segmentation fault"):
            session.load_module("bad.so")["crash"](session.empty((16,)))
    wait_until(lambda: states(asked) == ["free"], "free again")
    assert "Segmentation fault" in asked.summary().devices[0].last_error


@pytest.mark.slow
def test_a_client_that_does_not_come_loses_its_lease(
    asked: rpc.TrackerSession, tracker: Service, folder: Path
) -> None:
    """The one that asks and goes away costs the others seconds at most."""
    key = (folder / "key").read_bytes().strip()
    channel = open_channel("127.0.0.1", tracker.port, Role.CLIENT, key)
    channel.send(Frame(Kind.CALL, 1, ["lease.request", "board", 1, 10.0]))
    assert channel.receive().kind is Kind.RESULT
    channel.close()
    assert states(asked) == ["leased"]
    start = time.monotonic()
    with asked.request("board", wait_timeout=600):
        assert time.monotonic() - start < 30


def test_clients_that_give_up_leave_the_queue(
    asked: rpc.TrackerSession, tracker: Service, folder: Path
) -> None:
    key = (folder / "key").read_bytes().strip()
    with asked.request("board"):
        channel = open_channel("127.0.0.1", tracker.port, Role.CLIENT, key)
        channel.send(Frame(Kind.CALL, 1, ["lease.request", "board", 9, 1000.0]))
        wait_until(lambda: asked.summary().queues[0].pending == 1, "in the queue")
        channel.close()
        wait_until(lambda: asked.summary().queues[0].pending == 0, "out of the queue")
    asked.request("board").close()


def test_what_a_tracker_does_not_do_is_refused(
    asked: rpc.TrackerSession, tracker: Service, folder: Path
) -> None:
    key = (folder / "key").read_bytes().strip()
    channel = open_channel("127.0.0.1", tracker.port, Role.CLIENT, key)
    for values in (
        ["device.register", "x", "", 1, "free", "", ""],
        ["lease.request", "a b", 1, 1.0],
        ["lease.request", "x", 1 << 40, 1.0],
        ["lease.request", "x", 1, float("nan")],
        [3],
        [],
    ):
        channel.send(Frame(Kind.CALL, 1, list(values)))
        assert channel.receive().kind is Kind.ERROR
    channel.close()
    assert len(asked.summary().devices) == 1


def test_a_client_of_a_tracker_cannot_be_a_device_of_a_server(
    device: Service, folder: Path
) -> None:
    key = (folder / "key").read_bytes().strip()
    with pytest.raises(RpcError, match="something else"):
        open_channel("127.0.0.1", device.port, Role.DEVICE, key)


def test_many_clients_share_few_devices_in_order(tracker: Service, folder: Path) -> None:
    """12 clients and 2 devices, or 200 and 4: see the slow one below."""
    _share(tracker, folder, clients=12, devices=2)


@pytest.mark.slow
def test_200_clients_share_4_devices_in_order(tracker: Service, folder: Path) -> None:
    _share(tracker, folder, clients=200, devices=4)


def _share(tracker: Service, folder: Path, clients: int, devices: int) -> None:
    """All are served, of those that wait together the more urgent first, no device by two."""
    asked, key = tracker_of(tracker, folder / "key"), f"shared{clients}"
    served: list[int] = []
    lock = threading.Lock()

    def use(priority: int) -> None:
        with asked.request(key, priority, wait_timeout=500) as session:
            with lock:
                served.append(priority)
            session.upload(b"mine", "file")
            assert session.files() == {"file": 4}  # nobody else is in this session

    with ExitStack() as stack:
        options = ("--key-file", str(folder / "key"))
        found = [stack.enter_context(device_of(folder, tracker, key, *options))
                 for _ in range(devices)]  # fmt: skip
        held = [asked.request(key) for _ in found]
        with ThreadPoolExecutor(clients) as pool:
            jobs = [pool.submit(use, 3 * (number % 4)) for number in range(clients)]
            wait_until(lambda: _pending(asked, key) == clients, "all in the queue")
            for session in held:
                session.close()
            for job in jobs:
                job.result()
        wait_until(lambda: _free(asked, key) == devices, "all devices free")
    assert len(served) == clients
    # Those of one rank may change places with their neighbours, as many as there are devices.
    for place, priority in enumerate(served):
        wanted = sorted(served, reverse=True)
        assert priority in wanted[max(0, place - devices) : place + devices + 1]


def _pending(tracker: rpc.TrackerSession, key: str) -> int:
    return sum(q.pending for q in tracker.summary().queues if q.key == key)


def _free(tracker: rpc.TrackerSession, key: str) -> int:
    return sum(q.free for q in tracker.summary().queues if q.key == key)


# ---- deaths --------------------------------------------------------------------------------------


def test_a_tracker_that_restarts_loses_no_device(folder: Path) -> None:
    options = ("--key-file", str(folder / "key"))
    with (
        service(folder, "tracker", *options) as first,
        device_of(folder, first, "phoenix", *options) as device,
    ):
        asked = tracker_of(first, folder / "key")
        session = asked.request("phoenix", session_timeout=200)
        waiting = ThreadPoolExecutor(1).submit(asked.request, "phoenix", wait_timeout=200)
        wait_until(lambda: asked.summary().queues[0].pending == 1, "in the queue")
        first.kill()
        assert session.files() == {}  # sessions go on
        with service(folder, "tracker", *options, port=first.port) as second:
            wait_until(lambda: bool(asked.summary().devices), "registered again")
            assert "registers as phoenix" in second.log.read_text()
            assert states(asked) == ["busy"]
            wait_until(lambda: asked.summary().queues[0].pending == 1, "in the queue again")
            session.close()
            waiting.result().close()
            assert device.process.poll() is None


def test_a_server_that_is_killed_ends_its_session_and_comes_back(
    folder: Path, tracker: Service
) -> None:
    """In the middle of a measurement: the client is told, what was running is gone."""
    asked, options = tracker_of(tracker, folder / "key"), ("--key-file", str(folder / "key"))
    with device_of(folder, tracker, "mortal", *options) as first:
        session = asked.request("mortal", session_timeout=100)
        session.upload(kernels(), "bad.so")
        spin, out = session.load_module("bad.so")["spin"], session.empty((16,))
        runs = first.session_process()
        threading.Timer(0.5, first.kill).start()
        start = time.monotonic()
        with pytest.raises(RpcError, match=r"closed the connection|connection broke"):
            spin(out)
        assert time.monotonic() - start < 60  # long before the session's limit
        wait_until(lambda: not Path(f"/proc/{runs}").exists(), "the kernel gone")
        wait_until(lambda: _free(asked, "mortal") == 0, "the device gone")
        with device_of(folder, tracker, "mortal", *options, port=first.port):
            asked.request("mortal").close()


@pytest.mark.slow
def test_a_stopped_server_is_removed(folder: Path, tracker: Service) -> None:
    """One that hangs keeps its connection, but says nothing."""
    asked, options = tracker_of(tracker, folder / "key"), ("--key-file", str(folder / "key"))
    with device_of(folder, tracker, "sleepy", *options) as device:
        os.kill(device.pid, signal.SIGSTOP)
        with pytest.raises(RpcError, match="no device 'sleepy' has become free"):
            asked.request("sleepy", wait_timeout=1)
        wait_until(
            lambda: all(d.key != "sleepy" for d in asked.summary().devices), "the device removed"
        )
        os.kill(device.pid, signal.SIGCONT)
        wait_until(lambda: _free(asked, "sleepy") == 1, "the device back")


def test_frames_for_a_tracker_are_small(tracker: Service, folder: Path) -> None:
    key = (folder / "key").read_bytes().strip()
    channel = open_channel("127.0.0.1", tracker.port, Role.CLIENT, key)
    with closing(channel):
        channel.send(Frame(Kind.CALL, 1, ["tracker.query"], bytes(wire.LARGEST_CONTROL)))
        with pytest.raises(RpcError, match=r"closed|broke"):
            channel.receive()
    assert re.search("larger than", tracker.log.read_text())
