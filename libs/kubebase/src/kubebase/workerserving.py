"""The side of the worker process: it responds to one message after the other.

`workerprocess.py` has the other end. This module loads little, because it delays the start of each worker.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Final

READY: Final = b"ready"
"""The first message of a worker."""
HEADER: Final = Struct(">Q")
"""The length prefix of each message."""


def serve(respond: Callable[[bytes], bytes]) -> None:
    """Respond to the messages of the parent until it closes the socket."""
    with socket.socket(fileno=0) as parent:
        _send(parent, READY)
        while header := _received(parent, HEADER.size):
            _send(parent, respond(_received(parent, HEADER.unpack(header)[0])))


def confine(memory: int) -> None:
    """Bound this process to its memory, and to what the other processes leave of the processors."""
    with contextlib.suppress(OSError):
        # If memory runs out, the kernel should kill this process rather than its parent.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    with contextlib.suppress(OSError, AttributeError):  # not every system has this class of scheduling
        # Work for one namespace must not delay the work for the others, for which this process's parent wakes often.
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    for limit, value in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        with contextlib.suppress(ValueError, OSError):  # a stricter limit is in force already
            resource.setrlimit(limit, (value, value))


def _send(parent: socket.socket, message: bytes) -> None:
    parent.sendall(HEADER.pack(len(message)) + message)


def _received(parent: socket.socket, size: int) -> bytes:
    """Receive that many bytes; none if the parent has closed the socket."""
    parts = bytearray()
    while len(parts) < size:
        part = parent.recv(min(size - len(parts), 2**20))
        if not part:
            return b""
        parts += part
    return bytes(parts)
