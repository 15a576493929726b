"""Answers of the wrong type: an error names the method, item by item; nothing is sent in their place."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar

import pytest

from eso_api.shapes import Fragment
from eso_api.values import SecretBytes
from eso_sdk import Check, Generator, Provider, Pushed, Store, Value, generator_kind, reads, store_kind
from eso_sdk.errors import not_found
from eso_sdk.testing import InMemory, call_context
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    DeleteBatch,
    DeleteItem,
    FindQuery,
    Found,
    Generated,
    GenerateRequest,
    GetItem,
    KindRole,
    Operation,
    PushBatch,
    PushItem,
    PushOutcome,
    RemoteRef,
    Shape,
    SourceSecret,
)

PLANTED = "CANARY-41c9"


class OddConfig(Fragment, frozen=True, kw_only=True):
    """Nothing to configure."""


class _Odd:
    """Answers each method with what the test says."""

    given: ClassVar[dict[str, Any]] = {}


@store_kind(kind="Odd", plural="odds")
class Odd(_Odd, Store[OddConfig]):
    @classmethod
    def check_config(cls, config: OddConfig) -> tuple[str, ...]:
        del config
        warnings: tuple[str, ...] = cls.given.get("check_config", ())
        return warnings

    async def validate(self) -> Any:
        return self.given["validate"]

    async def get(self, ref: RemoteRef) -> Any:
        return self.given["get"] if ref.key == "odd" else b"even"

    async def get_map(self, ref: RemoteRef) -> Any:
        del ref
        return self.given["get_map"]

    def find(self, query: FindQuery) -> Any:
        del query
        return self.given["find"]()

    async def check(self, ref: RemoteRef) -> Any:
        return self.given["check"] if ref.key == "odd" else Check(exists=True)

    async def push(self, item: PushItem, source: SourceSecret) -> Any:
        del source
        return self.given["push"] if item.remote.key == "odd" else PushOutcome.CREATED

    async def delete(self, item: DeleteItem) -> Any:
        return self.given["delete"] if item.remote.key == "odd" else True


@store_kind(kind="OddBatch", plural="oddbatches")
class OddBatch(_Odd, Store[OddConfig]):
    @reads("not_found")
    async def get_many(self, refs: Sequence[RemoteRef]) -> Any:
        del refs
        return self.given["get_many"]


@generator_kind(kind="OddGenerator", plural="oddgenerators")
class OddGenerator(_Odd, Generator[OddConfig]):
    async def generate(self, request: GenerateRequest) -> Any:
        del request
        return self.given["generate"]


PROVIDER = Provider(name="odd", version="1", kinds=(Odd, OddBatch, OddGenerator))
ITEMS = (GetItem("1", RemoteRef("odd")), GetItem("2", RemoteRef("even")))


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[InMemory]:
    monkeypatch.setattr(_Odd, "given", {})
    async with InMemory(PROVIDER) as provider:
        yield provider


def message_of(outcome: object) -> str:
    assert isinstance(outcome, ProviderError)
    assert outcome.reason is ErrorReason.INTERNAL
    assert PLANTED not in outcome.message
    return outcome.message


async def failure_of(call: Any) -> str:
    with pytest.raises(ProviderError) as caught:
        await call
    return message_of(caught.value)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(5432, "int", id="a number, which would be as many zeros"),
        pytest.param([67, 65], "list", id="a list of numbers"),
        pytest.param(PLANTED, "str", id="text"),
        pytest.param(None, "NoneType", id="nothing"),
        pytest.param(Value(PLANTED), "str", id="text in a Value"),  # type: ignore[arg-type]  # the author's mistake
    ],
)
async def test_a_value_that_is_no_bytes_fails_alone(provider: InMemory, answer: object, kind: str) -> None:
    Odd.given["get"] = answer

    odd, even = await provider.get(call_context(Odd), ITEMS)

    assert message_of(odd.outcome) == f"the provider failed: get returned {kind}; it must return bytes"
    assert even.outcome == SecretBytes(b"even")


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        pytest.param({"odd": b"1", "even": b"2"}, "get_many returned dict", id="a mapping"),
        pytest.param(None, "get_many returned NoneType", id="nothing"),
        pytest.param(b"12", "get_many returned bytes", id="one value"),
        pytest.param([b"1"], "get_many returned 1 results for 2 references", id="a key forgotten"),
        pytest.param([b"1", b"2", b"3"], "get_many returned 3 results for 2 references", id="a key not asked for"),
    ],
)
async def test_results_that_belong_to_no_reference_are_refused(
    provider: InMemory, answers: object, problem: str
) -> None:
    OddBatch.given["get_many"] = answers

    assert problem in await failure_of(provider.get(call_context(OddBatch), ITEMS))


async def test_one_result_of_a_batch_that_is_none_fails_alone(provider: InMemory) -> None:
    OddBatch.given["get_many"] = [KeyError(PLANTED), b"even"]
    raised = await provider.get(call_context(OddBatch), ITEMS)
    OddBatch.given["get_many"] = [None, not_found("even")]
    empty = await provider.get(call_context(OddBatch), ITEMS)

    assert message_of(raised[0].outcome) == "the provider failed: KeyError"
    assert raised[1].outcome == SecretBytes(b"even")
    assert "get_many returned NoneType" in message_of(empty[0].outcome)
    assert isinstance(empty[1].outcome, ProviderError)
    assert empty[1].outcome.is_not_found


async def test_maps_are_made_from_the_batch_that_the_values_come_in(provider: InMemory) -> None:
    OddBatch.given["get_many"] = [Value.of(b'{"user":"anna","port":1}', version="7"), b"no object"]
    items = (GetItem("1", RemoteRef("odd"), Shape.MAP), GetItem("2", RemoteRef("even"), Shape.MAP))

    made, refused = await provider.get(call_context(OddBatch), items)

    assert made.outcome == {"user": SecretBytes(b"anna"), "port": SecretBytes(b"1")}
    assert made.metadata.provider_version == "7"
    assert isinstance(refused.outcome, ProviderError)
    assert refused.outcome.reason is ErrorReason.BACKEND_ERROR


def test_a_store_that_reads_in_batches_says_so_of_what_is_absent() -> None:
    """R59: the mark is on the method that the author wrote."""
    assert Operation.NOT_FOUND_SEMANTICS in OddBatch.OPERATIONS


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param({"port": 5432}, "get_map returned int; it must return bytes", id="a number in it"),
        pytest.param([("a", b"1")], "get_map returned list", id="no mapping"),
        pytest.param({1: b"x"}, "get_map returned int; it must return str", id="a name that is none"),
    ],
)
async def test_a_map_that_is_none_fails(provider: InMemory, answer: object, problem: str) -> None:
    Odd.given["get_map"] = answer

    result = await provider.get_one(call_context(Odd), "odd", shape=Shape.MAP)

    assert problem in message_of(result.outcome)


async def _returned(answer: object) -> object:
    return answer


async def _yielded(answer: object) -> AsyncIterator[object]:
    yield answer


@pytest.mark.parametrize(
    ("find", "problem"),
    [
        pytest.param(
            lambda: _returned([Found("a", SecretBytes(b"1"))]), 'an async generator: use "yield"', id="a list at once"
        ),
        pytest.param(lambda: _yielded(("a", b"1")), "find returned tuple", id="a pair"),
        pytest.param(lambda: _yielded(Found("a", 7)), "find returned int", id="a number"),  # type: ignore[arg-type]  # the author's mistake
    ],
)
async def test_a_search_that_does_not_yield_what_it_found_fails(provider: InMemory, find: Any, problem: str) -> None:
    Odd.given["find"] = find

    assert problem in await failure_of(provider.find(call_context(Odd), FindQuery(name_regexp=".")))


async def test_found_bytes_need_no_wrapping(provider: InMemory) -> None:
    Odd.given["find"] = lambda: _yielded(Found("a", b"1"))  # type: ignore[arg-type]  # as `get` may answer

    assert await provider.find(call_context(Odd), FindQuery(name_regexp=".")) == (Found("a", SecretBytes(b"1")),)


@pytest.mark.parametrize("answer", [True, None], ids=["a bool", "nothing"])
async def test_a_check_that_is_none_fails_alone(provider: InMemory, answer: object) -> None:
    Odd.given["check"] = answer

    odd, even = await provider.check(call_context(Odd), ITEMS)

    assert "it must return Check" in message_of(odd.error)
    assert even.exists


@pytest.mark.parametrize("answer", [None, True, "CREATED", Pushed(None)], ids=["nothing", "a bool", "text", "a Pushed"])  # type: ignore[arg-type]  # the author's mistake
async def test_a_push_without_outcome_fails_alone(provider: InMemory, answer: object) -> None:
    Odd.given["push"] = answer
    items = tuple(PushItem(key, RemoteRef(key), SecretBytes(PLANTED.encode())) for key in ("odd", "even"))

    odd, even = await provider.push(call_context(Odd), PushBatch(items, SourceSecret(), "once"))

    assert "it must return PushOutcome or Pushed" in message_of(odd.outcome)
    assert even.outcome is PushOutcome.CREATED


async def test_a_deletion_that_says_something_else_fails_alone(provider: InMemory) -> None:
    Odd.given["delete"] = "deleted"
    items = tuple(DeleteItem(key, RemoteRef(key)) for key in ("odd", "even"))

    odd, even = await provider.delete(call_context(Odd), DeleteBatch(items, "once"))

    assert "delete returned str; it must return bool" in message_of(odd.error)
    assert even.existed


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        pytest.param({"validate": None}, "validate returned NoneType", id="no validation"),
        pytest.param({"check_config": "careful"}, "check_config returned str", id="one warning, not a tuple"),
        pytest.param({"check_config": None}, "check_config returned NoneType", id="no warnings at all"),
    ],
)
async def test_a_validation_that_is_none_fails(provider: InMemory, given: dict[str, Any], problem: str) -> None:
    Odd.given.update(given)

    assert problem in await failure_of(provider.validate(call_context(Odd), role=KindRole.STORE))


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(None, "generate returned NoneType", id="nothing"),
        pytest.param({"pin": 1234}, "generate returned int; it must return bytes", id="a number"),
        pytest.param({"pin": PLANTED}, "generate returned str; it must return bytes", id="text"),
        pytest.param(Generated({"pin": 7}), "generate returned int", id="a number in Generated"),  # type: ignore[dict-item]  # the author's mistake
    ],
)
async def test_generated_values_that_are_no_bytes_fail(provider: InMemory, answer: object, problem: str) -> None:
    OddGenerator.given["generate"] = answer

    assert problem in await failure_of(provider.generate(call_context(OddGenerator), GenerateRequest("once")))
