"""Checks and issues certificates in a process of its own.

    ReviewRequest -> process (`workerprocess.py`) -> Review

Certificates are issued rarely, and cryptography takes 11 MB of each process that loads it. So the operator starts a
process when certificates have changed or are due, and ends it when it has been idle for a while. Keys travel through
its socket only. The process does no other work: unlike the processes for templates, it never sees tenants' values.

Messages contain private keys, so no repr shows them.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Final

import msgspec

from eso_operator.certificates.state import Identity, Lifetimes, Phase
from kubebase.workerprocess import NotStartedError, Worker

_MODULE: Final = "eso_operator.certificates.workerprocess"
_START_SECONDS: Final = 30.0
_SECONDS: Final = 30.0
"""Time for one response. It takes milliseconds on an idle machine."""
_IDLE_SECONDS: Final = 10.0
_RESPONSE_BYTES: Final = 4 * 2**20
"""A response has the content of three Secrets at most, each smaller than 1 MiB."""


class SecretContent(msgspec.Struct, frozen=True):
    """The content of one Secret, and the time of its last change as it is written there."""

    data: dict[str, bytes]
    written_at: str

    def __repr__(self) -> str:
        return "SecretContent(<secret>)"


class ReviewRequest(msgspec.Struct, frozen=True):
    """The existing Secrets of one Service by part, and what their certificates must be like."""

    stored: dict[str, SecretContent]
    now: datetime
    lifetimes: Lifetimes
    identity: Identity


class Review(msgspec.Struct, frozen=True):
    """The new content of Secrets. Without steps nothing changed, and nothing will before `due` unless a Secret changes.

    `steps` are pairs of a name and a reason. `changed` are the Secrets to write, by part. `expires_at` is that of the
    leaf that expires first.
    """

    steps: tuple[tuple[str, str], ...]
    due: datetime
    changed: dict[str, SecretContent] = msgspec.field(default_factory=dict)
    phase: Phase | None = None
    expires_at: datetime | None = None


class ReviewResponse(msgspec.Struct, frozen=True):
    """A review, or the type of the error that prevented it."""

    review: Review | None = None
    error: str = ""


class CertificateWorkerError(Exception):
    """The process did not respond. The message quotes nothing of the request."""


class CertificateWorker:
    """Reviews certificates in a process, which is started for a request and reused while more requests follow."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()
        self._idle: list[Worker] = []

    async def review(self, request: ReviewRequest) -> Review:
        """Return what is to be done with these certificates. Raises CertificateWorkerError."""
        async with self._one_at_a_time:
            raw = await self._exchange(msgspec.msgpack.encode(request))
        try:
            response = msgspec.msgpack.decode(raw, type=ReviewResponse)
        except msgspec.DecodeError:
            raise CertificateWorkerError("the process for certificates sent an invalid response") from None
        if response.review is None:
            raise CertificateWorkerError(f"the process for certificates failed ({response.error})")
        return response.review

    async def _exchange(self, message: bytes) -> bytes:
        worker = self._idle.pop() if self._idle else await _start()
        worker.cancel_end()
        try:
            async with asyncio.timeout(_SECONDS):
                raw = await worker.exchange(message)
        except TimeoutError:
            worker.end()
            problem = f"the process for certificates took longer than {_SECONDS:g} seconds"
            raise CertificateWorkerError(problem) from None
        except (OSError, EOFError):
            worker.end()
            raise CertificateWorkerError("the process for certificates ended, most likely for want of memory") from None
        except BaseException:
            worker.end()
            raise
        self._idle.append(worker)
        worker.end_after(_IDLE_SECONDS, self._idle)
        return raw


async def _start() -> Worker:
    try:
        return await Worker.started(_MODULE, max_response_bytes=_RESPONSE_BYTES, within=_START_SECONDS)
    except NotStartedError as problem:
        raise CertificateWorkerError(f"no process for certificates can be started: {problem}") from None
