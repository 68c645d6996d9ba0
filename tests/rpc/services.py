# SPDX-License-Identifier: Apache-2.0
"""Trackers and servers that tests start, as the processes that users start; kernels that misbehave.

Waits end by what is seen, see tests/processes.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.processes import children, wait_until
from tests.runtime import artifacts
from treadle import rpc
from treadle.runtime import native, native_build, toolchain
from treadle.runtime.native_package import SERVER, build_package, find_toolchain
from treadle.runtime.signature import Param, Signature

FAILING = """
import sys
from treadle.rpc import gate
gate.Limits.__init__.__defaults__ = (*gate.Limits.__init__.__defaults__[:3], {}, {})
from treadle.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
"""The command, where an address may fail so often at once, and so often in a second."""

PATIENT = FAILING.format(1e9, 1e9)
"""For tests that fail to connect thousands of times: it takes no offence."""

STRICT = FAILING.format(3, 0.2)
"""For tests of what it takes offence at, which a slow machine does not do as often as it may."""


SERVERS = ("python", "c")
"""The servers that owe a client the same behaviour."""


def server_in_c(*flags: str) -> Path:
    """Return treadle-rpc-server, built with `flags`; skip the test where nothing builds it."""
    artifacts.compiler()
    return _built_server(None, flags)


def server_for_arm() -> tuple[Path, str]:
    """Return treadle-rpc-server for aarch64, and the command that runs programs of it here.

    The test is skipped where there is no cross compiler or no emulator.
    """
    emulator = shutil.which("qemu-aarch64")
    if emulator is None or shutil.which("aarch64-linux-gnu-gcc") is None:
        pytest.skip("aarch64-linux-gnu-gcc or qemu-aarch64 is not installed")
    server = _built_server("aarch64-linux-gnu", ("-O1",))
    return server, f"{emulator} -L /usr/aarch64-linux-gnu"


@cache
def _built_server(machine: str | None, flags: tuple[str, ...]) -> Path:
    """Build the package; it is kept for other runs: what it is made of is in its folder's name."""
    sources = native_build.find_sources()
    assert sources is not None
    made_of = (machine, flags, native_build.source_hash(sources))
    digest = hashlib.sha256(repr(made_of).encode())
    for path in sorted((sources / "rpc").iterdir()):
        digest.update(path.read_bytes())
    folder = artifacts.ROOT / ".pytest_cache" / "rpc" / digest.hexdigest()[:16]
    if not (folder / SERVER).exists():
        wanted = flags or ("-O1", *native_build.STRICT_FLAGS)
        build_package(folder, find_toolchain(machine), wanted, with_server=True)
    return folder / SERVER


def program_of(verb: str, language: str, patient: bool, strict: bool = False) -> list[str]:
    """Return the command of a tracker or a server, without its options."""
    if language == "c" and verb == "server":
        failures = 10**9 if patient else 3 if strict else 20
        return [str(server_in_c()), verb, "--most-failures", str(failures)]
    program = PATIENT if patient else STRICT if strict else ""
    return [sys.executable, *(["-c", program] if program else ["-m", "treadle"]), "rpc", verb]


@dataclass
class Service:
    """A process that listens."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()

    def memory(self) -> int:
        """Return its resident bytes."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def session_process(self) -> int:
        """Return the process of the session that goes on."""
        wait_until(lambda: bool(children(self.pid)), "a session's process")
        (found,) = children(self.pid)
        return found


@contextmanager
def service(
    folder: Path,
    verb: str,
    *options: str,
    port: int = 0,
    patient: bool = False,
    strict: bool = False,
    language: str = "python",
) -> Iterator[Service]:
    """Start `treadle rpc VERB`, or the server in C; it is gone at the end."""
    log = folder / f"{verb}-{len(list(folder.iterdir()))}.log"
    program = program_of(verb, language, patient, strict)
    command = [*program, "--port", str(port), *options]
    # What it would delete if it were asked to end, and not killed, goes with the test's folder.
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stderr=file, stdout=file, start_new_session=True, env=environment
        )
    try:
        wait_until(lambda: b"bind to" in log.read_bytes() or process.poll() is not None, "a port")
        found = re.search(r"bind to .*:(\d+)", log.read_text())
        assert found, log.read_text()
        yield Service(process, int(found[1]), log)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def device_of(
    folder: Path,
    tracker: Service,
    key: str,
    *options: str,
    port: int = 0,
    language: str = "python",
) -> Iterator[Service]:
    """Start a server that is registered at a tracker."""
    address = f"127.0.0.1:{tracker.port}"
    given = ("--tracker", address, "--key", key, *options)
    with service(folder, "server", *given, port=port, language=language) as found:
        wait_until(lambda: b"registered as" in found.log.read_bytes(), "registered")
        yield found


def tracker_of(service: Service, key_file: Path | None = None) -> rpc.TrackerSession:
    return rpc.connect_tracker("127.0.0.1", service.port, key_file=key_file)


def states(tracker: rpc.TrackerSession) -> list[str]:
    return [device.state for device in tracker.summary().devices]


KERNELS = r"""
#include <stddef.h>
#include <stdint.h>

int32_t spin(const void* env, void* const* buffers, const int64_t* dims) {
  volatile float* out = buffers[0];
  for (;;) out[0] += 1;
  return 0;
}

int32_t crash(const void* env, void* const* buffers, const int64_t* dims) {
  *(volatile int*)8 = 1;
  return 0;
}

int32_t twice(const void* env, void* const* buffers, const int64_t* dims) {
  const float* in = buffers[0];
  float* out = buffers[1];
  for (int i = 0; i < 16; ++i) out[i] = 2 * in[i];
  return 0;
}

__attribute__((visibility("default"))) const char treadle_kernels[] = TEXT;
"""


@cache
def kernels() -> bytes:
    """Return a library of the kernels spin(out), crash(out) and twice(in, out), of 16 floats."""
    import tempfile

    out, given = Param("out", "float32", (16,), True), Param("in", "float32", (16,))
    found = {name: Signature(name, (out,)) for name in ("spin", "crash")}
    found["twice"] = Signature("twice", (given, out))
    text = json.dumps(
        {"format": 1, "cpu_features": [], "kernels": {n: s.to_json() for n, s in found.items()}}
    )
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "kernels.c"
        source.write_text(KERNELS.replace("TEXT", json.dumps(text)))
        objects = [artifacts.compile_object(source, Path(name) / "kernels.o")]
        code = toolchain.link_shared(objects, Path(name) / "kernels.so").read_bytes()
    assert native.Library(code).text("treadle_kernels") == text
    return code


@cache
def candidate(name: str, body: str) -> bytes:
    """Return object code of a kernel that spins, crashes, or does nothing."""
    import tempfile

    bodies = {
        "spin": "for (;;) *(volatile int*)buffers[0] += 0;",
        "crash": "*(volatile int*)8 = 1;",
    }
    text = (
        f"int {name}(void* env, void** buffers, long* dims) {{ {bodies.get(body, '')} return 0; }}"
    )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "candidate.c"
        source.write_text(text)
        return artifacts.compile_object(source, Path(folder) / "candidate.o")
