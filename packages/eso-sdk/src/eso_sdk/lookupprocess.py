"""The process for expensive lookups of properties: it reads one job after the other and answers each.

It inherits one socket and holds no credentials. It is ended from outside: by the parent at the deadline, by its own
alarm if the parent cannot, and by the kernel if the parent ends.
"""

from __future__ import annotations

import signal
from typing import Final

import msgspec

from eso_sdk.lookups import CALL_SECONDS, Job, Outcome, perform
from kubebase.workerserving import confine, serve

_MEMORY: Final = 192 * 2**20
_GRACE: Final = 1.0


def main() -> None:
    """Serve until the parent closes the socket, which is this process's standard input."""
    confine(_MEMORY)
    serve(_run_job)


def _run_job(raw: bytes) -> bytes:
    signal.setitimer(signal.ITIMER_REAL, CALL_SECONDS + _GRACE)
    try:
        outcome = perform(msgspec.msgpack.decode(raw, type=Job))
    except MemoryError:
        outcome = Outcome(problem="it needs more memory than a lookup may take; split the value")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return msgspec.msgpack.encode(outcome)


if __name__ == "__main__":
    main()
