# SPDX-License-Identifier: Apache-2.0
"""Frames of the RPC protocol through ctypes: long ones, sent by the native library."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from ctypes import c_char_p, c_size_t, c_void_p
from dataclasses import dataclass

import numpy as np

from treadle.runtime.native import library


@dataclass(frozen=True)
class LongFrame:
    """What is before a frame's blob, the blob, and the key of the code that follows; None: none."""

    start: bytes
    blob: bytes | bytearray | memoryview
    key: bytes | None


class _CFrame(ctypes.Structure):
    """td_frame."""

    _fields_ = [
        ("start", c_char_p),
        ("start_bytes", c_size_t),
        ("blob", c_void_p),
        ("blob_bytes", c_size_t),
        ("key", c_char_p),
    ]


class _CFramesSent(ctypes.Structure):
    """td_frames_sent."""

    _fields_ = [("frames", c_size_t), ("bytes", c_size_t)]


def send_frames(descriptor: int, frames: Sequence[LongFrame], seconds: float | None) -> None:
    """Send frames over a socket, waiting up to `seconds` for each step.

    Raises: TimeoutError, OSError. Nothing can be sent after that, nor when a signal's handler
    raises: part of a frame is on its way.
    """
    function = library().td_send_frames
    made = (_CFrame * len(frames))(*map(_c_frame, frames))
    sent = _CFramesSent()
    limit = -1 if seconds is None else min(round(seconds * 1000), 2**31 - 1)
    while code := function(descriptor, made, len(frames), limit, ctypes.addressof(sent)):
        if code != errno.EINTR:  # then Python calls the signal's handler, and it goes on
            raise OSError(code, os.strerror(code))


def _c_frame(frame: LongFrame) -> _CFrame:
    size = len(frame.blob)
    blob = np.frombuffer(frame.blob, np.uint8).__array_interface__["data"][0] if size else None
    return _CFrame(frame.start, len(frame.start), blob, size, frame.key)
