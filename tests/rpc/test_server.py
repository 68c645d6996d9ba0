# SPDX-License-Identifier: Apache-2.0
"""Sessions on a server: what they do, what they may not, and what becomes of their failures."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import treadle
from tests.processes import PATIENCE, children, is_alive, is_waiting, wait_until
from tests.rpc.services import SERVERS, Service, kernels, service
from treadle import rpc, te
from treadle.build.debug_executor import DebugExecutor
from treadle.build.remote_executable import RemoteExecutable
from treadle.cli.layers import compare_layers
from treadle.errors import ArtifactError, InputError, RpcError, UsageError
from treadle.rpc.channel import Channel
from treadle.rpc.client import Session
from treadle.rpc.keys import make_key

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"


@pytest.fixture(scope="module", params=SERVERS)
def language(request: pytest.FixtureRequest) -> str:
    """What the server is written in."""
    return str(request.param)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, language: str) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("server")
    make_key(folder / "key")
    options = ("--key-file", str(folder / "key"), "--work-dir", str(folder / "work"))
    with service(folder, "server", *options, "--quota", "400", language=language) as found:
        yield found


def connected(server: Service, **options: float) -> Session:
    key_file = server.log.parent / "key"
    return rpc.connect("127.0.0.1", server.port, key_file=key_file, **options)  # type: ignore[arg-type]


@pytest.fixture
def session(server: Service) -> Iterator[Session]:
    wait_until(lambda: not children(server.pid), "the last session gone")
    with connected(server) as found:
        yield found


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "digits.tar"
    treadle.compile(DIGITS).save(path)
    return path


# ---- files ---------------------------------------------------------------------------------------


def test_files_go_there_and_back(session: Session, tmp_path: Path) -> None:
    data = np.random.default_rng(0).bytes(3_000_001)
    (tmp_path / "a.bin").write_bytes(data)
    assert session.upload(tmp_path / "a.bin") == "a.bin"
    session.upload(b"", "empty")
    assert session.files() == {"a.bin": len(data), "empty": 0}
    assert session.download("a.bin") == data
    session.download("a.bin", tmp_path / "b.bin")
    assert (tmp_path / "b.bin").read_bytes() == data
    session.remove("a.bin")
    assert session.files() == {"empty": 0}
    with pytest.raises(RpcError, match=r"no file 'a\.bin'"):
        session.download("a.bin")


WRONG_NAMES = ("../x", "/etc/x", "a/b", "..", ".", "", ".a", "a\0b", "a\nb", "x" * 129, "a\\b", "é")


def test_names_that_lead_elsewhere_are_refused(session: Session) -> None:
    for name in WRONG_NAMES:
        for use in (partial(session.upload, b"data"), session.download, session.remove,
                    session.load, session.load_module):  # fmt: skip
            with pytest.raises(RpcError, match="is no name for a file"):
                use(name)
    assert session.files() == {}


def test_links_are_not_followed(session: Session, server: Service, tmp_path: Path) -> None:
    (folder,) = (server.log.parent / "work").glob("session-*")
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "pipe")
    with pytest.raises(RpcError, match="symbolic link"):
        session.download("link")
    with pytest.raises(RpcError, match="symbolic link"):
        session.load("link")
    with pytest.raises(RpcError, match="not a regular file"):
        session.download("pipe")
    session.upload(b"mine", "link")  # takes the place of the link, not of what it names
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert session.download("link") == b"mine"


def test_an_upload_goes_on_where_it_was_cut_off(server: Service, session: Session) -> None:
    data = np.random.default_rng(1).bytes(2_000_000)
    session.call("file.begin", "big", len(data), 0)
    session.call("file.write", 0, blob=data[:600_000])
    session.call("file.write", 600_000, blob=data[600_000:700_000])
    session.close()
    wait_until(lambda: not children(server.pid), "the session gone")
    with connected(server) as again:
        assert again.call("file.begin", "big", len(data), 1).integer() == 700_000
        with pytest.raises(RpcError, match="goes on at 700000"):
            again.call("file.write", 600_000, blob=b"x")
        again.upload(data, "big")
        assert again.download("big") == data
        other = data[::-1]
        again.call("file.begin", "big", len(data), 0)
        again.call("file.write", 0, blob=data[:1000])
        again.upload(other, "big")  # what is there is the beginning of something else
        assert again.download("big") == other


def test_an_interrupted_upload_ends_the_session(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Part of a call may be on its way: what is sent next would be read as the rest of it."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Channel, "send_long", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.upload(bytes(3 << 20), "cut.bin")
    with pytest.raises(RpcError, match="the session was interrupted"):
        session.files()


def test_uploads_have_limits(session: Session) -> None:
    with pytest.raises(RpcError, match="more than the"):
        session.call("file.begin", "big", 401 << 20, 0)
    with pytest.raises(RpcError, match="no upload has begun"):
        session.call("file.write", 0, blob=b"x")
    session.call("file.begin", "small", 3, 0)
    with pytest.raises(RpcError, match="longer than"):
        session.call("file.write", 0, blob=b"four")
    with pytest.raises(RpcError, match="0 of 3 bytes"):
        session.call("file.end")
    assert session.files() == {}


# ---- arrays, models, kernels ---------------------------------------------------------------------


def test_arrays_go_there_and_back(session: Session) -> None:
    for dtype in ("float32", "int8", "bool", "bfloat16", "float16"):
        for shape in ((), (0,), (3, 5), (2, 1)):
            source = treadle.array(np.random.default_rng(2).integers(0, 2, shape)).astype(dtype)
            remote = session.array(source)
            copied = remote.copyto(session.empty(shape, dtype))
            found = copied.get()
            assert (found.shape, found.dtype) == (shape, dtype)
            assert np.array_equal(found.numpy(), source.numpy())


def test_large_arrays_go_in_pieces(session: Session) -> None:
    source = np.random.default_rng(3).random((1000, 777)).astype("float32")
    assert np.array_equal(session.array(source[:, ::-1]).numpy(), source[:, ::-1])


def test_arrays_have_limits(session: Session) -> None:
    with pytest.raises(RpcError, match="more than the session may take"):
        session.empty((1 << 40, 1 << 40), "float32")
    with pytest.raises(RpcError, match="dimensions"):
        session.empty((1,) * 40)
    with pytest.raises(RpcError, match="no array 99"):
        session.call("array.read", 99, 0, 4)
    array = session.empty((4,))
    with pytest.raises(RpcError, match="bytes 8 to 24 of an array of 16"):
        session.call("array.read", array.handle, 8, 16)
    with pytest.raises(InputError, match="cannot be copied"):
        array.copyfrom(np.zeros(5, np.float32))
    array.free()
    session.call("array.free", [1, 2, 3])  # freed already, or never there


def test_a_model_runs_as_it_does_here(session: Session, model: Path) -> None:
    local = treadle.load(model)
    session.upload(model)
    remote = session.load("digits.tar", threads=1)
    assert remote.inputs == local.executor.inputs
    assert remote.outputs == local.executor.outputs
    assert remote.target == local.executor.target
    assert remote.plan_text == local.executor.plan_text
    image = np.random.default_rng(4).random((1, 1, 8, 8)).astype("float32")
    (wanted,) = local.run([image])
    for found in (remote.run([image]), remote.run({"image": image}), remote(image=image)):
        assert np.array_equal(found[0].numpy(), wanted.numpy())
    remote.set_input(0, np.zeros_like(image))
    remote.set_input("image", image)
    target = treadle.empty(wanted.shape)
    remote.run(outputs=[target])
    assert np.array_equal(target.numpy(), wanted.numpy())
    assert np.array_equal(remote.get_output(0).numpy(), wanted.numpy())
    assert len(remote.benchmark(number=2, repeat=3).results) == 3
    assert [row.kernel for row in remote.profile(runs=1)] == [
        row.kernel for row in local.profile([image], 1)
    ]
    remote.close()
    with pytest.raises(RpcError, match="no model"):
        session.call("model.plan", 1, 0)


def test_inputs_that_do_not_fit_are_refused(session: Session, model: Path) -> None:
    session.upload(model)
    remote = session.load("digits.tar")
    with pytest.raises(InputError, match="inputs are not given"):
        remote.run()
    with pytest.raises(InputError, match="did you mean 'image'"):
        remote.run({"imag": np.zeros((1, 1, 8, 8), np.float32)})
    with pytest.raises(InputError, match=r"float32\[1, 1, 8, 8\] is expected"):
        remote.run([np.zeros((1, 1, 8, 9), np.float32)])
    wrong = session.empty((1, 2), "float32")
    with pytest.raises(InputError, match="is expected"):
        session.call("model.run", 1, [wrong.handle], [])
    with pytest.raises(UsageError, match="not run yet"):
        remote.get_output()


def test_a_dynamic_model_runs(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "open.tar"
    source = ROOT / "examples" / "digits" / "digits.onnx"
    treadle.compile(source, dynamic=True).save(path)
    session.upload(path)
    remote, local = session.load("open.tar"), treadle.load(path)
    for count in (1, 3):
        images = np.random.default_rng(count).random((count, 1, 8, 8)).astype("float32")
        (found,) = remote.run([images])
        assert np.array_equal(found.numpy(), local.run([images])[0].numpy())


def test_damaged_models_are_refused(session: Session, model: Path) -> None:
    session.upload(model.read_bytes()[:5000], "cut.tar")
    with pytest.raises(ArtifactError):
        session.load("cut.tar")
    session.upload(b"\x7fELF nonsense", "lib.so")
    with pytest.raises(ArtifactError):
        session.load_module("lib.so")


def test_values_inside_a_model_are_seen(session: Session, model: Path) -> None:
    """Every instruction's value is the one it has here; none of them stays on the device."""
    session.upload(model)
    there = DebugExecutor(RemoteExecutable(session.load(model.name)))
    here = DebugExecutor(treadle.load(model))
    image = np.random.default_rng(0).random((1, 1, 8, 8)).astype("float32")
    names = here.names()
    assert there.names() == names
    for index in range(len(names)):
        wanted = here.debug_get_output(index, inputs=[image]).numpy()
        assert np.array_equal(there.debug_get_output(index, inputs=[image]).numpy(), wanted)
    seconds = there.run_individual(number=2, repeat=2)
    assert len(seconds) == len(names)
    assert all(0 < second < 1 for second in seconds)
    found = [(index, value.shape) for index, value in _watched(session, model, image)]
    assert [index for index, _ in found] == list(range(len(names)))
    layers, total = compare_layers(DIGITS, RemoteExecutable(session.load(model.name)),
                                   {"image": treadle.array(image)}, None)  # fmt: skip
    assert total == len(names)
    assert layers
    assert all(layer.agreement.holds for layer in layers)


