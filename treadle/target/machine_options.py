# SPDX-License-Identifier: Apache-2.0
"""The facts of a machine as options of a target string: "-fma-units=2 -caches=32K,1M,32M".

Every fact has one option, named after it; what has a value for each level of cache, or several
values, lists them with commas. A target string names the facts in which a machine differs from the
row of its CPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from treadle.dtype import NAMES
from treadle.errors import TargetError
from treadle.target.machine import CacheSizes, DotRate, Machine, size_text

T = TypeVar("T")

_SIZE = re.compile(r"([1-9]\d{0,11})([KMG]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_COUNT = re.compile(r"[1-9]\d{0,8}")
_RATE = re.compile(r"\d{1,6}(\.\d{1,17})?")


@dataclass(frozen=True, slots=True)
class Fact:
    """How one fact is written and read: `read` raises ValueError for what cannot be one."""

    option: str
    wanted: str
    example: str
    get: Callable[[Machine], Any]
    put: Callable[[Machine, Any], Machine]
    write: Callable[[Any], str]
    read: Callable[[str], Any]


def _field(name: str) -> tuple[Callable[[Machine], Any], Callable[[Machine, Any], Machine]]:
    return (lambda m: getattr(m, name)), (lambda m, value: replace(m, **{name: value}))


def _read_size(text: str) -> int:
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return int(found[1]) * _UNITS[found[2]]


def _read_count(text: str) -> int:
    if _COUNT.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)


def _read_rate(text: str) -> float:
    if _RATE.fullmatch(text) is None or float(text) <= 0:
        raise ValueError(text)
    return float(text)


def _rate_text(rate: float) -> str:
    return repr(float(rate)).removesuffix(".0")


def _three(read: Callable[[str], T]) -> Callable[[str], tuple[T, T, T]]:
    def read_three(text: str) -> tuple[T, T, T]:
        first, middle, last = map(read, text.split(","))
        return first, middle, last

    return read_three


def _joined(write: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda values: ",".join(map(write, values))


def _put_in_caches(name: str) -> Callable[[Machine, Any], Machine]:
    def put(machine: Machine, values: Any) -> Machine:
        pairs = zip(machine.caches, values, strict=True)
        first, middle, last = (replace(c, **{name: value}) for c, value in pairs)
        return replace(machine, caches=(first, middle, last))

    return put


def _put_sharing(machine: Machine, shared: tuple[int, int, int]) -> Machine:
    """Change how many cores share a cache; one core's part of level 2 stays as large."""
    changed = _put_in_caches("shared_by")(machine, shared)
    return changed.with_sizes(machine.sizes)


def _read_dots(text: str) -> tuple[DotRate, ...]:
    rates = []
    for part in text.split(",") if text != "none" else ():
        types, _, rate = part.partition(":")
        a, _, b = types.partition("*")
        if a not in NAMES or b not in NAMES:
            raise ValueError(text)
        rates.append((a, b, _read_rate(rate)))
    return tuple(rates)


def _dot_text(rates: tuple[DotRate, ...]) -> str:
    return ",".join(f"{a}*{b}:{_rate_text(rate)}" for a, b, rate in rates) or "none"


def _count(name: str, example: str) -> Fact:
    get, put = _field(name)
    return Fact(_option(name), "a whole number", example, get, put, str, _read_count)


def _rate(name: str, example: str) -> Fact:
    get, put = _field(name)
    return Fact(_option(name), "a number above 0", example, get, put, _rate_text, _read_rate)


def _bytes(name: str, example: str) -> Fact:
    get, put = _field(name)
    return Fact(_option(name), "a number of bytes", example, get, put, size_text, _read_size)


def _option(name: str) -> str:
    return name.replace("_", "-")


FACTS = (
    Fact(
        "caches",
        "the sizes of three levels of cache",
        "32K,1M,32M",
        lambda m: m.sizes,
        lambda m, sizes: m.with_sizes(sizes),
        str,
        lambda text: CacheSizes(*_three(_read_size)(text)),
    ),
    Fact(
        "caches-shared-by",
        "how many cores share each of three levels of cache",
        "1,1,8",
        lambda m: tuple(c.shared_by for c in m.caches),
        _put_sharing,
        _joined(str),
        _three(_read_count),
    ),
    Fact(
        "caches-bytes-per-cycle",
        "what a core reads from each of three levels of cache",
        "64,22,16",
        lambda m: tuple(c.bytes_per_cycle for c in m.caches),
        _put_in_caches("bytes_per_cycle"),
        _joined(_rate_text),
        _three(_read_rate),
    ),
    _count("fma_units", "2"),
    _count("fma_bits", "256"),
    _count("fma_latency", "4"),
    _count("loads_per_cycle", "2"),
    _count("load_bits", "256"),
    _count("stores_per_cycle", "1"),
    _count("store_bits", "256"),
    _count("vector_issue", "4"),
    _count("fill_buffers", "12"),
    _rate("iteration_cycles", "1.0"),
    _bytes("line_bytes", "64"),
    _bytes("fetch_bytes", "128"),
    _bytes("page_bytes", "4K"),
    _rate("memory_bytes_per_cycle", "8"),
    _count("memory_latency", "500"),
    _rate("remote_bytes_per_cycle", "6"),
    _count("remote_latency", "300"),
    _count("fork_cycles", "3000"),
    Fact(
        "dot-rates",
        "types and products for a lane, or none",
        "uint8*int8:4,bfloat16*bfloat16:2",
        *_field("dot_rates"),
        _dot_text,
        _read_dots,
    ),
    _bytes("stack_bytes", "8K"),
    _count("last_caches", "2"),
)
"""In the order in which they are applied and printed."""

_BY_OPTION = {fact.option: fact for fact in FACTS}
OPTIONS = tuple(_BY_OPTION)


def options_of(machine: Machine, row: Machine) -> list[str]:
    """Return the options in which a machine differs from the row of its CPU."""
    return [
        f"-{fact.option}={fact.write(fact.get(machine))}"
        for fact in FACTS
        if fact.get(machine) != fact.get(row)
    ]


def with_options(machine: Machine, options: Mapping[str, str], at: str) -> Machine:
    """Return a machine with the facts that options of a target string give it.

    Raises: TargetError for a value that cannot be the fact's.
    """
    for fact in FACTS:
        if fact.option in options:
            machine = fact.put(machine, _value(fact, options[fact.option], at))
    return machine


def _value(fact: Fact, text: str, at: str) -> Any:
    try:
        return fact.read(text)
    except ValueError:
        raise TargetError(
            f"-{fact.option}={text} is not {fact.wanted}",
            at=at,
            hint=f"write -{fact.option}={fact.example}",
        ) from None
