# SPDX-License-Identifier: Apache-2.0
"""TLS around the protocol: the same sessions, for those who trust the certificate."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.processes import PATIENCE, children, wait_until
from tests.rpc.services import device_of, kernels, service, states
from treadle import rpc
from treadle.errors import RpcError, UsageError
from treadle.rpc.keys import make_key
from treadle.rpc.tls import accepting_context, connecting_context


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    named = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run([openssl, "req", "-x509", *made, *named, *files], check=True, timeout=PATIENCE,
                   capture_output=True)  # fmt: skip
    return cert, key


def test_sessions_go_through_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "right")
    other, _ = certificate(tmp_path, "other")
    make_key(tmp_path / "key")
    secret = ("--key-file", str(tmp_path / "key"))
    shown = (*secret, "--tls-cert", str(cert), "--tls-key", str(key))
    with (
        service(tmp_path, "tracker", *shown) as tracker,
        device_of(tmp_path, tracker, "board", *shown, "--tls-ca", str(cert)) as device,
    ):
        asked = rpc.connect_tracker(
            "127.0.0.1", tracker.port, key_file=tmp_path / "key", tls=connecting_context(cert)
        )
        with asked.request("board", call_timeout=PATIENCE) as session:
            data = bytes(range(256)) * 8192
            session.upload(data, "data")
            assert session.download("data") == data
            session.upload(kernels(), "bad.so")
            with pytest.raises(RpcError, match="Segmentation fault"):
                session.load_module("bad.so")["crash"](session.empty((16,)))
        wait_until(lambda: not children(device.pid), "the session gone")
        wait_until(lambda: states(asked) == ["free"], "free again")
        with pytest.raises(RpcError, match=r"certificate|nothing can be reached"):
            rpc.connect_tracker(
                "127.0.0.1", tracker.port, key_file=tmp_path / "key", tls=connecting_context(other)
            ).summary()
        with pytest.raises(RpcError):  # without TLS nothing is understood
            rpc.connect_tracker("127.0.0.1", tracker.port, key_file=tmp_path / "key").summary()


def test_files_that_are_no_certificates_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    with pytest.raises(UsageError, match="cannot be used"):
        accepting_context(tmp_path / "x", tmp_path / "x")
    with pytest.raises(UsageError, match="cannot be used"):
        connecting_context(tmp_path / "x")
    with pytest.raises(UsageError, match="cannot be used"):
        connecting_context(tmp_path / "nothing")