def _watched(session: Session, model: Path, image: np.ndarray) -> list[tuple[int, np.ndarray]]:
    found: list[tuple[int, np.ndarray]] = []
    executor = session.load(model.name)
    outputs = executor.watch([image], lambda index, value: found.append((index, value)))
    assert np.array_equal(outputs[0].numpy(), executor.run([image])[0].numpy())
    return found


def test_values_that_do_not_fit_are_refused(session: Session, model: Path) -> None:
    """What was copied before memory ended is freed again, and names of no instruction are left."""
    session.upload(model)
    executor = session.load(model.name)
    image = session.array(np.zeros((1, 1, 8, 8), np.float32))
    assert session.call("model.watch", 1, [image.handle], [1 << 40, 99]).rows() == []
    piece = int(session.info()["memory_bytes"]) // 8  # more at once, the system may not promise
    held = [session.empty((piece - 500,), "int8") for _ in range(8)]
    with pytest.raises(RpcError, match="more than the session may take"):
        session.call("model.watch", 1, [image.handle], list(range(20)))
    session.free([held.pop().handle])
    assert session.empty((piece - 500,), "int8").nbytes == piece - 500
    assert executor.num_threads > 0


def test_kernels_of_te_run_and_are_timed(session: Session, tmp_path: Path) -> None:
    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: a[i] * 3, name="b")
    assert isinstance(b, te.Tensor)
    treadle.build(te.create_schedule(b.op), [a, b], name="thrice").save(tmp_path / "lib.so")
    session.upload(tmp_path / "lib.so")
    module = session.load_module("lib.so")
    given, out = session.array(np.arange(64, dtype="float32")), session.empty((64,))
    module["thrice"](given, out)
    assert np.array_equal(out.numpy(), 3 * np.arange(64))
    assert module.time_evaluator("thrice", number=3, repeat=2)(given, out).min > 0
    with pytest.raises(UsageError, match="did you mean 'thrice'"):
        module["thric"]
    with pytest.raises(InputError, match="is given 1"):
        module["thrice"](given)


