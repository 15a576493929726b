"""A worker process of ours, and the socket between it and this process.

    Worker.started("package.module", ["argument"]) -> exchange(message) -> response, ... -> end()

The worker runs a module of ours, which calls `workerserving.serve`. It inherits one socket, as its standard input, and
a few environment variables without credentials; messages go through the socket and nowhere else. It ends with this
process. The caller sets deadlines and ends a worker that missed one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Sequence
from typing import Final

from kubebase.children import bound_to_parent
from kubebase.workerserving import HEADER, READY

_ENVIRONMENT: Final = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "TZDIR")
"""The only environment variables that a worker receives: the others may contain credentials."""


class NotStartedError(Exception):
    """No worker can be started; the text says why."""


class Worker:
    """One process and our end of its socket. It ends with this object."""

    @classmethod
    async def started(
        cls, module: str, arguments: Sequence[str] = (), *, max_response_bytes: int, within: float
    ) -> Worker:
        """Start a process and wait until it is ready. Raises NotStartedError."""
        try:
            worker = cls(module, arguments, max_response_bytes=max_response_bytes)
        except OSError as problem:
            raise NotStartedError(problem.strerror) from None
        try:
            async with asyncio.timeout(within):
                if await worker.receive() == READY:
                    return worker
        except (OSError, EOFError, TimeoutError):
            pass
        except BaseException:
            worker.end()
            raise
        worker.end()
        raise NotStartedError("it ended, or did not respond")

    def __init__(self, module: str, arguments: Sequence[str] = (), *, max_response_bytes: int) -> None:
        """Start the process. A longer response than `max_response_bytes` is refused. Raises OSError."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)  # noqa: FBT003 - the socket module's own
        self._socket = ours
        self._max_response_bytes = max_response_bytes
        command = [sys.executable, "-I", "-m", module, *arguments]
        try:
            process = subprocess.Popen(  # noqa: S603 - our own module
                bound_to_parent(command, signal.SIGKILL),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
                cwd="/",
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._ending: asyncio.TimerHandle | None = None
        self._process = process
        self._end = weakref.finalize(self, _end, process, ours)

    def end(self) -> int:
        """End the process and return its exit status; a negative one is the signal that ended it first."""
        self._end()
        return self._process.wait()

    async def exchange(self, message: bytes) -> bytes:
        """Send a message and return its response. Raises OSError and EOFError if the worker has ended."""
        await asyncio.get_running_loop().sock_sendall(self._socket, HEADER.pack(len(message)) + message)
        return await self.receive()

    async def receive(self) -> bytes:
        (size,) = HEADER.unpack(await self._exactly(HEADER.size))
        if size > self._max_response_bytes:
            raise EOFError
        return await self._exactly(size)

    async def _exactly(self, size: int) -> bytes:
        loop, parts = asyncio.get_running_loop(), bytearray()
        while len(parts) < size:
            part = await loop.sock_recv(self._socket, min(size - len(parts), 2**20))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)

    def cancel_end(self) -> None:
        """Cancel `end_after`."""
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None

    def end_after(self, seconds: float, idle: list[Worker]) -> None:
        """End after this time, and remove this worker from the idle ones, unless `cancel_end` is called before."""

        def end_now() -> None:
            idle.remove(self)
            self.end()

        self._ending = asyncio.get_running_loop().call_later(seconds, end_now)


def _end(process: subprocess.Popen[bytes], ours: socket.socket) -> None:
    ours.close()
    process.kill()
    process.wait()
