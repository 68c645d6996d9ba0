# SPDX-License-Identifier: Apache-2.0
"""Who gets which device: devices, requests that wait for them, and the order. No connections.

A request's rank is its priority and one more for every `AGEING_SECONDS` it has waited, so that no
stream of urgent requests starves the others; equal ranks are served in the order they came.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

AGEING_SECONDS = 30.0
FREE, BUSY = "free", "busy"

T = TypeVar("T")


@dataclass(eq=False)
class Device:
    """A server as the tracker knows it; `state` is "free", "offered", "leased" or "busy"."""

    key: str
    host: str
    port: int
    state: str = FREE
    client: str = ""
    last_error: str = ""
    since: float = field(default_factory=time.monotonic)
    heard: float = field(default_factory=time.monotonic)

    def become(self, state: str, client: str = "") -> None:
        """Change the state."""
        if state != self.state:
            self.since = time.monotonic()
        self.state, self.client = state, client


@dataclass(eq=False)
class Request(Generic[T]):
    """A client that waits for a device; `tag` is whatever the client is to its owner."""

    key: str
    priority: int
    number: int
    since: float
    tag: T

    def rank(self, now: float) -> float:
        """The higher, the sooner."""
        return self.priority + (now - self.since) / AGEING_SECONDS


class Board(Generic[T]):
    """Devices and requests by key."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.devices: list[Device] = []
        self.requests: list[Request[T]] = []
        self._clock = clock
        self._numbers = itertools.count()

    def enlist(self, device: Device) -> None:
        """Add a device."""
        self.devices.append(device)

    def dismiss(self, device: Device) -> None:
        """Remove a device, if it is there."""
        if device in self.devices:
            self.devices.remove(device)

    def ask(self, key: str, priority: int, tag: T) -> Request[T]:
        """Add a request."""
        made = Request(key, priority, next(self._numbers), self._clock(), tag)
        self.requests.append(made)
        return made

    def withdraw(self, request: Request[T]) -> None:
        """Remove a request, if it waits."""
        if request in self.requests:
            self.requests.remove(request)

    def matches(self) -> list[tuple[Device, Request[T]]]:
        """Take requests that free devices can serve off the queue; the devices become offered."""
        now, found = self._clock(), []
        for device in self.devices:
            waiting = [r for r in self.requests if r.key == device.key]
            if device.state != FREE or not waiting:
                continue
            best = max(waiting, key=lambda r: (r.rank(now), -r.number))
            self.requests.remove(best)
            device.become("offered")
            found.append((device, best))
        return found

    def restore(self, request: Request[T]) -> None:
        """Put a request back that a device could not serve; it keeps its place."""
        self.requests.append(request)

    def pending(self, key: str) -> int:
        """How many requests wait for a key."""
        return sum(r.key == key for r in self.requests)

    def device_keys(self) -> list[str]:
        """The keys of devices and of requests."""
        return sorted({d.key for d in self.devices} | {r.key for r in self.requests})