def test_kernels_of_a_model_are_timed_alone(session: Session, model: Path) -> None:
    session.upload(model)
    found = session.load("digits.tar").kernels()
    assert list(found) == [kernel.name for kernel in treadle.load(model).kernels]


def test_the_device_says_what_it_is(session: Session) -> None:
    info = session.info()
    said, here = treadle.parse_target(info["target"]), treadle.parse_target("llvm")
    assert (said.features, said.vector_bits, said.cores) == (
        here.features,
        here.vector_bits,
        here.cores,
    )
    assert int(info["cores"]) >= 1
    assert info["features"]


# ---- what goes wrong -----------------------------------------------------------------------------


def test_an_endless_kernel_is_ended_and_the_server_lives(server: Service, session: Session) -> None:
    session.close()
    with connected(server, call_timeout=1.0) as limited:
        with pytest.raises(RpcError, match="time limit of 1 s"):
            _spin(limited)
        with pytest.raises(RpcError, match="time limit of 1 s"):  # and for whatever is asked next
            limited.files()
    is_ended = pytest.raises(RpcError, match=r"session's time limit of 1\.5 s")
    with connected(server, session_timeout=1.5) as limited, is_ended:
        _spin(limited)
    wait_until(lambda: not children(server.pid), "the kernel gone")


