"""The receiver of one queue under one identity: it runs while a subscription is open and deletes settled messages.

If the queue is missing or access is denied, the receiver waits ten minutes before it tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import structlog

from eso_provider_aws.api import Api
from eso_provider_aws.changes.looks import PASSING
from eso_provider_aws.changes.queue import Listener, Queue
from eso_provider_aws.changes.topics import Topics
from eso_sdk.errors import invalid_config
from eso_wire.errors import ErrorReason, ProviderError

_log = structlog.get_logger("eso_provider_aws.changes")

WAIT_SECONDS: Final = 10
"""The long-poll time of SQS: six calls a minute while nothing changes. Shorter than the client's timeout."""
VISIBILITY_SECONDS: Final = 120
"""Acknowledgements come about once a minute."""
BATCH: Final = 10
FAILURE_PAUSES: Final = (1.0, 2.0, 5.0, 15.0, 30.0)
MAX_FAILURES: Final = 5
REFUSED_SECONDS: Final = 600.0

_MISSING: Final = frozenset({"QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", "NonExistentQueue"})


class Consumer:
    """One identity at one queue."""

    def __init__(self, queue: Queue, url: str, api: Api) -> None:
        self.queue = queue
        self.api = api
        self.users = 0
        """The number of stores that may listen."""
        self.trouble: ProviderError | None = None
        """The error of the queue, if any."""
        self._url = url
        self._about = f'queue "{url.rpartition("/")[2]}"'
        self._refused_until = float("-inf")
        self._proven = False
        self._streams = 0
        self._task: asyncio.Task[None] | None = None
        self._proving = asyncio.Lock()

    async def prove(self) -> None:
        """Receive once without consuming a message, to prove that this identity may read the queue."""
        async with self._proving:
            if self.trouble is not None and self.api.clock.monotonic() < self._refused_until:
                raise self.trouble.with_traceback(None)
            if not self._proven:
                try:
                    await self._received(most=1, wait=0, hidden=0)
                except ProviderError as failed:
                    raise self._refused(failed) from None
                self.trouble, self._proven = None, True

    @contextmanager
    def listening(self, listener: Listener, topics: Topics) -> Iterator[None]:
        """Receive inside the block. When the last listener leaves, a receive call in progress is completed."""
        with self.queue.listening(listener, topics):
            self._streams += 1
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._run())
                self._task.add_done_callback(self._ended)
            try:
                yield
            finally:
                self._streams -= 1

    def check(self) -> None:
        """Raise the error that ended the receiver, if any."""
        if self._task is not None and self._task.done() and (failed := self._task.exception()):
            raise failed.with_traceback(None)

    async def settle(self, listener: Listener, place: int) -> None:
        """Delete the messages up to a place for which this was the last listener."""
        await self._delete(self.queue.settle(listener, place))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.api.close()

    async def _run(self) -> None:
        failures = 0
        while self._streams:
            try:
                messages = await self._received(most=BATCH, wait=WAIT_SECONDS, hidden=VISIBILITY_SECONDS)
                failures = 0
            except ProviderError as failed:
                failures += 1
                if failed.reason not in PASSING or failures >= MAX_FAILURES:
                    raise self._refused(failed) from None
                pause = FAILURE_PAUSES[min(failures, len(FAILURE_PAUSES)) - 1]
                await self.api.clock.sleep(max(pause, failed.retry_after))
                continue
            await self._delete(self.queue.take(messages, self.api.clock.monotonic()))

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Wake the listeners if the receiver failed; they raise its error."""
        if not task.cancelled() and task.exception() is not None:
            self.queue.wake()

    async def _received(self, *, most: int, wait: int, hidden: int) -> Sequence[dict[str, Any]]:
        answer = await self.api.call(
            "ReceiveMessage",
            about=self._about,
            QueueUrl=self._url,
            MaxNumberOfMessages=most,
            WaitTimeSeconds=wait,
            VisibilityTimeout=hidden,
        )
        return answer.get("Messages") or ()

    async def _delete(self, handles: Sequence[str]) -> None:
        """Delete messages. SQS redelivers those that cannot be deleted; they are then recognised."""
        for start in range(0, len(handles), BATCH):
            entries = [
                {"Id": str(number), "ReceiptHandle": handle}
                for number, handle in enumerate(handles[start : start + BATCH])
            ]
            try:
                await self.api.call("DeleteMessageBatch", about=self._about, QueueUrl=self._url, Entries=entries)
            except ProviderError as failed:
                if failed.reason is ErrorReason.PERMISSION_DENIED:
                    self.trouble = self._in_words(failed)
                _log.warning("messages of a queue not deleted; they come again", reason=failed.reason.value)
                return
            self.trouble = None

    def _refused(self, failed: ProviderError) -> ProviderError:
        """Return the error to raise; remember it and pause if it is not transient."""
        self._proven = False
        if failed.reason in PASSING:
            return failed
        self.trouble = self._in_words(failed)
        self._refused_until = self.api.clock.monotonic() + REFUSED_SECONDS
        return self.trouble

    def _in_words(self, failed: ProviderError) -> ProviderError:
        if failed.backend_code in _MISSING:
            return invalid_config("/changes/queueURL", f"{self._about} does not exist in {self.api.region}")
        if failed.reason is ErrorReason.PERMISSION_DENIED:
            words = f"{self._about} in {self.api.region}: allow sqs:ReceiveMessage and sqs:DeleteMessage"
            return ProviderError(failed.reason, words, backend_code=failed.backend_code)
        return failed
