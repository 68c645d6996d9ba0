# SPDX-License-Identifier: Apache-2.0
"""Commands that use a device of a tracker: their options, and the model there."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from treadle.build.load import is_artifact
from treadle.build.loaded import Runnable
from treadle.build.remote_executable import RemoteExecutable
from treadle.cli.arguments import refuse_compile_options
from treadle.cli.models import compile_file, open_model
from treadle.cli.named import check_readable
from treadle.cli.rpc import TRACKER_PORT, parse_address
from treadle.errors import UsageError
from treadle.rpc.client import Session
from treadle.rpc.tls import connecting_context
from treadle.rpc.tracking import TrackerSession, connect_tracker

_NAME = "model.tar"


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a device."""
    parser.add_argument("--rpc-tracker", metavar="HOST[:PORT]", help="use a device of this tracker "
                        f"in the place of this machine (default port: {TRACKER_PORT})")  # fmt: skip
    parser.add_argument("--rpc-key", metavar="NAME", help="the kind of device to ask for")
    parser.add_argument("--rpc-key-file", type=Path, metavar="FILE", help="the key of the tracker "
                        "and the device, if they have one")  # fmt: skip
    parser.add_argument("--rpc-tls-ca", type=Path, metavar="FILE", help="tracker and device "
                        "encrypt: who signed their certificates, PEM")  # fmt: skip


def tracker_of(arguments: argparse.Namespace) -> tuple[TrackerSession, str] | None:
    """Return the tracker and the kind of device that are named, None where none are.

    Raises: UsageError where one is missing.
    """
    if arguments.rpc_tracker is None and arguments.rpc_key is None:
        if arguments.rpc_key_file is not None:
            raise UsageError("--rpc-key-file is for --rpc-tracker", hint="name the tracker, too")
        return None
    if arguments.rpc_tracker is None or arguments.rpc_key is None:
        raise UsageError(
            "--rpc-tracker and --rpc-key are given together: whom to ask, and for what",
            hint="--rpc-tracker 127.0.0.1:9190 --rpc-key rk3399",
        )
    host, port = parse_address(arguments.rpc_tracker, TRACKER_PORT)
    authority = arguments.rpc_tls_ca
    tls = None if authority is None else connecting_context(authority)
    tracker = connect_tracker(host, port, key_file=arguments.rpc_key_file, tls=tls)
    return tracker, arguments.rpc_key


@contextmanager
def opened_model(arguments: argparse.Namespace) -> Iterator[Runnable]:
    """Open the model that is named, here or on the device that is named."""
    check_readable(arguments.model)
    found = tracker_of(arguments)
    if found is None:
        yield open_model(arguments)
        return
    tracker, key = found
    with tracker.request(key) as session:
        yield _model_on(session, arguments)


def _model_on(session: Session, arguments: argparse.Namespace) -> Runnable:
    """Return a model on a device; an ONNX model is compiled for the device."""
    threads = arguments.threads or 0
    if is_artifact(arguments.model):
        refuse_compile_options(arguments, arguments.model)
        session.upload(arguments.model, _NAME)
        return RemoteExecutable(session.load(_NAME, threads))
    if arguments.target is None:
        arguments.target = target_of_session(session)
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
        path = Path(folder) / _NAME
        compile_file(arguments, sized=not arguments.dynamic).save(path)
        session.upload(path, _NAME)
    return RemoteExecutable(session.load(_NAME, threads))


def target_of_session(session: Session) -> str:
    """Return what a device says to compile for. Raises: UsageError where it does not."""
    info = session.info()
    if target := info.get("target"):
        return target
    raise UsageError(
        f"the device does not say what to compile for: it is {info.get('machine')}, "
        f"{info.get('cpu')}",
        hint='say it, as in --target "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76"',
    )
