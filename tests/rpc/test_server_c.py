# SPDX-License-Identifier: Apache-2.0
"""The server in C: its command line, its memory under sanitizers, another architecture.

What it owes clients as the server in Python does is in test_server, test_hostile and test_tracker.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

import treadle
from tests.processes import children, wait_until
from tests.rpc import services
from tests.rpc import test_hostile as hostile
from tests.rpc.services import Service, kernels, server_in_c
from tests.runtime.artifacts import ROOT
from treadle import rpc
from treadle.errors import RpcError
from treadle.rpc.channel import open_channel_on
from treadle.rpc.keys import make_key
from treadle.rpc.wire import Role
from treadle.runtime import native

DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
SANITIZE = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def said(*words: str) -> tuple[int, str]:
    """Return exit code and output of the server, which is to end at once."""
    command = [str(server_in_c()), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


@contextmanager
def serving(folder: Path, program: list[str], *options: str, **variables: str) -> Iterator[Service]:
    """Start a server that was built in another way; it is gone at the end."""
    log = folder / "server.log"
    command = [*program, "server", "--port", "0", *options]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, env={**os.environ, **variables}
        )
    try:
        wait_until(lambda: b"bind to" in log.read_bytes() or process.poll() is not None, "a port")
        text = log.read_text()
        assert "bind to" in text, text
        yield Service(
            process, int(text.partition("bind to ")[2].split()[0].rpartition(":")[2]), log
        )
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()


# ---- the command line ----------------------------------------------------------------------------


def test_the_version_is_that_of_the_runtime() -> None:
    assert said("--version") == (0, f"treadle-rpc-server {native.version()}\n")


def test_help_lists_every_option_that_is_read() -> None:
    code, text = said("--help")
    assert code == 0
    source = (ROOT / "native" / "rpc" / "main.c").read_text()
    table = source.partition("} options[] = {")[2].partition("};")[0]
    names = [line.split('"')[1] for line in table.splitlines() if '"--' in line]
    assert len(names) > 10
    for name in names:
        assert (f"{name} " in text) == (not name.startswith("--tls")), name


def test_what_cannot_be_is_refused_with_the_next_action(tmp_path: Path) -> None:
    make_key(tmp_path / "key")
    (tmp_path / "short").write_text("0123")
    (tmp_path / "short").chmod(0o600)
    (tmp_path / "public").write_text("0123456789abcdef0123456789abcdef")
    (tmp_path / "public").chmod(0o644)
    (tmp_path / "file").write_text("")
    for words, problem in (
        (["--host", "0.0.0.0"], "can be reached by other machines, and there is no key"),
        (["--tls-cert", "x", "--tls-key", "y"], "does not speak TLS"),
        (["--tracker", "127.0.0.1:9190"], "are given together"),
        (["--custom-addr", "1.2.3.4"], "--tracker is missing"),
        (["--tracker", "x:y", "--key", "a"], "is no address"),
        (["--nothing", "1"], "there is no option --nothing"),
        (["--port"], "option --port has no value"),
        (["--port", "65536"], "'65536' is no number for this"),
        (["--quota", "-1"], "'-1' is no number for this"),
        (["--call-timeout", "nan"], "'nan' is no number of seconds"),
        (["--key-file", str(tmp_path / "none")], "the key file cannot be read"),
        (["--key-file", str(tmp_path / "short")], "the key has 4 bytes"),
        (["--key-file", str(tmp_path / "public")], "can be read by others"),
        (["--work-dir", str(tmp_path / "file")], "the work folder cannot be used"),
        (["--host=203.0.113.9", f"--key-file={tmp_path / 'key'}"], "no port from 9090 to 9099"),
    ):
        code, text = said("server", *words)
        assert code == 1, words
        assert text.startswith("error: ") or "INFO" in text
        assert problem in text, words
    assert said()[0] == said("client")[0] == 2
    assert "hint: chmod 600" in said("server", "--key-file", str(tmp_path / "public"))[1]


def test_folders_of_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "partial").symlink_to(tmp_path / "elsewhere")
    code, text = said("server", "--work-dir", str(tmp_path / "work"))
    assert code == 1
    assert "is not this user's" in text


def test_what_dead_servers_left_is_removed(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "session-999999999-x" / "deep" / "er").mkdir(parents=True)
    (work / "session-999999999-x" / "link").symlink_to(tmp_path)
    mine = work / f"session-{os.getpid()}-x"
    mine.mkdir()
    (work / "partial").mkdir()
    (work / "partial" / "old").write_text("")
    (work / "partial" / "new").write_text("")
    os.utime(work / "partial" / "old", (0, 0))
    with serving(tmp_path, [str(server_in_c())], "--work-dir", str(work)):
        assert sorted(p.name for p in work.iterdir()) == sorted(["partial", mine.name])
        assert [p.name for p in (work / "partial").iterdir()] == ["new"]


def test_a_silent_server_says_nothing(tmp_path: Path) -> None:
    code, text = said("server", "--silent", "--host=203.0.113.9", "--tracker=x", "--key=y")
    assert code == 1
    assert "INFO" not in text


# ---- sanitizers ----------------------------------------------------------------------------------


def test_sessions_are_clean_under_sanitizers(tmp_path: Path) -> None:
    """Files, arrays, a model, kernels, what is refused, a crash: nothing is leaked or overrun."""
    try:
        program = server_in_c(*SANITIZE)
    except treadle.errors.ToolchainError:
        pytest.skip("the compiler has no sanitizers")
    make_key(tmp_path / "key")
    path = tmp_path / "digits.tar"
    treadle.compile(DIGITS).save(path)
    variables = {"ASAN_OPTIONS": "handle_segv=0:detect_leaks=1"}
    key = ("--key-file", str(tmp_path / "key"))
    with serving(tmp_path, [str(program)], *key, **variables) as found:
        with rpc.connect("127.0.0.1", found.port, key_file=tmp_path / "key") as session:
            _use(session, path)
        wait_until(lambda: not children(found.pid), "no session")
        with rpc.connect("127.0.0.1", found.port, key_file=tmp_path / "key") as session:
            session.upload(kernels(), "bad.so")
            with pytest.raises(RpcError, match="Segmentation fault"):
                session.load_module("bad.so")["crash"](session.empty((16,)))
        found.process.terminate()
        assert found.process.wait(60) == 0
        text = found.log.read_text()
        assert "Sanitizer" not in text, text
        assert "runtime error" not in text, text
        assert "exit code" not in text, text


VALGRIND = (
    "valgrind", "--quiet", "--trace-children=yes", "--leak-check=full", "--error-exitcode=99",
    "--errors-for-leak-kinds=definite,indirect", "--show-leak-kinds=definite,indirect",
)  # fmt: skip


@pytest.mark.slow
def test_sessions_are_clean_under_valgrind(tmp_path: Path) -> None:
    """As built for users: nothing undefined is read, in kernels and models either."""
    if shutil.which("valgrind") is None or platform.machine() != "x86_64":
        pytest.skip("valgrind for x86-64 is not installed")
    make_key(tmp_path / "key")
    path = tmp_path / "digits.tar"
    treadle.compile(DIGITS, target="llvm -mcpu=haswell").save(path)  # valgrind has no AVX-512
    program = [*VALGRIND, str(server_in_c("-O1", "-g"))]
    with serving(tmp_path, program, "--key-file", str(tmp_path / "key")) as found:
        with rpc.connect("127.0.0.1", found.port, key_file=tmp_path / "key") as session:
            _use(session, path)
        wait_until(lambda: not children(found.pid), "no session")
        found.process.terminate()
        code = found.process.wait(120)
        text = found.log.read_text()
        assert code == 0, text
        assert "exit code" not in text, text


@pytest.mark.slow
def test_a_client_at_standard_input_is_clean_under_valgrind(tmp_path: Path) -> None:
    """The way that ssh takes, to its end."""
    if shutil.which("valgrind") is None or platform.machine() != "x86_64":
        pytest.skip("valgrind for x86-64 is not installed")
    words = [*VALGRIND, str(server_in_c("-O1", "-g")), "server", "--stdio", "--work-dir", "work"]
    ours, theirs = socket.socketpair()
    with theirs, (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=log, cwd=tmp_path)
    channel = open_channel_on(ours, "stdio", Role.CLIENT, None, seconds=60)
    with rpc.Session(channel, b"", 0, 0) as session:
        session.upload(os.urandom(1_000_000), "data")
        assert session.files() == {"data": 1_000_000}
    assert process.wait(60) == 0, (tmp_path / "log").read_text()
    assert "==" not in (tmp_path / "log").read_text()


def _use(session: rpc.Session, path: Path) -> None:
    """Call every function there is, rightly and wrongly."""
    session.info()
    session.set_num_threads(2)
    session.upload(path)
    session.upload(b"x" * 300_000, "file")
    session.call("file.begin", "part", 10, 0)
    session.call("file.write", 0, blob=b"12345")
    session.call("file.check")
    assert session.download("file") == b"x" * 300_000
    session.remove("file")
    model = session.load("digits.tar", threads=2)
    image = np.random.default_rng(0).random((1, 1, 8, 8)).astype("float32")
    wanted = treadle.load(path).run([image])[0].numpy()
    assert np.array_equal(model.run([image])[0].numpy(), wanted)
    found = session.call("model.run", 1, [session.array(image).handle], [])
    assert len(found.rows()) == 1
    model.benchmark(number=1, repeat=2, min_repeat_ms=0.1)
    model.profile(runs=2)
    model.seed(-3)
    assert len(model.watch([image], lambda index, value: None)) == 1
    assert model.num_threads == 2
    assert model.plan_text
    assert len(model.kernels()) > 1
    session.upload(kernels(), "kernels.so")
    module = session.load_module("kernels.so")
    given, out = session.array(np.arange(16, dtype="float32")), session.empty((16,))
    module["twice"](given, out)
    module.time_evaluator("twice", number=2, repeat=2)(given, out)
    module["twice"].rotation_timer([given, out], [out, given])(3)
    for function, *values in (
        ("model.run", 1, [], []), ("model.run", 1, [9], []), ("model.time", 1, [], 1, 1, 0.0),
        ("model.run", 1, [given.handle], []), ("model.plan", 7, 0), ("model.seed", 1),
        ("model.watch", 1, [], [0]), ("model.watch", 1, [1], ["x"]), ("model.watch", 7, [1], [0]),
        ("kernel.call", 2, "twice", [given.handle], []), ("kernel.call", 2, "none", [], []),
        ("kernel.call", 9, "twice", [], []), ("kernel.call", 2, "twice", [1, 2], [["n", 1]]),
        ("kernel.time", 2, "twice", [], [], 1, 1, 0.0, 2), ("kernel.rotate", 2, "twice", [], 1, 1),
        ("kernel.rotate", 2, "twice", [[given.handle]], 1, 1), ("array.new", "float31", []),
        ("array.new", "float32", [1 << 48] * 3), ("array.copy", 1, 99), ("file.read", "..", 0, 1),
        ("array.read", 1, 1 << 48, 1), ("file.begin", "a", 1 << 62, 0), ("nothing",),
        ("module.load", "kernels.so", "{"), ("module.load", "kernels.so", '{"kernels": 1}'),
        ("module.load", "digits.tar", ""), ("model.load", "kernels.so", 0),
    ):  # fmt: skip
        with pytest.raises(treadle.errors.TreadleError):
            session.call(str(function), *values)
    assert session.files().keys() == {"digits.tar", "kernels.so"}
    model.close()
    module.free()


def test_kernels_of_computed_sizes_are_checked_as_in_python(tmp_path: Path) -> None:
    """Sizes that follow from computed extents, are given, are wrong, or too large to compute."""
    shape = [{"text": "2*n + 1", "formula": ["add", ["mul", ["size", 0], 2], 1]}]
    far = [{"text": "n * m", "formula": ["mul", ["size", 0], ["size", 1]]}]
    params = [
        {"name": "x", "dtype": "float32", "shape": shape, "is_output": False},
        {"name": "y", "dtype": "float32", "shape": far, "is_output": True},
    ]
    row = {"params": params, "workspace_bytes": 0, "symbols": ["n", "m"]}
    row["workspace_bytes"] = {"text": "m", "formula": ["size", 1]}
    text = json.dumps({"format": 1, "cpu_features": [], "kernels": {"twice": row}})
    for language in services.SERVERS:
        folder = tmp_path / language
        folder.mkdir()
        with (
            services.service(folder, "server", language=language) as found,
            rpc.connect("127.0.0.1", found.port) as session,
        ):
            session.upload(kernels(), "kernels.so")
            twice = session.load_module("kernels.so", text)["twice"]
            x, y = session.array(np.ones(33, np.float32)), session.empty((16,))
            twice(x, y)
            assert np.array_equal(y.numpy(), np.full(16, 2, np.float32))
            twice(x, y, sizes={"m": 1})
            for given, sizes, problem in (
                ([x, session.empty((17,))], {}, "for a size m of 0 or more"),
                ([session.empty((32,)), y], {}, "for a size n of 0 or more"),
                ([x, y], {"m": 2}, r"must be n \* m = 32"),
                ([x, y], {"k": 2}, "has no size 'k'"),
                ([x], {}, "takes 2 arguments but is given 1"),
                ([x, session.empty((16,), "int8")], {}, "is expected"),
            ):
                with pytest.raises(treadle.errors.InputError, match=problem):
                    twice(*given, sizes=sizes)


@pytest.mark.slow
@pytest.mark.parametrize("has_key", [False, True], ids=["without a key", "with a key"])
def test_what_strangers_send_is_read_cleanly_under_sanitizers(
    tmp_path: Path, has_key: bool
) -> None:
    """Openings, frames before a session, and frames in sessions, random and mutated."""
    try:
        program = server_in_c(*SANITIZE)
    except treadle.errors.ToolchainError:
        pytest.skip("the compiler has no sanitizers")
    make_key(tmp_path / "key")
    key_file = tmp_path / "key" if has_key else None
    options = ("--key-file", str(key_file)) if key_file else ()
    options = (*options, "--most-failures", str(10**9))
    variables = {"ASAN_OPTIONS": "detect_leaks=1"}
    with serving(tmp_path, [str(program)], *options, **variables) as found:
        for made in (hostile.opening, hostile.frames):
            hostile.thrown_at(found.port, made, 5000, seed=5)
        hostile.thrown_in_sessions(found, key_file, 40, seed=6)
        hostile.serves(found, key_file)
        found.process.terminate()
        assert found.process.wait(60) == 0
        text = found.log.read_text()
        assert "Sanitizer" not in text, text
        assert "runtime error" not in text, text


# ---- another architecture ------------------------------------------------------------------------


def test_a_board_runs_a_model_and_its_times_under_qemu(tmp_path: Path) -> None:
    """aarch64: built by the cross compiler, run by qemu, used as any device is."""
    server, emulator = services.server_for_arm()
    make_key(tmp_path / "key")
    program = [*emulator.split(), str(server)]
    image = np.random.default_rng(0).random((1, 1, 8, 8)).astype("float32")
    wanted = treadle.compile(DIGITS).run([image])[0].numpy()
    with (
        serving(tmp_path, program, "--key-file", str(tmp_path / "key")) as found,
        rpc.connect("127.0.0.1", found.port, key_file=tmp_path / "key") as session,
    ):
        info = session.info()
        assert info["machine"] == "aarch64"
        assert "sha2" in info["features"].split()  # so the code of every frame here is by these
        path = tmp_path / "digits.tar"
        treadle.compile(DIGITS, target=info["target"]).save(path, linker="aarch64-linux-gnu-gcc")
        session.upload(path)
        model = session.load("digits.tar")
        np.testing.assert_allclose(model.run([image])[0].numpy(), wanted, rtol=1e-4, atol=1e-6)
        assert model.benchmark(number=1, repeat=2).min > 0
        assert next(row.runs for row in model.profile(runs=1)) == 1
        treadle.compile(DIGITS).save(tmp_path / "here.tar")
        session.upload(tmp_path / "here.tar")
        with pytest.raises(treadle.errors.ArtifactError, match="this machine is aarch64"):
            session.load("here.tar")
