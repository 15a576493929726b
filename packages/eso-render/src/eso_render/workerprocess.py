"""The process that computes what may be slow: reads one job after the other, answers each.

It begins with nothing of its parent but one socket, holds no credentials, writes no files, and is ended from outside:
by the parent at the deadline, by its own alarm should the parent not be able to, and by the kernel with the parent.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
from pathlib import Path
from typing import Final

from eso_render.errors import RenderError
from eso_render.jobs import HEADER, READY, Answer, Budget, Job
from eso_render.passing import packed, unpacked

_OUR_PACKAGES: Final = ("eso_", "gotmpl")
_GRACE: Final = 1.0
_NO_MEMORY: Final = "the templates need more memory than a template may take; use fewer or smaller values"


def main(memory: int) -> None:
    """Serve until the parent closes the socket, which is this process's standard input."""
    _confine(memory)
    with socket.socket(fileno=0) as parent:
        _send(parent, READY)
        while header := _received(parent, HEADER.size):
            raw = _received(parent, HEADER.unpack(header)[0])
            _send(parent, _answered(raw))


def _answered(raw: bytes) -> bytes:
    try:
        job: Job = unpacked(raw)
        signal.setitimer(signal.ITIMER_REAL, job.seconds + _GRACE)
        return packed(Answer(job.work(render=Budget(job))))
    except MemoryError:
        return packed(Answer(problem=RenderError(_NO_MEMORY, phase="execute")))
    except Exception as problem:  # noqa: BLE001 - told to the parent, which raises it
        return packed(Answer(problem=_told(problem)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _told(problem: Exception) -> Exception:
    """Our own errors speak of no value. Of all others only the kind is told."""
    if type(problem).__module__.startswith(_OUR_PACKAGES):
        return problem
    return RenderError(f"internal error ({type(problem).__name__})", phase="execute")


def _confine(memory: int) -> None:
    with contextlib.suppress(OSError):
        # Where memory is short, this process is to go, and not the one with the work of everybody.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    os.nice(5)
    for limit, value in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        with contextlib.suppress(ValueError, OSError):  # a stricter limit is in force already
            resource.setrlimit(limit, (value, value))


def _send(parent: socket.socket, message: bytes) -> None:
    parent.sendall(HEADER.pack(len(message)) + message)


def _received(parent: socket.socket, size: int) -> bytes:
    """So many bytes; none when the parent is gone."""
    parts = bytearray()
    while len(parts) < size:
        part = parent.recv(min(size - len(parts), 2**20))
        if not part:
            return b""
        parts += part
    return bytes(parts)


if __name__ == "__main__":
    main(int(sys.argv[1]))