def _spin(session: Session) -> None:
    """Run a kernel that never ends; where the machine is slow, what comes first takes too long."""
    session.upload(kernels(), "bad.so")
    spin, out = session.load_module("bad.so")["spin"], session.empty((16,))
    spin(out)


def test_a_crashing_kernel_costs_its_session(server: Service, session: Session) -> None:
    session.upload(kernels(), "bad.so")
    module = session.load_module("bad.so")
    with pytest.raises(RpcError, match="Segmentation fault"):
        module["crash"](session.empty((16,)))
    wait_until(lambda: not children(server.pid), "the session gone")
    with connected(server) as again:
        again.upload(kernels(), "bad.so")
        given, out = again.array(np.arange(16, dtype="float32")), again.empty((16,))
        again.load_module("bad.so")["twice"](given, out)
        assert np.array_equal(out.numpy(), 2 * np.arange(16))


def test_a_killed_session_says_so(server: Service, session: Session) -> None:
    process = server.session_process()
    # One that dies while it answers may have sent half a frame: then nobody can say anything.
    wait_until(lambda: is_waiting(process), "the session waits for a call")
    os.kill(process, signal.SIGKILL)
    with pytest.raises(RpcError, match="crashed: Killed"):
        session.files()
    folder = server.log.parent / "work"
    wait_until(lambda: not list(folder.glob("session-*")), "its files removed")


