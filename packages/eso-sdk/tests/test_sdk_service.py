"""The answers of a provider, call by call: through the frame and the codec, without sockets."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_sdk import Value
from eso_sdk.errors import CutStream, MissingPathError, denied, not_found, unavailable
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.scripted import SCRIPTED, ReadOnly, Script, Scripted
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    CheckResult,
    Context,
    DeleteBatch,
    DeleteItem,
    DeleteResult,
    FindPage,
    FindQuery,
    Found,
    GetItem,
    GetResult,
    Hello,
    MetadataPolicy,
    NotModified,
    PushBatch,
    PushItem,
    PushOutcome,
    PushPrecondition,
    PushResult,
    RemoteRef,
    Shape,
)
from eso_wire.versions import SUPPORTED, ProtocolVersion


@pytest.fixture
async def provider() -> AsyncIterator[InMemory]:
    async with InMemory(SCRIPTED) as provider:
        yield provider


def reason(outcome: object) -> ErrorReason:
    assert isinstance(outcome, ProviderError)
    return outcome.reason


async def failure_of(call: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await call
    return caught.value


def using(script: Script, kind: Any = Scripted, **changes: Any) -> Context:
    return call_context(kind, {"script": script.name}, **changes)


def item(key: str, **changes: Any) -> GetItem:
    return replace(GetItem(key, RemoteRef(key)), **changes)


# --- negotiation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "selected"),
    [
        pytest.param(SUPPORTED, ProtocolVersion(2, 2), id="the highest both speak"),
        pytest.param((ProtocolVersion(2, 0), ProtocolVersion(2, 1)), ProtocolVersion(2, 1), id="an older core"),
        pytest.param((ProtocolVersion(2, 2), ProtocolVersion(2, 3)), ProtocolVersion(2, 2), id="a newer core"),
        pytest.param((ProtocolVersion(3, 0),), None, id="nothing in common: unset, and our versions listed"),
        pytest.param((), None, id="a core that names none"),
    ],
)
async def test_handshake(
    provider: InMemory, theirs: tuple[ProtocolVersion, ...], selected: ProtocolVersion | None
) -> None:
    """R140, R141."""
    answer = await provider.handshake(Hello("test", theirs))

    assert answer.selected == selected
    assert answer.supported == SUPPORTED
    assert (answer.provider_name, answer.provider_version) == ("scripted", "1.2.3")
    assert answer.kinds == SCRIPTED.kind_infos


async def test_a_handshake_names_only_features_that_the_caller_knows() -> None:
    provider = replace(SCRIPTED, features=("deltas", "hints"))

    async with InMemory(provider) as served:
        answer = await served.handshake(Hello("test", SUPPORTED, features=("hints", "other")))

    assert answer.features == ("hints",)


async def test_a_call_in_a_version_we_do_not_speak_is_refused(provider: InMemory) -> None:
    context = using(Script.new(), protocol=ProtocolVersion(3, 0))

    assert (await failure_of(provider.get_one(context, "a"))).reason is ErrorReason.PROTOCOL_INCOMPATIBLE


# --- get -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pytest.param(Scripted, id="one by one"), pytest.param(ReadOnly, id="in a batch")])
async def test_each_item_has_an_outcome_of_its_own(provider: InMemory, kind: Any) -> None:
    script = Script.new(values={"a": b"1", "b": b'{"x": "y"}'})

    got = await provider.get(using(script, kind), [item("a"), item("gone"), item("b", shape=Shape.MAP)])

    assert [result.item_id for result in got] == ["a", "gone", "b"]
    assert got[0].outcome == SecretBytes(b"1")
    assert reason(got[1].outcome) is ErrorReason.SECRET_NOT_FOUND
    assert got[2].outcome == {"x": SecretBytes(b"y")}


async def test_a_map_of_a_key_that_is_not_there_is_not_found(provider: InMemory) -> None:
    for kind in (Scripted, ReadOnly):
        result = await provider.get_one(using(Script.new(), kind), "gone", shape=Shape.MAP)

        assert reason(result.outcome) is ErrorReason.SECRET_NOT_FOUND


async def test_a_failure_of_one_item_leaves_the_others_alone(provider: InMemory) -> None:
    async def get(_: Any, ref: RemoteRef) -> bytes:
        match ref.key:
            case "denied":
                raise denied("denied")
            case "bug":
                raise KeyError("hunter2")
            case "slow":
                raise TimeoutError
            case "down":
                raise ConnectionRefusedError("hunter2")
        return b"fine"

    script = Script.new(get=get)
    got = await provider.get(using(script), [item(key) for key in ("denied", "bug", "slow", "down", "good")])

    assert [reason(result.outcome) for result in got[:4]] == [
        ErrorReason.PERMISSION_DENIED,
        ErrorReason.INTERNAL,
        ErrorReason.BACKEND_TIMEOUT,
        ErrorReason.BACKEND_UNAVAILABLE,
    ]
    assert got[4].outcome == SecretBytes(b"fine")


async def test_an_unexpected_exception_shows_its_type_and_place_only(provider: InMemory) -> None:
    async def get(_: Any, __: RemoteRef) -> bytes:
        raise KeyError("hunter2")

    outcome = (await provider.get_one(using(Script.new(get=get)), "a")).outcome

    assert isinstance(outcome, ProviderError)
    assert outcome.message.startswith("the provider failed: KeyError at test_sdk_service.py:")
    assert "hunter2" not in outcome.message


async def test_items_run_side_by_side_within_the_kinds_concurrency(provider: InMemory) -> None:
    running, most = 0, 0

    async def get(_: Any, __: RemoteRef) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _turn in range(3):
            await asyncio.sleep(0)
        running -= 1
        return b""

    await provider.get(using(Script.new(get=get)), [item(str(at)) for at in range(20)])

    assert most == 4


async def test_a_batch_above_the_limit_is_refused() -> None:
    limited = replace(SCRIPTED, limits=replace(SCRIPTED.limits, max_batch_items=2))
    async with InMemory(limited) as small:
        failure = await failure_of(small.get(using(Script.new()), [item(str(at)) for at in range(3)]))

    assert failure.reason is ErrorReason.INVALID_REQUEST
    assert "at most 2 items" in failure.message


async def test_values_that_do_not_fit_into_a_message_are_refused_one_by_one() -> None:
    limited = replace(SCRIPTED, limits=replace(SCRIPTED.limits, max_message_bytes=200_000))
    script = Script.new(values={"a": b"x" * 60_000, "b": b"x" * 300_000, "c": b"x" * 60_000, "d": b"x" * 60_000})
    async with InMemory(limited) as small:
        got = await small.get(using(script), [item(key) for key in "abcd"])

    assert [isinstance(result.outcome, SecretBytes) for result in got] == [True, False, True, False]
    assert reason(got[1].outcome) is reason(got[3].outcome) is ErrorReason.PAYLOAD_TOO_LARGE


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param("7", NotModified(), id="the version is known: no value"),
        pytest.param("6", SecretBytes(b"v"), id="another version: the value"),
    ],
)
async def test_conditional_reads(provider: InMemory, asked: str, expected: NotModified | SecretBytes) -> None:
    async def get(_: Any, __: RemoteRef) -> Value:
        return Value.of(b"v", version="7")

    context = using(Script.new(get=get))
    (result,) = await provider.get(context, [item("a", if_version_differs=asked)])

    assert result.outcome == expected
    assert result.metadata.provider_version == "7"


async def test_metadata_is_read_only_where_it_is_offered(provider: InMemory) -> None:
    script = Script.new(values={"a": b"1"})
    wanted = GetItem("a", RemoteRef("a", metadata_policy=MetadataPolicy.FETCH))

    (offered,) = await provider.get(using(script), [wanted])
    (not_offered,) = await provider.get(using(script, ReadOnly), [wanted])

    assert offered.outcome == SecretBytes(b"1")
    assert reason(not_offered.outcome) is ErrorReason.UNSUPPORTED_OPERATION


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(b'{"a": "b", "n": 1.50, "o": { "x" : 1 }}', (b"b", b"1.50", b'{ "x" : 1 }'), id="as written"),
        pytest.param(b'{"a": null, "n": true, "o": []}', (b"", b"true", b"[]"), id="null is empty"),
    ],
)
async def test_a_map_is_the_json_object_of_the_value(
    provider: InMemory, value: bytes, expected: tuple[bytes, ...]
) -> None:
    result = await provider.get_one(using(Script.new(values={"k": value})), "k", shape=Shape.MAP)

    assert result.outcome == dict(zip(("a", "n", "o"), map(SecretBytes, expected), strict=True))


@pytest.mark.parametrize("value", [b"plain", b"[1]", b'"text"', b"", b"\xff", b'{"a":'])
async def test_a_value_that_is_not_a_json_object_gives_no_map_and_is_not_quoted(
    provider: InMemory, value: bytes
) -> None:
    result = await provider.get_one(using(Script.new(values={"k": value})), "k", shape=Shape.MAP)

    assert reason(result.outcome) is ErrorReason.BACKEND_ERROR
    assert isinstance(result.outcome, ProviderError)
    assert result.outcome.message == 'the value of "k" is no JSON object; read it as a single value instead'


# --- find ------------------------------------------------------------------------------------------------------------


async def test_find_gives_pages_and_says_which_is_the_last(provider: InMemory) -> None:
    script = Script.new(values={f"k{at}": b"v" for at in range(5)})

    pages = [page async for page in provider.pages(using(script), FindQuery(name_regexp="k", page_size=2))]

    assert [len(page.found) for page in pages] == [2, 2, 1]
    assert [page.last for page in pages] == [False, False, True]


async def test_finding_nothing_is_one_empty_last_page(provider: InMemory) -> None:
    pages = [page async for page in provider.pages(using(Script.new()), FindQuery(name_regexp="x"))]

    assert [(page.found, page.last) for page in pages] == [((), True)]


async def test_a_missing_root_of_a_search_is_told_in_the_last_page(provider: InMemory) -> None:
    async def find(_: Any, query: FindQuery) -> AsyncIterator[Found]:
        if query.path == "a":
            raise MissingPathError('folder "a" does not exist')
        yield Found("k", SecretBytes(b"v"))

    pages = [page async for page in provider.pages(using(Script.new(find=find)), FindQuery(path="a"))]

    assert pages == [FindPage((), last=True, missing='folder "a" does not exist')]


@pytest.mark.parametrize(
    ("error", "found"),
    [
        pytest.param(not_found("k"), 0, id="a key that vanished while the search ran"),
        pytest.param(MissingPathError("too late"), 1, id="after the first match"),
    ],
)
async def test_a_search_that_loses_a_key_fails_and_is_not_a_missing_root(
    provider: InMemory, error: ProviderError, found: int
) -> None:
    async def find(_: Any, __: FindQuery) -> AsyncIterator[Found]:
        for number in range(found):
            yield Found(str(number), SecretBytes(b"v"))
        raise error

    failed = await failure_of(provider.find(using(Script.new(find=find)), FindQuery(path="a")))

    assert failed.reason is ErrorReason.BACKEND_ERROR


async def test_large_values_make_smaller_pages(provider: InMemory) -> None:
    script = Script.new(values={f"k{at}": b"v" * 1_500_000 for at in range(5)})

    pages = [page async for page in provider.pages(using(script), FindQuery(name_regexp="k"))]

    assert [len(page.found) for page in pages] == [2, 2, 1]


async def test_a_value_too_large_for_any_page_fails_the_find(provider: InMemory) -> None:
    script = Script.new(values={"k": b"v" * 17_000_000})

    assert (
        await failure_of(provider.find(using(script), FindQuery(name_regexp="k")))
    ).reason is ErrorReason.PAYLOAD_TOO_LARGE


async def test_a_find_that_fails_in_the_middle_has_no_last_page(provider: InMemory) -> None:
    async def find(_: Any, __: FindQuery) -> AsyncIterator[Found]:
        yield Found("a", SecretBytes(b"1"))
        yield Found("b", SecretBytes(b"2"))
        raise unavailable("lost the backend")

    pages = provider.pages(using(Script.new(find=find)), FindQuery(name_regexp="k", page_size=1))
    first = await anext(pages)

    with pytest.raises(ProviderError, match="lost the backend"):
        await anext(pages)
    assert not first.last


async def test_a_fault_can_cut_the_stream(provider: InMemory) -> None:
    async def find(_: Any, __: FindQuery) -> AsyncIterator[Found]:
        yield Found("a", SecretBytes(b"1"))
        yield Found("b", SecretBytes(b"1"))
        raise CutStream

    query = FindQuery(name_regexp="k", page_size=1)
    pages = [page async for page in provider.pages(using(Script.new(find=find)), query)]

    assert [page.last for page in pages] == [False]


async def test_a_reader_who_leaves_ends_the_authors_find(provider: InMemory) -> None:
    ended = asyncio.Event()

    async def find(_: Any, __: FindQuery) -> AsyncIterator[Found]:
        try:
            for at in range(10_000):
                yield Found(str(at), SecretBytes(b"1"))
        finally:
            ended.set()

    pages = provider.pages(using(Script.new(find=find)), FindQuery(name_regexp="k", page_size=1))
    await anext(pages)
    await pages.aclose()

    assert ended.is_set()


@pytest.mark.parametrize(
    ("kind", "query"),
    [
        pytest.param(Scripted, FindQuery(tags={"a": "b"}), id="by tags, where only name and path are offered"),
        pytest.param(Scripted, FindQuery(name_regexp="x", tags={"a": "b"}), id="by name and tags"),
        pytest.param(ReadOnly, FindQuery(name_regexp="x"), id="where nothing is found at all"),
        pytest.param(ReadOnly, FindQuery(), id="an empty query"),
    ],
)
async def test_finding_by_what_is_not_offered_is_refused(provider: InMemory, kind: Any, query: FindQuery) -> None:
    failure = await failure_of(provider.find(using(Script.new(), kind), query))

    assert failure.reason is ErrorReason.UNSUPPORTED_OPERATION


async def test_a_pattern_that_is_no_re2_is_the_callers_mistake(provider: InMemory) -> None:
    failure = await failure_of(provider.find(using(Script.new(values={"a": b"1"})), FindQuery(name_regexp="(?=x)")))

    assert failure.reason is ErrorReason.INVALID_REQUEST


# --- check, push, delete ---------------------------------------------------------------------------------------------


async def test_not_found_answers_a_check(provider: InMemory) -> None:
    got = await provider.check(using(Script.new(values={"a": b"1"})), [item("a"), item("b")])

    assert got == (CheckResult("a", exists=True, provider_version="1"), CheckResult("b"))


def push(key: str, payload: Any = SecretBytes(b"v"), **changes: Any) -> PushItem:  # noqa: B008 - it does not change
    return replace(PushItem(key, RemoteRef(key), payload), **changes)


async def test_each_push_has_an_outcome_of_its_own_and_sees_the_idempotency_key(provider: InMemory) -> None:
    script = Script.new()
    whole = push("whole", {"a": SecretBytes(b"1")})
    versioned = push("versioned", precondition=PushPrecondition.IF_VERSION, expected_version="1")

    got = await provider.push(using(script), PushBatch((push("a"), whole, versioned), idempotency_key="again"))

    assert got[0] == PushResult("a", PushOutcome.CREATED, "1")
    assert reason(got[1].outcome) is reason(got[2].outcome) is ErrorReason.UNSUPPORTED_OPERATION
    assert script.values == {"a": b"v"}
    assert "push again" in script.log


async def test_a_condition_that_the_author_honours_reaches_the_author(provider: InMemory) -> None:
    async def on_push(_: Any, item: PushItem) -> PushOutcome:
        return PushOutcome.SKIPPED_EXISTS if item.precondition is PushPrecondition.IF_ABSENT else PushOutcome.UPDATED

    batch = PushBatch((push("a", precondition=PushPrecondition.IF_ABSENT),))
    (got,) = await provider.push(using(Script.new(push=on_push)), batch)

    assert got.outcome is PushOutcome.SKIPPED_EXISTS


async def test_deleting_what_is_not_there_succeeds(provider: InMemory) -> None:
    script = Script.new(values={"a": b"1"})

    got = await provider.delete(
        using(script), DeleteBatch((DeleteItem("a", RemoteRef("a")), DeleteItem("b", RemoteRef("b"))))
    )

    assert got == (DeleteResult("a", existed=True), DeleteResult("b", existed=False))


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda provider, context: provider.check(context, [item("a")]), id="check"),
        pytest.param(lambda provider, context: provider.push(context, PushBatch((push("a"),))), id="push"),
        pytest.param(
            lambda provider, context: provider.delete(context, DeleteBatch((DeleteItem("a", RemoteRef("a")),))),
            id="delete",
        ),
    ],
)
async def test_an_operation_that_is_not_offered_is_refused_as_a_whole(provider: InMemory, call: Any) -> None:
    script = Script.new(values={"a": b"1"})

    failure = await failure_of(call(provider, using(script, ReadOnly)))

    assert failure.reason is ErrorReason.UNSUPPORTED_OPERATION
    assert "open" not in script.log


def test_results_do_not_print_values() -> None:
    assert "hunter2" not in repr(GetResult("a", SecretBytes(b"hunter2")))
