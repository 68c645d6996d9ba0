# SPDX-License-Identifier: Apache-2.0
"""Devices over a network: sessions on them, the tracker that lends them, the server they run."""

from treadle.rpc.client import Session, connect
from treadle.rpc.tracking import TrackerSession, connect_tracker

__all__ = ["Session", "TrackerSession", "connect", "connect_tracker"]
