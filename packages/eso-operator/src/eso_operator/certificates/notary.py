"""Checks and issues certificates in a process of its own.

    Question -> process -> Review

Certificates are issued rarely, and cryptography takes 11 MB of each process that loads it. So the operator starts a
process when certificates have changed or are due, and ends it when it has been idle for a while. Keys travel through
its socket only. The process does no other work: unlike the processes for templates, it never sees tenants' values.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

import msgspec

from eso_operator.certificates.review import Answer, Question, Review
from kubebase.workerprocess import NotStartedError, Worker

_MODULE: Final = "eso_operator.certificates.notaryprocess"
_START_SECONDS: Final = 30.0
_SECONDS: Final = 30.0
"""Time for one answer. It takes milliseconds on an idle machine."""
_IDLE_SECONDS: Final = 10.0
_ANSWER_BYTES: Final = 4 * 2**20
"""An answer has the content of three Secrets at most, each smaller than 1 MiB."""


class NotaryError(Exception):
    """The process did not answer. The message quotes nothing of the question."""


class Notary(Protocol):
    """Reviews certificates."""

    async def review(self, question: Question) -> Review:
        """Answer the question. Raises NotaryError."""
        ...


class ProcessNotary:
    """A notary in a process, which is started for a question and reused while more questions follow."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()
        self._idle: list[Worker] = []

    async def review(self, question: Question) -> Review:
        async with self._one_at_a_time:
            raw = await self._answered(msgspec.msgpack.encode(question))
        try:
            answer = msgspec.msgpack.decode(raw, type=Answer)
        except msgspec.DecodeError:
            raise NotaryError("the process for certificates sent no valid answer") from None
        if answer.review is None:
            raise NotaryError(f"the process for certificates failed ({answer.error})")
        return answer.review

    async def _answered(self, message: bytes) -> bytes:
        worker = self._idle.pop() if self._idle else await _started()
        worker.cancel_end()
        try:
            async with asyncio.timeout(_SECONDS):
                raw = await worker.exchange(message)
        except TimeoutError:
            worker.end()
            raise NotaryError(f"the process for certificates took longer than {_SECONDS:g} seconds") from None
        except (OSError, EOFError):
            worker.end()
            raise NotaryError("the process for certificates ended, most likely for want of memory") from None
        except BaseException:
            worker.end()
            raise
        self._idle.append(worker)
        worker.end_after(_IDLE_SECONDS, self._idle)
        return raw


async def _started() -> Worker:
    try:
        return await Worker.started(_MODULE, max_response_bytes=_ANSWER_BYTES, within=_START_SECONDS)
    except NotStartedError as problem:
        raise NotaryError(f"no process for certificates can be started: {problem}") from None
