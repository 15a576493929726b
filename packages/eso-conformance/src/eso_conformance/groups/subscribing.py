"""Subscriptions: changes are reported without values, and a stream can be resumed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from eso_conformance.cases import Profile, Violation, case, expect, violated
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


CASES = (reports_change, resumes, needs_open)
