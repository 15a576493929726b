"""The whole interface of a provider by operation: an author sees each request and the full spec (R96)."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import structlog

from eso_api.shapes import Fragment
from eso_api.values import SecretBytes
from eso_sdk import Check, Provider, Store, finds, store_kind
from eso_sdk.errors import not_found
from eso_sdk.testing import InMemory, call_context
from eso_wire.values import (
    DeleteBatch,
    DeleteItem,
    FindQuery,
    Found,
    GetItem,
    Operation,
    PushBatch,
    PushItem,
    PushOutcome,
    RemoteRef,
    SourceSecret,
    Validation,
    ValidationState,
)

SEEN: list[tuple[str, str, str]] = []
"""The author's requests: operation, remote key, and a field deep in the configuration."""


class Region(Fragment, frozen=True, kw_only=True):
    """A part of the configuration."""

    name: str


class WitnessConfig(Fragment, frozen=True, kw_only=True):
    """A configuration of a provider's own."""

    region: Region


@store_kind(kind="Witness", plural="witnesses")
class Witness(Store[WitnessConfig]):
    """Records what reaches it."""

    def _note(self, operation: str, key: str = "") -> None:
        SEEN.append((operation, key, self.config.region.name))

    async def get(self, ref: RemoteRef) -> bytes:
        self._note("GetSecret", ref.key)
        if ref.key == "gone":
            raise not_found(ref.key)
        return b"value"

    @finds("name")
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        self._note("GetAllSecrets", query.name_regexp)
        yield Found("a", SecretBytes(b"value"))

    async def check(self, ref: RemoteRef) -> Check:
        self._note("SecretExists", ref.key)
        return Check(exists=True)

    async def push(self, item: PushItem, source: SourceSecret) -> PushOutcome:
        self._note("PushSecret", f"{source.type} {item.remote.key}")
        return PushOutcome.CREATED

    async def delete(self, item: DeleteItem) -> bool:
        self._note("DeleteSecret", item.remote.key)
        return True

    async def validate(self) -> Validation:
        self._note("Validate")
        return Validation(ValidationState.READY, warnings=("the region is far away",))


WITNESS = Provider(name="witness", version="1.0.0", kinds=(Witness,))
CONTEXT = call_context(Witness, {"region": {"name": "eu-central-1"}})
REMOTE = RemoteRef("key")
PUSHED = PushItem("i", REMOTE, SecretBytes(b"value"))

Call = Callable[[InMemory], Awaitable[Any]]


@pytest.fixture
async def provider() -> AsyncIterator[InMemory]:
    SEEN.clear()
    async with InMemory(WITNESS) as served:
        yield served


@pytest.mark.parametrize(
    ("call", "seen"),
    [
        pytest.param(lambda p: p.get_one(CONTEXT, "key"), ("GetSecret", "key"), id="GetSecret"),
        pytest.param(
            lambda p: p.push(CONTEXT, PushBatch((PUSHED,), SourceSecret(type="Opaque"), "k")),
            ("PushSecret", "Opaque key"),
            id="PushSecret, with the Secret it comes from",
        ),
        pytest.param(
            lambda p: p.delete(CONTEXT, DeleteBatch((DeleteItem("i", REMOTE),), "k")),
            ("DeleteSecret", "key"),
            id="DeleteSecret",
        ),
        pytest.param(lambda p: p.check(CONTEXT, [GetItem("i", REMOTE)]), ("SecretExists", "key"), id="SecretExists"),
        pytest.param(
            lambda p: p.find(CONTEXT, FindQuery(name_regexp="^a")), ("GetAllSecrets", "^a"), id="GetAllSecrets"
        ),
        pytest.param(lambda p: p.validate(CONTEXT), ("Validate", ""), id="Validate"),
    ],
)
async def test_an_operation_reaches_its_author_with_the_whole_configuration(
    provider: InMemory, call: Call, seen: tuple[str, str]
) -> None:
    await call(provider)

    assert (*seen, "eu-central-1") in SEEN


async def test_a_validation_may_carry_warnings(provider: InMemory) -> None:
    answer = await provider.validate(CONTEXT)

    assert (answer.state, answer.warnings) == (ValidationState.READY, ("the region is far away",))


async def test_capabilities_are_what_the_author_wrote(provider: InMemory) -> None:
    (kind,) = (await provider.handshake()).kinds

    assert kind.operations >= {
        Operation.GET,
        Operation.FIND_BY_NAME,
        Operation.EXISTS,
        Operation.PUSH,
        Operation.DELETE,
    }
    assert Operation.SUBSCRIBE not in kind.operations
    assert Operation.FIND_BY_TAGS not in kind.operations


async def test_the_log_tells_of_items_that_failed_and_of_the_store_they_were_asked_through(provider: InMemory) -> None:
    """R172: the call itself succeeds, so its code would not show it."""
    items = [GetItem(key, RemoteRef(key.rstrip("0123456789"))) for key in ("a", "gone1", "gone2")]

    with structlog.testing.capture_logs() as lines:
        await provider.get(CONTEXT, items)

    (line,) = (line for line in lines if line["event"] == "call handled")
    assert (line["code"], line["failed"], line["store"]) == ("OK", "2 SECRET_NOT_FOUND", "SecretStore team/store")
