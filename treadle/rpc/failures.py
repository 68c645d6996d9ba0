# SPDX-License-Identifier: Apache-2.0
"""Errors in messages: what is sent of one, and what the other side raises."""

from __future__ import annotations

from treadle import errors
from treadle.errors import RpcError, TreadleError
from treadle.rpc.values import Arguments, Value
from treadle.rpc.wire import Status

_LONGEST = 2000
_KNOWN: dict[str, type[TreadleError]] = {
    kind.__name__: kind
    for kind in (
        errors.ArtifactError,
        errors.InputError,
        errors.RpcError,
        errors.SizesError,
        errors.TargetError,
        errors.TypeMismatch,
        errors.UsageError,
    )
}

_REFUSALS: dict[int, tuple[str, str]] = {
    Status.VERSION: ("it speaks another version of the protocol", "use the same Treadle on both"),
    Status.KEY_NEEDED: ("it wants a key", "give it the file with the key: --key-file, key_file="),
    Status.NO_KEY: ("it has no key, so it cannot show who it is", "start it with --key-file"),
    Status.SLOW_DOWN: ("too many attempts from this address failed", "wait some seconds"),
    Status.WRONG_KEY: ("it has another key", "use the same key file on both sides"),
    Status.ROLE: ("it is something else", "servers lend sessions, trackers lend servers"),
}


def error_values(error: BaseException) -> list[Value]:
    """Return what is sent of an error: its kind, problem, place and hint."""
    if isinstance(error, TreadleError):
        name = type(error).__name__
        texts = (name, error.problem, error.at, error.hint)
    elif isinstance(error, MemoryError):
        texts = ("RpcError", f"the device has not enough memory: {error}", "", "")
    elif isinstance(error, OSError):
        texts = ("RpcError", f"the device's system refuses: {error.strerror or error}", "", "")
    else:
        texts = ("RpcError", f"{type(error).__name__}: {error}", "", "")
    return [text[:_LONGEST] for text in texts]


def error_of(values: list[Value], at: str) -> TreadleError:
    """Return the error that was sent, with where it comes from."""
    arguments = Arguments("an error", values)
    name, problem, place, hint = (arguments.text() for _ in range(4))
    return _KNOWN.get(name, RpcError)(problem, at=place, hint=hint).located(at)


def refusal(status: int, at: str, version: int) -> RpcError:
    """Return the error for a connection that was refused."""
    problem, hint = _REFUSALS.get(status, (f"it says {status}", ""))
    if status == Status.VERSION:
        problem += f" (up to {version})"
    return RpcError(f"the connection is refused: {problem}", at=at, hint=hint)