def test_a_server_that_is_asked_to_end_leaves_nothing(tmp_path: Path, language: str) -> None:
    work = tmp_path / "work"
    with service(tmp_path, "server", "--work-dir", str(work), language=language) as found:
        session = rpc.connect("127.0.0.1", found.port)
        session.upload(kernels(), "bad.so")
        runs = found.session_process()
        os.kill(found.pid, signal.SIGTERM)
        assert found.process.wait(PATIENCE) == 0
        assert not is_alive(runs)
        with pytest.raises(RpcError):
            session.files()
        assert [path.name for path in work.iterdir()] == ["partial"]


def test_one_session_at_a_time(server: Service, session: Session) -> None:
    with pytest.raises(RpcError, match="busy with"):
        connected(server)
    session.close()
    wait_until(lambda: not children(server.pid), "the session gone")
    connected(server).close()


def test_clients_that_vanish_free_the_device(server: Service, session: Session) -> None:
    session.upload(kernels(), "bad.so")
    session._calls._channel.socket.setsockopt(  # a reset in place of a farewell
        socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
    )
    session._calls._channel.socket.close()
    wait_until(lambda: not children(server.pid), "the session gone")


def test_unknown_functions_and_wrong_arguments_are_refused(session: Session) -> None:
    with pytest.raises(RpcError, match=r"no function 'os\.system'"):
        session.call("os.system", "ls")
    with pytest.raises(RpcError, match="must be an integer"):
        session.call("file.begin", "a", "b", 0)
    with pytest.raises(RpcError, match="too many"):
        session.call("file.list", 1)
    assert session.files() == {}


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_arrays_are_freed(session: Session, server: Service, count: int) -> None:
    """Allocations of 1 MB each, of which few are ever there at once."""
    pid = server.session_process()

    def resident() -> int:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    data = np.zeros(2000, np.float32)
    for _ in range(500):
        session.array(data)
    before = resident()
    for _ in range(count):
        session.empty((250_000,))
    assert resident() < before + (40 << 20)


@pytest.mark.slow
def test_a_gigabyte_is_uploaded_and_read_in_little_memory(tmp_path: Path, language: str) -> None:
    """Of the session's process, which has nothing of a file in memory but a piece."""
    path = tmp_path / "big"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    with (
        service(tmp_path, "server", language=language) as found,
        rpc.connect("127.0.0.1", found.port) as session,
    ):
        process = Path(f"/proc/{found.session_process()}/status")

        def peak() -> int:
            (line,) = (x for x in process.read_text().splitlines() if x.startswith("VmHWM"))
            return int(line.split()[1]) << 10

        session.upload(b"x" * (4 << 20), "small")
        before = peak()
        session.upload(path)
        assert session.files()["big"] == 1 << 30
        assert peak() < before + (8 << 20)
        session.remove("big")


# ---- keys ----------------------------------------------------------------------------------------


def test_another_key_and_none_are_refused(
    server: Service, session: Session, tmp_path: Path
) -> None:
    make_key(tmp_path / "other")
    with pytest.raises(RpcError, match="another key"):
        rpc.connect("127.0.0.1", server.port, key_file=tmp_path / "other")
    with pytest.raises(RpcError, match="wants a key"):
        rpc.connect("127.0.0.1", server.port)
    assert session.files() == {}  # nobody else is disturbed


def test_other_versions_are_refused(server: Service) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall(b"TRPC\x01\x00\x01\x01" + bytes(40))
        answer = sock.recv(48)
    assert answer[:7] == b"TRPC\x02\x00\x01"  # version 2 is spoken here; status 1


def test_a_changed_frame_ends_the_session_only(server: Service, session: Session) -> None:
    session._calls._channel._out.counter += 1
    with pytest.raises(RpcError, match="changed on its way"):
        session.files()
    wait_until(lambda: not children(server.pid), "the session gone")
    connected(server).close()


def test_waiting_is_bounded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        start = time.monotonic()
        with pytest.raises(RpcError, match=r"nothing answers within 0\.5 s"):
            rpc.connect("127.0.0.1", silent.getsockname()[1], connect_timeout=0.5)
        assert time.monotonic() - start < 30
