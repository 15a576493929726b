"""Finding: many keys by name, in pages, with a marked end."""

from __future__ import annotations

from typing import Any

from eso_conformance.cases import NotApplicable, Profile, case, expect
from eso_conformance.fixture import KnownFind
from eso_conformance.subject import CALL_SECONDS, Subject
from eso_wire._generated import provider_pb2 as pb

_PUSHED = 5


@case(Profile.READ, "find", "gives exactly the keys that match, each once")
async def finds(subject: Subject) -> None:
    wanted = await _known_find(subject)

    pages = await _find(subject, wanted)

    keys = [found.key for page in pages for found in page.found]
    expect(len(keys) == len(set(keys)), "a key is found twice")
    expect(set(keys) == set(wanted.keys), f"found {len(keys)} keys, {len(wanted.keys)} match")


@case(Profile.READ, "find", "ends the stream with `last`, in the last page and in no other")
async def marks_last_page(subject: Subject) -> None:
    pages = await _find(subject, await _known_find(subject))

    expect(pages, "the stream has no page, not even an empty last one")
    expect([page.last for page in pages] == [False] * (len(pages) - 1) + [True], "`last` is not at the end")


@case(Profile.READ, "find", "keeps to the page size")
async def respects_page_size(subject: Subject) -> None:
    pages = await _find(subject, await _known_find(subject), page_size=1)

    expect(all(len(page.found) <= 1 for page in pages), "a page is larger than asked for")


@case(Profile.READ, "find", "finds nothing with a pattern that matches nothing, and still says `last`")
async def finds_nothing(subject: Subject) -> None:
    subject.need(pb.OPERATION_FIND_BY_NAME)

    pages = await _find(subject, KnownFind(name="^conformance-matches-no-key-at-all$", keys=[]))

    expect(not [found for page in pages for found in page.found], "something was found")
    expect(pages[-1:] and pages[-1].last, "`last` is missing")


async def _find(subject: Subject, wanted: KnownFind, **changes: Any) -> list[pb.FindSecretsResponse]:
    request = pb.FindSecretsRequest(
        context=subject.context(), path=wanted.path, name_regexp=wanted.name, tags=wanted.tags, **changes
    )
    return [page async for page in subject.stores.FindSecrets(request, timeout=CALL_SECONDS)]


async def _known_find(subject: Subject) -> KnownFind:
    if subject.fixture.find is not None:
        return subject.fixture.find
    subject.need(pb.OPERATION_FIND_BY_NAME)
    if not subject.offers(pb.OPERATION_PUSH):
        raise NotApplicable("the fixture names no search, and nothing can be pushed")
    stem = subject.fresh_key()
    keys = [f"{stem}-{at}" for at in range(_PUSHED)]
    for key in keys:
        await subject.push(key, b"found")
    return KnownFind(name=f"^{stem}-", keys=keys)


CASES = (finds, marks_last_page, respects_page_size, finds_nothing)
