# SPDX-License-Identifier: Apache-2.0
"""Reads the values of variables from a checkpoint: a table of entries, and files of bytes.

NAME.index is a sorted table of keys in LevelDB's format
(https://github.com/google/leveldb/blob/main/doc/table_format.md); each value says in which of the
files NAME.data-00000-of-00001 a tensor's bytes are, and where. The table's checksums are compared,
those of tensors are not.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.inputs import mapped_file
from treadle.frontend.protobuf import Message
from treadle.frontend.tensorflow.tensors import (
    check_numbers,
    dtype_of,
    known_shape,
    stored_array,
)

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_TRAILER = 5
"""The bytes behind a block: how it is compressed, and its checksum."""

_MOST_ENTRIES = 1 << 20
_MOST_SHARDS = 1 << 16
_KIND = "a checkpoint"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The tensors of a checkpoint by key, read where they are asked for."""

    folder: Path
    name: str
    shards: int
    entries: Mapping[str, Message]
    _files: dict[int, memoryview] = field(default_factory=dict)

    def tensor(self, key: str) -> np.ndarray:
        """Return a tensor as a view of its file. Raises ModelError for one that is not there."""
        entry = self.entries.get(key)
        if entry is None:
            raise ModelError(
                f"the variable {key!r} is read, but the model has no value of it",
                hint="check that the folder `variables` is complete",
            )
        try:
            return self._read(entry)
        except ModelError as e:
            raise ModelError(f"the variable {key!r}: {e.problem}", hint=e.hint) from None

    def _read(self, entry: Message) -> np.ndarray:
        dtype = check_numbers(dtype_of(entry.integer(1)), "it")
        shape = known_shape(entry.message(2) or Message(entry.data[:0], _KIND))
        if entry.has(7):
            raise ModelError("it is stored in slices, which is not supported")
        shard, offset, size = (entry.integer(k) for k in (3, 4, 5))
        data = self._shard(shard)
        if offset < 0 or size < 0 or offset + size > len(data):
            raise ModelError(f"its {size} bytes at {offset} are not inside {len(data)} bytes")
        if size < prod(shape):
            raise ModelError(f"{size} bytes are stored for {dtype}{list(shape)}")
        return stored_array(data[offset : offset + size], dtype, shape)

    def _shard(self, number: int) -> memoryview:
        if not 0 <= number < self.shards:
            raise ModelError(f"it is in file {number} of {self.shards}")
        if number not in self._files:
            name = f"{self.name}.data-{number:05d}-of-{self.shards:05d}"
            self._files[number] = mapped_file(_inside(self.folder, name), "a file of variables")
        return self._files[number]


def open_checkpoint(folder: Path, name: str) -> Checkpoint:
    """Return the checkpoint `name` of a folder: one without tensors where there is none.

    Raises: ModelError where it is damaged, or a link that leads out of the folder's parent.
    """
    if not (folder / f"{name}.index").exists():
        return Checkpoint(folder, name, 0, {})
    path = _inside(folder, f"{name}.index")
    entries = dict(_entries(mapped_file(path, "a checkpoint's index")))
    header = Message(entries.pop("", memoryview(b"")), _KIND)
    shards = header.integer(1)
    if not 0 < shards <= _MOST_SHARDS or header.integer(2):
        raise ModelError(f"the checkpoint has {shards} files, or its numbers are big-endian")
    return Checkpoint(folder, name, shards, {k: Message(v, _KIND) for k, v in entries.items()})


def _inside(folder: Path, name: str) -> Path:
    """Return a regular file of a folder. Raises ModelError for one that lies elsewhere."""
    path = folder / name
    model = folder.parent.resolve()
    if not path.resolve().is_relative_to(model):
        raise ModelError(f"the file {name!r} of the model is a link that leads out of its folder")
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        raise ModelError(f"the file {name!r} of the model is no regular file")
    return path


def _entries(data: memoryview) -> Iterator[tuple[str, memoryview]]:
    """Yield keys and values of a table."""
    if len(data) < _FOOTER or int.from_bytes(data[-8:], "little") != _MAGIC:
        raise ModelError("the checkpoint's index is damaged: it does not end as a table does")
    footer = data[-_FOOTER:-8]
    at = 0
    for _ in range(2):  # the block of filters, which none are written to
        _, at = _varint(footer, at)
    offset, at = _varint(footer, at)
    size, _ = _varint(footer, at)
    count = 0
    for _, handle in _block(data, offset, size):
        begin, at = _varint(handle, 0)
        length, _ = _varint(handle, at)
        for key, value in _block(data, begin, length):
            count += 1
            if count > _MOST_ENTRIES:
                raise ModelError(f"the checkpoint has more than {_MOST_ENTRIES} entries")
            try:
                yield key.decode("utf-8"), value
            except UnicodeDecodeError:
                raise ModelError("a key of the checkpoint is no text") from None


def _block(data: memoryview, offset: int, size: int) -> Iterator[tuple[bytes, memoryview]]:
    """Yield keys and values of a block: each key is a part of the one before it and more bytes."""
    end = offset + size
    if end + _TRAILER > len(data) or size < 4:
        raise ModelError(f"the checkpoint's index is damaged: no block of {size} bytes at {offset}")
    if data[end]:
        raise ModelError("the checkpoint's index is compressed, which is not supported")
    _check_sum(data[offset : end + _TRAILER])
    block = data[offset:end]
    restarts = int.from_bytes(block[-4:], "little")
    last = size - 4 * (restarts + 1)
    if last < 0:
        raise ModelError(f"the checkpoint's index is damaged: {restarts} restarts in {size} bytes")
    key, at = b"", 0
    while at < last:
        shared, at = _varint(block, at)
        fresh, at = _varint(block, at)
        length, at = _varint(block, at)
        if shared > len(key) or at + fresh + length > last:
            raise ModelError("the checkpoint's index is damaged: an entry is not inside its block")
        key = key[:shared] + bytes(block[at : at + fresh])
        at += fresh + length
        yield key, block[at - length : at]


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ModelError("the checkpoint's index is damaged: a number does not end")


def _check_sum(block: memoryview) -> None:
    """Compare the masked checksum behind a block and how it is compressed."""
    stored = int.from_bytes(block[-4:], "little")
    found = _crc32c(block[:-4])
    masked = ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF
    if stored != masked:
        raise ModelError("the checkpoint's index is damaged: a checksum does not fit")


@cache
def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


def _crc32c(data: memoryview) -> int:
    """Return the CRC-32C (Castagnoli) of some bytes."""
    table, crc = _crc_table(), 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
