# SPDX-License-Identifier: Apache-2.0
"""Sessions on devices, as their clients hold them: `connect`, or `connect_tracker(...).request`."""

from __future__ import annotations

import getpass
import os
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

from treadle.errors import TreadleError, UsageError
from treadle.rpc.calls import Calls, Content
from treadle.rpc.channel import Channel, open_channel
from treadle.rpc.keys import read_key
from treadle.rpc.pieces import Pieces, offsets
from treadle.rpc.remote import RemoteArray, RemoteExecutor, RemoteModule
from treadle.rpc.transfers import download_to, downloaded, upload_bytes, upload_file
from treadle.rpc.values import Arguments, Value
from treadle.rpc.wire import PIECE_BYTES, WRITTEN_BYTES, Role
from treadle.runtime.array import ArrayLike, as_numpy

CALL_SECONDS = 600.0
"""How long one call may take where nothing else is said."""
_UNUSED = 256
_UNUSED_BYTES = 1 << 20
"""So many arrays that nobody uses, or bytes of them, stay on the device until the next one."""

KeyFile = str | os.PathLike[str]


def client_name() -> str:
    """Return who asks, as other users of a device see it."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}:{os.getpid()}"[:200]


def connect(
    host: str,
    port: int,
    *,
    key_file: KeyFile | None = None,
    session_timeout: float = 0,
    call_timeout: float = CALL_SECONDS,
    connect_timeout: float = 10.0,
    tls: ssl.SSLContext | None = None,
) -> Session:
    """Return a session on the device whose server is at an address.

    The session, and each call of it, is ended after so many seconds, 0 for any. `key_file` is what
    the server was started with. Example: `connect("127.0.0.1", 9090).upload("model.tar")`

    Raises: RpcError when nothing can be reached, the key is wrong, or the device is busy.
    """
    key = None if key_file is None else read_key(key_file)
    channel = open_channel(host, port, Role.CLIENT, key, seconds=connect_timeout, tls=tls)
    return Session(channel, b"", session_timeout, call_timeout)


class Session:
    """The use of a device until `close`: files, arrays, models, kernels.

    Threads may share one; their calls run one after another. After an error of the connection
    nothing of it can be used any more.
    """

    def __init__(
        self, channel: Channel, token: bytes, session_seconds: float, call_seconds: float
    ) -> None:
        """Use `connect` instead."""
        self._calls = Calls(channel, session_seconds, call_seconds)
        self._unused: deque[tuple[int, int]] = deque()
        wishes: list[Value] = [token, client_name(), float(session_seconds), float(call_seconds)]
        try:
            self.call("session.open", *wishes)
        except TreadleError:
            self.close()
            raise

    @property
    def address(self) -> str:
        """Host and port of the device's server."""
        return self._calls.address

    def call(self, function: str, *values: Value, blob: Content = b"") -> Arguments:
        """Call a function of the device; return its results. Bytes that come with them are lost.

        Raises: RpcError when the session has ended; TreadleError as the function does.
        """
        return self._calls.call(function, *values, blob=blob)

    def call_for_bytes(
        self, function: str, *values: Value, blob: Content = b""
    ) -> tuple[Arguments, bytes | memoryview]:
        """Call a function; return its results, and bytes that are valid until the next call."""
        return self._calls.call_for_bytes(function, *values, blob=blob)

    # ---- files -----------------------------------------------------------------------------------

    def upload(
        self,
        source: str | os.PathLike[str] | Content,
        name: str | None = None,
        *,
        resume: bool = True,
    ) -> str:
        """Copy a file, or bytes, to the device; return its name there.

        An upload that was cut off goes on where it ended, if what is there is how this one begins.
        """
        if isinstance(source, Content):
            if name is None:
                raise UsageError("bytes need a name on the device", hint="upload(data, 'lib.so')")
            upload_bytes(self._calls, source, name, resume=resume)
            return name
        path = Path(source)
        name = path.name if name is None else name
        upload_file(self._calls, path, name, resume=resume)
        return name

    def download(self, name: str, path: str | os.PathLike[str] | None = None) -> bytes:
        """Return a file of the device; with a path, write it there and return nothing of it."""
        if path is None:
            return b"".join(downloaded(self._calls, name))
        download_to(self._calls, name, path)
        return b""

    def remove(self, name: str) -> None:
        """Remove a file of the device."""
        self.call("file.remove", name)

    def files(self) -> dict[str, int]:
        """Return the names and sizes of the session's files."""
        return {row.text(): row.integer() for row in self.call("file.list").rows()}

    # ---- what the device does --------------------------------------------------------------------

    def info(self) -> dict[str, str]:
        """Return what the device is: its CPU, features, cores, memory, and the target for it."""
        return {row.text(): row.text() for row in self.call("device.info").rows()}

    def cores(self) -> int:
        """Return how many cores the device has; 1 where it does not say."""
        found = self.info().get("cores", "")
        return int(found) if found.isdecimal() else 1

    def load(self, name: str, threads: int = 0) -> RemoteExecutor:
        """Return a model that was uploaded, loaded: a tar of `treadle compile`."""
        return RemoteExecutor(self, self.call("model.load", name, threads))

    def load_module(self, name: str, text: str = "") -> RemoteModule:
        """Return kernels that were uploaded, loaded: what `treadle.build(...).save` wrote.

        Of another library `text` says what its kernels take, see `kernel_files.described`.
        """
        return RemoteModule(self, self.call("module.load", name, text))

    def set_num_threads(self, count: int) -> None:
        """Let kernels and models of this session use so many threads."""
        self.call("device.threads", count)

    def empty(self, shape: Sequence[int], dtype: str = "float32") -> RemoteArray:
        """Return an array on the device with undefined elements."""
        self._free_unused()
        sizes: list[Value] = [int(size) for size in shape]
        handle = self.call("array.new", dtype, sizes).integer()
        return RemoteArray(self, handle, dtype, tuple(map(int, shape)))

    def array(self, source: ArrayLike) -> RemoteArray:
        """Return a copy of an array on the device."""
        view = as_numpy(source, "the source")
        return RemoteArray.like(self, view).copyfrom(view)

    def write_array(self, handle: int, view: np.ndarray) -> None:
        """Write all bytes of an array of the device."""
        flat = np.ascontiguousarray(view).reshape(-1).view(np.uint8)
        with self._calls.lock:
            if flat.size <= WRITTEN_BYTES:
                self.call("array.write", handle, 0, blob=flat.data)
            else:
                pieces = Pieces(flat.data)
                self._calls.stream("array.write", 0, flat.size, pieces, handle)

    def read_array(self, handle: int, target: np.ndarray) -> None:
        """Read all bytes of an array of the device into a contiguous one."""
        flat = target.reshape(-1).view(np.uint8)
        with self._calls.lock:
            for offset, size in offsets(0, flat.size, PIECE_BYTES):
                blob = self.call_for_bytes("array.read", handle, offset, size)[1]
                flat[offset : offset + size] = np.frombuffer(blob, np.uint8)

    def forget(self, handle: int, nbytes: int) -> None:
        """Note that an array of the device is of no use any more; it is freed with a later call."""
        self._unused.append((handle, nbytes))

    def _free_unused(self) -> None:
        unused = self._unused
        if len(unused) >= _UNUSED or sum(size for _, size in list(unused)) > _UNUSED_BYTES:
            self.free([unused.popleft()[0] for _ in range(len(unused))])

    def free(self, handles: Sequence[int]) -> None:
        """Free arrays of the device now."""
        self.call("array.free", list(handles))

    def close(self) -> None:
        """End the session; when this returns, the device is free for the next one."""
        self._calls.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
