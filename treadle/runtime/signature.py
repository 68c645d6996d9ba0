# SPDX-License-Identifier: Apache-2.0
"""What a caller must know of a kernel: its buffers, the sizes it takes, its scratch memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from treadle.errors import InputError, UsageError
from treadle.runtime.extents import Extent

Json = dict[str, object]


@dataclass(frozen=True)
class Param:
    """One buffer parameter of a kernel; a size is an int, the name of a symbol, or computed."""

    name: str
    dtype: str
    shape: tuple[int | str | Extent, ...]
    is_output: bool = False

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Signature:
    """What a kernel takes.

    `params` are its buffers in order (inputs, outputs); `symbols` the sizes it takes in `dims`, in
    order; `workspace_bytes` the scratch memory it is given after the last buffer (0: none).
    """

    name: str
    params: tuple[Param, ...]
    workspace_bytes: int | Extent = 0
    symbols: tuple[str, ...] = ()

    def __str__(self) -> str:
        params = ", ".join(f"{p.name}: {p}{' out' if p.is_output else ''}" for p in self.params)
        return f"{self.name}({params})"

    def __post_init__(self) -> None:
        for symbol in sorted(self._named - set(self.symbols)):
            raise UsageError(f"kernel {self.name} does not list the size {symbol!r} it uses")

    @property
    def _named(self) -> set[str]:
        return {size for p in self.params for size in p.shape if isinstance(size, str)}

    def hidden_sizes(self) -> list[str]:
        """Return the sizes that no shape of an argument tells: a caller has to give them."""
        solved = {self.symbols[size] for size, _, _ in self.solving_order()}
        return [s for s in self.symbols if s not in self._named | solved]

    def solving_order(self) -> list[tuple[int, int, int]]:
        """Return how sizes that stand in no shape by themselves follow from computed extents.

        One (size, parameter, axis) per such size, each after those its extent is made of.
        """
        known = {self.symbols.index(s) for s in self._named}
        computed = [
            (extent, place, axis)
            for place, param in enumerate(self.params)
            for axis, extent in enumerate(param.shape)
            if isinstance(extent, Extent)
        ]
        order: list[tuple[int, int, int]] = []
        found = True
        while found:
            found = False
            for extent, place, axis in computed:
                fresh = extent.sizes - known
                if len(fresh) == 1 and extent.is_linear_in(min(fresh)):
                    order.append((min(fresh), place, axis))
                    known |= fresh
                    found = True
        return order

    def dims(self, sizes: Mapping[str, int]) -> list[int]:
        """Return the sizes in the kernel's order.

        Raises: InputError when one is missing, unknown, or less than 0.
        """
        for name, size in sizes.items():
            if name not in self.symbols:
                names = ", ".join(self.symbols) or "none"
                raise InputError(f"kernel {self.name} has no size {name!r}; its sizes are {names}")
            if size < 0:
                raise InputError(f"size {name!r} of kernel {self.name} is {size}")
        missing = [name for name in self.symbols if name not in sizes]
        if missing:
            given = ", ".join(f"{name!r}: 1" for name in self.symbols)
            raise InputError(
                f"size {missing[0]!r} of kernel {self.name} is not given",
                hint=f"say what it is: sizes={{{given}}}",
            )
        return [sizes[name] for name in self.symbols]

    def shapes(self, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
        """Return the shape of every parameter. Raises: InputError as `dims`."""
        dims = self.dims(sizes)

        def number(size: int | str | Extent) -> int:
            if isinstance(size, Extent):
                return size.of(dims)
            return sizes[size] if isinstance(size, str) else size

        return [tuple(map(number, p.shape)) for p in self.params]

    def to_json(self) -> Json:
        """Return it as JSON, without the name."""
        return {
            "params": [
                {
                    "name": p.name,
                    "dtype": p.dtype,
                    "shape": [_extent_to_json(d) for d in p.shape],
                    "is_output": p.is_output,
                }
                for p in self.params
            ],
            "workspace_bytes": _extent_to_json(self.workspace_bytes),
            "symbols": list(self.symbols),
        }

    @classmethod
    def from_json(cls, name: str, data: object) -> Signature:
        """Return what `to_json` wrote. Raises: TypeError, KeyError, ValueError for other data."""
        row = _dict(data)
        params = tuple(map(_param_from_json, _list(row["params"])))
        workspace = _extent_from_json(row["workspace_bytes"])
        if isinstance(workspace, str):
            raise TypeError(f"{workspace!r} is no number of bytes")
        return cls(name, params, workspace, tuple(map(str, _list(row["symbols"]))))


def _extent_to_json(extent: int | str | Extent) -> object:
    if isinstance(extent, Extent):
        return {"text": extent.text, "formula": extent.formula}
    return extent


def _extent_from_json(data: object) -> int | str | Extent:
    if isinstance(data, (int, str)):
        return data
    row = _dict(data)
    return Extent(row["text"], row["formula"])  # type: ignore[arg-type]  # checked when it is used


def _param_from_json(data: object) -> Param:
    row = _dict(data)
    shape = tuple(map(_extent_from_json, _list(row["shape"])))
    return Param(str(row["name"]), str(row["dtype"]), shape, bool(row["is_output"]))


def _dict(data: object) -> Json:
    if not isinstance(data, dict):
        raise TypeError(f"{data!r} is no object")
    return data


def _list(data: object) -> Sequence[object]:
    if not isinstance(data, list):
        raise TypeError(f"{data!r} is no list")
    return data
