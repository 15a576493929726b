"""The process that checks and issues certificates: it responds to one request after the other.

It inherits only one socket from its parent and writes no files, core dumps included. It is ended from outside: by the
parent when it is idle or late, by its own alarm if the parent cannot, and by the kernel if the parent ends.
"""

from __future__ import annotations

import contextlib
import resource
import signal
from pathlib import Path
from typing import Final

import msgspec

from eso_operator.certificates.issuance import review
from eso_operator.certificates.worker import ReviewRequest, ReviewResponse
from kubebase.workerserving import serve

_SECONDS: Final = 60
"""Longer than the parent waits."""


def main() -> None:
    """Serve until the parent closes the socket, which is this process's standard input."""
    with contextlib.suppress(OSError):
        # If memory runs out, the kernel should kill this process rather than the operator, which retries.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        with contextlib.suppress(ValueError, OSError):  # a stricter limit is in force already
            resource.setrlimit(limit, (0, 0))
    serve(_respond)


def _respond(raw: bytes) -> bytes:
    signal.alarm(_SECONDS)
    try:
        response = ReviewResponse(review(msgspec.msgpack.decode(raw, type=ReviewRequest)))
    except Exception as error:  # noqa: BLE001 - reported to the parent, by its type only: its text might quote content
        response = ReviewResponse(error=type(error).__name__)
    finally:
        signal.alarm(0)
    return msgspec.msgpack.encode(response)


if __name__ == "__main__":
    main()
