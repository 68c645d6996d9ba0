# SPDX-License-Identifier: Apache-2.0
"""TLS around connections, for those who must not be listened to.

It is a layer of its own: the event loop encrypts, and the rest of a server or a tracker sees a
socket of plain bytes, which a session's process can have.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from contextlib import suppress

from treadle.errors import UsageError

_CHUNK = 1 << 18
_HANDSHAKE_SECONDS = 5.0

File = str | os.PathLike[str]


def accepting_context(certificate: File, key: File) -> ssl.SSLContext:
    """Return what a server shows: PEM files. Raises: UsageError when they cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"the certificate or its key cannot be used: {error.strerror or error}",
            at=os.fspath(certificate),
            hint="name two PEM files that belong together: --tls-cert, --tls-key",
        ) from None
    return context


def connecting_context(authority: File) -> ssl.SSLContext:
    """Return what a client trusts: a PEM file. Raises: UsageError when it cannot be used."""
    try:
        context = ssl.create_default_context(cafile=os.fspath(authority))
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"the certificate cannot be used: {error.strerror or error}",
            at=os.fspath(authority),
            hint="name the PEM file of who signed the certificates",
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


async def accepted(sock: socket.socket, context: ssl.SSLContext) -> socket.socket:
    """Return the plain end of a connection that was accepted. Raises: OSError, TimeoutError."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(_CHUNK)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, sock, ssl=context, ssl_handshake_timeout=_HANDSHAKE_SECONDS
    )
    return await _plain(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


async def connected(sock: socket.socket, context: ssl.SSLContext, host: str) -> socket.socket:
    """Return the plain end of a connection to a host. Raises: OSError, TimeoutError."""
    reader, writer = await asyncio.open_connection(
        sock=sock, ssl=context, server_hostname=host, ssl_handshake_timeout=_HANDSHAKE_SECONDS
    )
    return await _plain(reader, writer)


_relays: set[asyncio.Task[None]] = set()  # the loop itself holds tasks weakly


async def _plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> socket.socket:
    mine, other = socket.socketpair()
    mine.setblocking(False)
    inner_reader, inner_writer = await asyncio.open_connection(sock=other)
    for source, target in ((reader, inner_writer), (inner_reader, writer)):
        task = asyncio.ensure_future(_relay(source, target))
        _relays.add(task)
        task.add_done_callback(_relays.discard)
    return mine


async def _relay(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy bytes until one side ends; then end the other."""
    with suppress(OSError):
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()
    target.close()
