"""Subscriptions: changes are reported without values, and a stream can be resumed."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from grpc import aio

from eso_conformance.cases import NotApplicable, Profile, Violation, case, expect, violated
from eso_conformance.subject import Subject, remote
from eso_wire._generated import provider_pb2 as pb

_SECONDS = 20.0


@case(Profile.SUBSCRIBE, "subscribe", "tells of a change of a watched key")
async def reports_change(subject: Subject) -> None:
    subject.need(pb.OPERATION_SUBSCRIBE, pb.OPERATION_PUSH)
    key = subject.fresh_key()
    await subject.push(key, b"before")

    event = await _first_change(subject, key, resume="", then=b"after")

    expect("watch" in event.change.watch_ids, "the change does not name its watch")
    expect(event.change.type in (pb.CHANGE_TYPE_UPDATED, pb.CHANGE_TYPE_RESYNC), "the change has another type")


@case(Profile.SUBSCRIBE, "subscribe", "goes on from a resume token, or asks for a resync")
async def resumes(subject: Subject) -> None:
    subject.need(pb.OPERATION_SUBSCRIBE, pb.OPERATION_PUSH)
    key = subject.fresh_key()
    await subject.push(key, b"before")
    first = await _first_change(subject, key, resume="", then=b"one")
    await subject.push(key, b"two")

    second = await _first_change(subject, key, resume=first.resume_token, then=b"three")

    expect(second.HasField("change"), "nothing was heard after resuming")


@case(Profile.SUBSCRIBE, "subscribe", "refuses a stream that does not begin with `open`")
async def needs_open(subject: Subject) -> None:
    subject.need(pb.OPERATION_SUBSCRIBE)

    async def requests() -> AsyncIterator[pb.SubscribeRequest]:
        yield pb.SubscribeRequest(ack=pb.SubscribeAck(resume_token="none"))  # noqa: S106 - a place in a stream

    try:
        async with asyncio.timeout(_SECONDS):
            async for _ in subject.stores.Subscribe(requests(), timeout=_SECONDS):
                violated("a stream without `open` was served")
    except TimeoutError:
        violated("a stream without `open` hangs")
    except subject.failure:
        return
    violated("a stream without `open` ended without an error")


async def _first_change(subject: Subject, key: str, *, resume: str, then: bytes) -> pb.SubscribeResponse:
    """Watch the key, change it once the stream is open, and wait for the first reported change."""
    done = asyncio.Event()

    async def requests() -> AsyncIterator[pb.SubscribeRequest]:
        watched = pb.WatchItem(watch_id="watch", ref=remote(key))
        opened = pb.SubscribeOpen(context=subject.context(), resume_token=resume, items=[watched])
        yield pb.SubscribeRequest(open=opened)
        await done.wait()

    pushed = False
    try:
        async for response in subject.stores.Subscribe(requests(), timeout=_SECONDS):
            if response.HasField("change"):
                return response
            if not pushed:
                pushed = True
                await subject.push(key, then)
    except subject.failure as error:
        violated(f"the stream broke with {error.code().name}")
    finally:
        done.set()
    raise Violation("the stream ended without a change")


SUBSCRIBING = (reports_change, resumes, needs_open)


# ---------------------------------------------------------------------------------------------------------------------
# Acknowledgements: the stream survives them, whatever their token, and acknowledged changes are not repeated.
#
# A provider receives them only on a stream, and does not answer. So each is followed by changes that must arrive: by
# then its effect on the stream is visible.


_ROUNDS: Final = 3
"""Number of changes that must arrive after an acknowledgement, and of acknowledgements that may arrive too late."""


@case(Profile.SUBSCRIBE, "acknowledge", "goes on with the stream after an acknowledgement")
async def goes_on(subject: Subject) -> None:
    key = _watchable(subject)
    async with _listening(subject, {"watch": key}) as stream:
        await subject.push(key, b"before")
        await stream.changes_up_to("watch")

        for at in range(_ROUNDS):
            await stream.acknowledge(stream.resume_token())
            await subject.push(key, b"after %d" % at)
            await stream.changes_up_to("watch")


@case(Profile.SUBSCRIBE, "acknowledge", "ignores an acknowledgement whose token it does not know")
async def ignores_unknown(subject: Subject) -> None:
    key = _watchable(subject)
    async with _listening(subject, {"watch": key}) as stream:
        for at in range(_ROUNDS):
            await stream.acknowledge(f"conformance-{uuid.uuid4()}")
            await subject.push(key, b"after %d" % at)
            await stream.changes_up_to("watch")


@case(Profile.SUBSCRIBE, "acknowledge", "does not repeat what was acknowledged when a stream is taken up again")
async def repeats_nothing(subject: Subject) -> None:
    """The end of a stream may overtake an acknowledgement on it, so the case sends more than one."""
    keys = {"done": _watchable(subject), "later": subject.fresh_key()}
    async with _listening(subject, keys) as stream:
        await subject.push(keys["done"], b"done")
        await stream.changes_up_to("done")
        resume_token = await _resume_token_after(subject, stream, keys["later"])
    for _ in range(_ROUNDS):
        async with _listening(subject, keys, resume=resume_token) as stream:
            await subject.push(keys["later"], b"later")
            changes = await stream.changes_up_to("later")
            if any(change.type == pb.CHANGE_TYPE_RESYNC for change in changes):
                raise NotApplicable(f"{subject.name} asks for a resync instead of going on from its token")
            if not any("done" in change.watch_ids for change in changes):
                return
            resume_token = await _resume_token_after(subject, stream, keys["later"])
    violated("a change that was acknowledged comes again, on every stream")


def _watchable(subject: Subject) -> str:
    """Return a key that can be watched and changed."""
    subject.need(pb.OPERATION_SUBSCRIBE, pb.OPERATION_PUSH)
    return subject.fresh_key()


async def _resume_token_after(subject: Subject, stream: _Listener, later: str) -> str:
    """Acknowledge all received changes and return their token. A later change shows that the provider processed it."""
    resume_token = stream.resume_token()
    await stream.acknowledge(resume_token)
    await subject.push(later, b"later still")
    await stream.changes_up_to("later")
    return resume_token


@asynccontextmanager
async def _listening(subject: Subject, keys: Mapping[str, str], *, resume: str = "") -> AsyncIterator[_Listener]:
    """Keep a subscription open during the block. `keys` are by watch id."""
    call: Any = subject.stores.Subscribe(timeout=_SECONDS)
    try:
        stream = _Listener(call, subject.name)
        watches = [pb.WatchItem(watch_id=each, ref=remote(key)) for each, key in keys.items()]
        opened = pb.SubscribeOpen(context=subject.context(), resume_token=resume, items=watches)
        await stream.send(pb.SubscribeRequest(open=opened))
        await stream.stands()
        yield stream
    finally:
        call.cancel()


class _Listener:
    """Our end of one stream."""

    def __init__(self, call: Any, name: str) -> None:
        self._call = call
        self._name = name
        self._unread: list[pb.SubscribeResponse] = []
        self._place = ""

    def resume_token(self) -> str:
        """Return the token of the last received event."""
        if not self._place:
            raise NotApplicable(f"{self._name} gives no resume tokens; there is nothing to acknowledge")
        return self._place

    async def stands(self) -> None:
        """Wait for the first message, which confirms the subscription."""
        self._unread.append(await self._next())

    async def acknowledge(self, token: str) -> None:
        await self.send(pb.SubscribeRequest(ack=pb.SubscribeAck(resume_token=token)))

    async def send(self, request: pb.SubscribeRequest) -> None:
        try:
            await self._call.write(request)
        except asyncio.InvalidStateError:
            await self._next()  # the stream has ended; reading gives the reason

    async def changes_up_to(self, watch_id: str) -> list[pb.ChangeEvent]:
        """Return all changes up to the first one of the watch."""
        changes: list[pb.ChangeEvent] = []
        while True:
            response = self._unread.pop() if self._unread else await self._next()
            self._place = response.resume_token or self._place
            if not response.HasField("change"):
                continue
            changes.append(response.change)
            if watch_id in response.change.watch_ids or response.change.type == pb.CHANGE_TYPE_RESYNC:
                return changes

    async def _next(self) -> pb.SubscribeResponse:
        try:
            response = await self._call.read()
        except aio.AioRpcError as error:
            violated(f"the stream broke with {error.code().name}")
        if response is aio.EOF:
            violated("the stream ended")
        given: pb.SubscribeResponse = response
        return given


ACKNOWLEDGING = (goes_on, ignores_unknown, repeats_nothing)
