# SPDX-License-Identifier: Apache-2.0
"""Who gets which device, with a clock that the test turns."""

from __future__ import annotations

import random

import pytest

from treadle.rpc.leases import AGEING_SECONDS, BUSY, FREE, Board, Device

pytestmark = pytest.mark.tiny


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def board_with(clock: Clock, *keys: str) -> Board[str]:
    made: Board[str] = Board(clock)
    for port, key in enumerate(keys):
        made.enlist(Device(key, "127.0.0.1", port + 1))
    return made


def served(board: Board[str]) -> list[str]:
    return [request.tag for _, request in board.matches()]


def test_equal_requests_are_served_as_they_came() -> None:
    clock = Clock()
    board = board_with(clock, "a")
    for name in ("first", "second", "third"):
        board.ask("a", 1, name)
    order = []
    for _ in range(3):
        order += served(board)
        assert served(board) == []  # the device is taken
        board.devices[0].become(FREE)
    assert order == ["first", "second", "third"]


def test_higher_priority_goes_first_and_waiting_makes_up_for_it() -> None:
    clock = Clock()
    board = board_with(clock, "a")
    board.ask("a", 0, "low")
    board.ask("a", 2, "high")
    assert served(board) == ["high"]
    board.devices[0].become(FREE)
    clock.now += 2 * AGEING_SECONDS + 1
    board.ask("a", 2, "late")
    assert served(board) == ["low"]


def test_requests_get_devices_of_their_key_only() -> None:
    board = board_with(Clock(), "a", "b", "b")
    for name, key in (("one", "b"), ("two", "c"), ("three", "b"), ("four", "b")):
        board.ask(key, 1, name)
    assert served(board) == ["one", "three"]
    assert [d.state for d in board.devices] == [FREE, "offered", "offered"]
    assert (board.pending("b"), board.pending("c")) == (1, 1)


def test_nobody_starves_whatever_comes() -> None:
    """A request of priority 0 against a stream of urgent ones: served after a bounded time."""
    clock = Clock()
    board = board_with(clock, "a")
    board.ask("a", 0, "patient")
    for step in range(1000):
        board.ask("a", 5, f"urgent {step}")
        clock.now += 1
        if "patient" in served(board):
            assert clock.now - 1000 <= 5 * AGEING_SECONDS + 2
            return
        board.devices[0].become(FREE)
    pytest.fail("it starved")


def test_every_request_is_served_once_in_any_course_of_events() -> None:
    generator = random.Random(5)
    clock = Clock()
    board = board_with(clock, "a", "a", "b")
    asked, got = 0, []
    while len(got) < 2000:
        clock.now += generator.random()
        event = generator.randrange(4)
        if event == 0 and asked < 2000:
            board.ask(generator.choice("ab"), generator.randrange(5), str(asked))
            asked += 1
        elif event == 1:
            got += served(board)
        elif event == 2:
            generator.choice(board.devices).become(BUSY)
        else:
            generator.choice(board.devices).become(FREE)
    assert sorted(map(int, got)) == list(range(2000))


def test_a_withdrawn_request_is_not_served_and_a_restored_one_keeps_its_place() -> None:
    board = board_with(Clock(), "a")
    first = board.ask("a", 1, "first")
    board.ask("a", 1, "second")
    ((device, request),) = board.matches()
    assert request is first
    device.become(FREE)
    board.restore(request)
    assert served(board) == ["first"]
    third = board.ask("a", 1, "third")
    board.withdraw(third)
    board.withdraw(third)
    board.devices[0].become(FREE)
    assert served(board) == ["second"]
    board.devices[0].become(FREE)
    assert served(board) == []
