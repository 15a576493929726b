"""Smaller read buffers for TLS connections of asyncio.

asyncio gives each TLS connection a buffer of 256 KiB, filled with zeros. An operator keeps a connection for each kind
that it watches, most of them idle: that was 20 MB. A TLS record has at most 16 KiB and some bytes, so this buffer still
reads each record of a long answer in one piece.
"""

from __future__ import annotations

from asyncio import sslproto
from typing import Any, Final

READ_BUFFER_BYTES: Final = 17 * 1024


def shrink_tls_buffers() -> None:
    """Let all later TLS connections of this process have small read buffers. Call it before the first one."""
    protocol: Any = sslproto.SSLProtocol  # the attribute is not in the type stubs
    protocol.max_size = READ_BUFFER_BYTES
