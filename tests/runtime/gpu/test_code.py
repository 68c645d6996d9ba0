# SPDX-License-Identifier: Apache-2.0
"""Code of kernels for GPUs as bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.devices import add_one
from treadle.errors import ArtifactError
from treadle.runtime.gpu.code import GpuCode, options_of
from treadle.runtime.gpu.kernel import grid_of


def test_code_is_written_and_read_again() -> None:
    _, code = add_one()
    assert GpuCode.from_bytes(code.to_bytes()) == code
    compiled = replace(code, kind="cuda", architecture="sm_90", binary=b"\x7fELF\n\0\n")
    assert GpuCode.from_bytes(compiled.to_bytes()) == compiled
    assert compiled.loadable == b"\x7fELF\n\0\n"
    assert code.loadable == code.text.encode()


@pytest.mark.parametrize("data", [b"", b"{}\n", b"[1]", b'{"format": 1}\n', b"\xff\xfe"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ArtifactError, match="GPU code"):
        GpuCode.from_bytes(data)


def test_another_format_is_named() -> None:
    _, code = add_one()
    data = code.to_bytes().replace(b'"format":1', b'"format":9')
    with pytest.raises(ArtifactError, match="has format 9, this Treadle reads 1"):
        GpuCode.from_bytes(data)


def test_a_grid_follows_from_sizes() -> None:
    _, code = add_one()
    (launch,) = code.launches
    assert [grid_of(launch, [n])[0] for n in (0, 1, 64, 65)] == [0, 1, 1, 2]


def test_options_stand_in_the_text() -> None:
    assert options_of("//!option -a\nvoid f();\n//!option --b=c \n// option") == ("-a", "--b=c")
