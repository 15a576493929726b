"""What a worker process does with its socket: it answers one message after the other.

`workerprocess.py` has the other end. This module loads little, because it delays the start of each worker.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from struct import Struct
from typing import Final

READY: Final = b"ready"
"""The first message of a worker."""
HEADER: Final = Struct(">Q")
"""The length prefix of each message."""


def serve(answered: Callable[[bytes], bytes]) -> None:
    """Answer the messages of the parent until it closes the socket."""
    with socket.socket(fileno=0) as parent:
        _send(parent, READY)
        while header := _received(parent, HEADER.size):
            _send(parent, answered(_received(parent, HEADER.unpack(header)[0])))


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
