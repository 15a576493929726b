"""Reading: single values, maps, versions, properties, batches with partial results."""

from __future__ import annotations

import asyncio
from typing import Any

from eso_conformance.cases import NotApplicable, Profile, case, expect
from eso_conformance.fixture import KnownFind, KnownMap
from eso_conformance.subject import CALL_SECONDS, Subject, item, reason_name
from eso_wire._generated import provider_pb2 as pb

_NOT_FOUND = {
    pb.ERROR_REASON_SECRET_NOT_FOUND,
    pb.ERROR_REASON_PROPERTY_NOT_FOUND,
    pb.ERROR_REASON_VERSION_NOT_FOUND,
}
_BATCH = 20
_PARALLEL = 50


@case(Profile.READ, "get", "gives the value of a key, byte for byte")
async def gives_value(subject: Subject) -> None:
    subject.need(pb.OPERATION_GET)
    known = await subject.known()

    result = await subject.get_one(known.key, version=known.version, prop=known.property)

    expect(result.WhichOneof("outcome") == "value", f"no value: {_outcome(subject, result)}")
    expect(result.value == known.value.encode(), "the value differs from the known one")


@case(Profile.READ, "get", "gives every known value of the fixture")
async def gives_all_known(subject: Subject) -> None:
    subject.need(pb.OPERATION_GET)
    if not subject.fixture.known:
        raise NotApplicable("the fixture names no known value")

    items = [
        item(str(at), one.key, version=one.version, prop=one.property) for at, one in enumerate(subject.fixture.known)
    ]
    results = {result.item_id: result for result in await subject.get(items)}

    for at, one in enumerate(subject.fixture.known):
        expect(results[str(at)].value == one.value.encode(), f"the value of {one.key} differs from the known one")


@case(Profile.READ, "get", "answers every item of a batch once, under its id, whatever happened to the others")
async def partial_results(subject: Subject) -> None:
    subject.need(pb.OPERATION_GET)
    known = await subject.known()
    good = [item(f"good-{at}", known.key, version=known.version, prop=known.property) for at in range(_BATCH // 2)]
    bad = [item(f"bad-{at}", f"{subject.fixture.absent}-{at}") for at in range(_BATCH // 2)]

    results = await subject.get([entry for pair in zip(good, bad, strict=True) for entry in pair])

    expect(sorted(result.item_id for result in results) == sorted(entry.item_id for entry in good + bad), "ids differ")
    for result in results:
        if result.item_id.startswith("good"):
            expect(
                result.WhichOneof("outcome") == "value",
                f"a good item failed next to bad ones: {_outcome(subject, result)}",
            )
        else:
            expect(result.WhichOneof("outcome") == "error", "a key that does not exist gave no error")


@case(Profile.READ, "get", "accepts an empty batch")
async def empty_batch(subject: Subject) -> None:
    subject.need(pb.OPERATION_GET)

    results = await subject.get([])

    expect(not results, "an empty batch gave results")


@case(Profile.READ, "get", "reports a missing key as SECRET_NOT_FOUND of that item, not as a failed call")
async def missing_key(subject: Subject) -> None:
    subject.need(pb.OPERATION_GET)

    result = await subject.get_one(subject.fixture.absent)

    expect(result.WhichOneof("outcome") == "error", "a key that does not exist gave no error")
    if subject.offers(pb.OPERATION_NOT_FOUND_SEMANTICS):
        expect(
            result.error.reason == pb.ERROR_REASON_SECRET_NOT_FOUND,
            f"NOT_FOUND_SEMANTICS is offered, and the reason is {subject.describe_error(result.error)}",
        )
    _expect_message(result)


@case(Profile.READ, "get", "reports a missing property without giving the whole value instead")
async def missing_property(subject: Subject) -> None:
    subject.need(pb.OPERATION_GET)
    known = await subject.known()

    result = await subject.get_one(known.key, version=known.version, prop="conformance.no.such.property")

    expect(result.WhichOneof("outcome") == "error", "a property that does not exist gave a value")
    _expect_message(result)


@case(Profile.READ, "get", "reports a missing version as not found")
async def missing_version(subject: Subject) -> None:
    subject.need(pb.OPERATION_GET)
    known = await subject.known()

    result = await subject.get_one(known.key, version="conformance-no-such-version")

    if result.WhichOneof("outcome") == "value":
        raise NotApplicable("this provider has no versions")
    expect(result.error.reason in _NOT_FOUND, f"the reason is {subject.describe_error(result.error)}")
    _expect_message(result)


@case(Profile.READ, "get map", "gives all properties of a key")
async def gives_map(subject: Subject) -> None:
    subject.need(pb.OPERATION_GET_MAP)
    known = await _known_map(subject)

    (result,) = await subject.get([item("map", known.key, version=known.version, shape=pb.VALUE_SHAPE_MAP)])

    expect(result.WhichOneof("outcome") == "map", f"no map: {_outcome(subject, result)}")
    expect(dict(result.map.data) == {key: value.encode() for key, value in known.value.items()}, "the map differs")


@case(Profile.READ, "exists", "tells what is there from what is not, without giving the value")
async def exists(subject: Subject) -> None:
    subject.need(pb.OPERATION_EXISTS)
    known = await subject.known()
    items = [item("there", known.key, version=known.version), item("not", subject.fixture.absent)]

    response = await subject.stores.CheckSecrets(
        pb.CheckSecretsRequest(context=subject.context(), items=items), timeout=10.0
    )

    found = {result.item_id: result.exists for result in response.results}
    expect(found == {"there": True, "not": False}, "existence is told wrongly")


@case(Profile.READ, "concurrency", "answers many calls at once, each with its own answer")
async def many_at_once(subject: Subject) -> None:
    subject.need(pb.OPERATION_GET)
    known = await subject.known()

    results = await asyncio.gather(
        *(subject.get([item(f"call-{at}", known.key, version=known.version)]) for at in range(_PARALLEL))
    )

    for at, (result,) in enumerate(results):
        expect(result.item_id == f"call-{at}", "an answer went to the wrong call")
        expect(result.WhichOneof("outcome") == "value", f"a call among many failed: {_outcome(subject, result)}")


async def _known_map(subject: Subject) -> KnownMap:
    if subject.fixture.maps:
        return subject.fixture.maps[0]
    known = await subject.known()
    if subject.fixture.known:
        raise NotApplicable("the fixture names no map")
    return KnownMap(key=known.key, value={"user": "anna", "port": "5432"})


def _expect_message(result: pb.GetResult) -> None:
    """Require a message: users read it next to the key, and the reason alone does not say what to do."""
    expect(result.error.message.strip(), f"{reason_name(result.error)} says nothing to its reader")


def _outcome(subject: Subject, result: pb.GetResult) -> str:
    """Describe a result without its content."""
    which = result.WhichOneof("outcome")
    return subject.describe_error(result.error) if which == "error" else str(which)


READING = (
    gives_value,
    gives_all_known,
    partial_results,
    empty_batch,
    missing_key,
    missing_property,
    missing_version,
    gives_map,
    exists,
    many_at_once,
)


# --- Finding: many keys by name, in pages, with a marked end ---------------------------------------------------------


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


FINDING = (finds, marks_last_page, respects_page_size, finds_nothing)
