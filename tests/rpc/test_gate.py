# SPDX-License-Identifier: Apache-2.0
"""Who may connect: ports, addresses without a key, and failures that are counted."""

from __future__ import annotations

import pytest

from treadle.errors import UsageError
from treadle.rpc.gate import FailureCount, Limits, is_loopback, listen

pytestmark = pytest.mark.tiny


def test_without_a_key_nobody_else_can_connect() -> None:
    for host in ("0.0.0.0", "192.0.2.1", "::", "example.com"):
        assert not is_loopback(host)
        with pytest.raises(UsageError, match="there is no key"):
            listen(host, 0, 0, None)
    assert all(map(is_loopback, ("127.0.0.1", "127.1.2.3", "::1", "localhost")))
    listen("127.0.0.1", 0, 0, None).close()
    listen("0.0.0.0", 0, 0, b"k" * 16).close()


def test_ports_are_tried_one_after_another() -> None:
    with listen("127.0.0.1", 0, 0, None) as first:
        port = first.getsockname()[1]
        with pytest.raises(UsageError, match="no port from"):
            listen("127.0.0.1", port, port, None)
        with listen("127.0.0.1", port, min(port + 20, 65535), None) as second:
            assert port < second.getsockname()[1] <= port + 20


def test_failures_are_counted_by_address_and_forgiven() -> None:
    now = [0.0]
    count = FailureCount(Limits(failures=3, failures_per_second=0.5), lambda: now[0])
    for _ in range(3):
        assert count.may_try("a")
        count.failed("a")
    assert not count.may_try("a")
    assert count.may_try("b")
    now[0] = 2.0
    assert count.may_try("a")
    count.failed("a")
    assert not count.may_try("a")
    now[0] = 100.0
    for _ in range(3):
        assert count.may_try("a")
        count.failed("a")
    assert not count.may_try("a")


def test_the_count_of_failures_stays_small() -> None:
    count = FailureCount(Limits(), lambda: 0.0)
    for number in range(20_000):
        count.failed(str(number))
    assert len(count._left) <= 4096
