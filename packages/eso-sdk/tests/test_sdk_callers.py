"""The session of a call: callers separated, tokens renewed in place, v1 blocks distinguished, writes grouped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import pytest

from eso_api.references import SecretKeySelector, ServiceAccountSelector
from eso_api.shapes import Fragment
from eso_api.values import SecretBytes
from eso_sdk import (
    ALWAYS,
    REFERENCE,
    Provider,
    Pushed,
    Store,
    annotation,
    audiences,
    default_key,
    lifetime,
    pushes,
    sibling,
    store_kind,
    when,
)
from eso_sdk.credentials import patterns_of
from eso_sdk.errors import backend_error
from eso_sdk.provider import served_kind
from eso_sdk.testing import InMemory, call_context
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    AudienceRule,
    AudienceSource,
    Context,
    Credential,
    CredentialKind,
    CredentialPath,
    DeleteBatch,
    DeleteItem,
    ObjectRef,
    Operation,
    PushBatch,
    PushItem,
    PushOutcome,
    PushResult,
    RemoteRef,
    SourceSecret,
    SpecCondition,
    Token,
)
from eso_wire.versions import ProtocolVersion


class Config(Fragment, frozen=True, kw_only=True):
    """Where results come from."""

    tags: str = ""
    service: str = ""
    account_ref: ServiceAccountSelector | None = None


class Caller(Store[Config]):
    """Answers with the namespace for which its session was opened."""

    async def open(self) -> None:
        self.opened_for = self.call.caller.namespace

    async def get(self, ref: RemoteRef) -> bytes:
        if ref.key == "token" and self.config.account_ref is not None:
            return self.token(self.config.account_ref).token.reveal()
        return self.opened_for.encode()


@store_kind(kind="Always", plural="always", cluster="ClusterAlways", caller_namespace=ALWAYS)
class Always(Caller):
    pass


@store_kind(kind="Tagged", plural="tagged", caller_namespace=when("/tags", unless=("", "None")))
class Tagged(Caller):
    pass


@store_kind(kind="Plain", plural="plains", v1_key="plain", v1_when=SpecCondition("/service", ("One",)))
class Plain(Caller):
    pass


@store_kind(kind="Second", plural="seconds", v1_key="plain", v1_when=SpecCondition("/service", ("Two",)))
class Second(Caller):
    async def get(self, ref: RemoteRef) -> bytes:
        return b"second " + ref.key.encode()


WRITTEN: list[tuple[str, ...]] = []
CANARY = b"CANARY-of-a-policy"


@store_kind(kind="Grouped", plural="groupeds")
class Grouped(Store[Config]):
    """Writes the properties of a key together."""

    @pushes("if_absent")
    async def push_many(
        self, items: Sequence[PushItem], _: SourceSecret
    ) -> Sequence[PushOutcome | Pushed | ProviderError]:
        WRITTEN.append(tuple(item.remote.property for item in items))
        if items[0].remote.key == "echo":
            raise backend_error(f"the backend says {CANARY.decode()}")
        if items[0].remote.key == "broken":
            raise backend_error("no room")
        return [
            backend_error("not this one") if item.remote.property == "bad" else Pushed(PushOutcome.UPDATED, "7")
            for item in items
        ]

    async def delete_many(self, items: Sequence[DeleteItem]) -> Sequence[bool | ProviderError]:
        WRITTEN.append(tuple(item.remote.property for item in items))
        return [item.remote.property == "there" for item in items]


@store_kind(kind="InTurn", plural="inturns")
class InTurn(Grouped):
    """Writes groups, and deletes one property at a time by rewriting the whole value."""

    document: ClassVar[frozenset[str]] = frozenset()

    delete_many = Store.delete_many

    async def delete(self, item: DeleteItem) -> bool:
        before = InTurn.document
        await asyncio.sleep(0)
        InTurn.document = before - {item.remote.property}
        return item.remote.property in before


PROVIDER = Provider(name="callers", version="1", kinds=(Always, Tagged, Plain, Second, Grouped, InTurn))


@pytest.fixture
async def provider() -> AsyncIterator[InMemory]:
    WRITTEN.clear()
    async with InMemory(PROVIDER) as served:
        yield served


def shared(kind: Any, namespace: str, spec: dict[str, Any] | None = None, **changes: Any) -> Context:
    """Build a call through a cluster-scoped store without an auth namespace."""
    context = call_context(kind, spec, namespace=namespace, auth_namespace="", auth_namespace_pinned=True, **changes)
    store = ObjectRef("external-secrets.io/v1", "ClusterSecretStore", "", "shared", uid="uid-3", generation=1)
    return replace(context, store=store, config=replace(context.config, ref=store))


async def value(provider: InMemory, context: Context, key: str = "who") -> str:
    outcome = (await provider.get_one(context, key)).outcome
    assert isinstance(outcome, SecretBytes), outcome
    return outcome.reveal().decode()


@pytest.mark.parametrize(
    ("kind", "spec", "apart"),
    [
        pytest.param(Always, {}, True, id="a kind that always depends on the caller"),
        pytest.param(Tagged, {"tags": "Simple"}, True, id="a configuration that does"),
        pytest.param(Tagged, {"tags": "None"}, False, id="a configuration that does not"),
        pytest.param(Plain, {}, False, id="a kind that does not"),
    ],
)
async def test_two_namespaces_share_a_session_only_where_results_are_the_same(
    provider: InMemory, kind: Any, spec: dict[str, Any], apart: bool
) -> None:
    seen = [await value(provider, shared(kind, namespace, spec)) for namespace in ("red", "blue", "red")]

    assert seen == (["red", "blue", "red"] if apart else ["red", "red", "red"])


async def test_an_older_operator_is_refused_where_it_would_mix_up_namespaces(provider: InMemory) -> None:
    older = ProtocolVersion(2, 1)

    with pytest.raises(ProviderError, match="upgrade the operator") as caught:
        await provider.get_one(shared(Always, "red", protocol=older), "who")

    assert caught.value.reason is ErrorReason.PROTOCOL_INCOMPATIBLE
    assert await value(provider, call_context(Always, {}, namespace="red", protocol=older)) == "red"
    assert await value(provider, shared(Plain, "red", protocol=older)) == "red"


def robot(token: str, **changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"audiences": ("a",), "namespace": "team", "name": "robot", "uid": "1"}
    return {"/accountRef": Token(SecretBytes(token.encode()), **(given | changes))}


async def test_a_newer_token_of_the_same_account_reaches_the_session_that_is_open(provider: InMemory) -> None:
    spec = {"accountRef": {"name": "robot"}}
    read = [await value(provider, call_context(Plain, spec, robot(token)), "token") for token in ("first", "second")]

    assert read == ["first", "second"]
    assert len(provider.sessions) == 1


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"uid": "2"}, id="an account of the same name that was made anew"),
        pytest.param({"annotations": {"role": "other"}}, id="another annotation: it may name another role"),
        pytest.param({"audiences": ("b",)}, id="another audience"),
        pytest.param({"namespace": "", "name": "", "uid": ""}, id="an older operator says only the token"),
    ],
)
async def test_a_token_of_another_account_opens_another_session(provider: InMemory, changes: dict[str, Any]) -> None:
    spec = {"accountRef": {"name": "robot"}}

    await value(provider, call_context(Plain, spec, robot("first")), "token")
    await value(provider, call_context(Plain, spec, robot("first", **changes)), "token")

    assert len(provider.sessions) == 2


async def test_a_v1_block_is_served_by_the_kind_it_is_for_also_if_the_operator_named_the_first(
    provider: InMemory,
) -> None:
    """An operator of an older minor takes the first kind with the key."""
    assert await value(provider, shared(Plain, "red", {"service": "Two"})) == "second who"
    assert await value(provider, shared(Plain, "red", {"service": "One"})) == "red"


def push(*places: tuple[str, str]) -> PushBatch:
    items = [PushItem(f"{key}/{name}", RemoteRef(key, property=name), SecretBytes(b"v")) for key, name in places]
    return PushBatch(tuple(items), idempotency_key="once")


async def test_items_of_one_remote_key_are_written_together_and_answered_one_by_one(provider: InMemory) -> None:
    batch = push(("a", "1"), ("b", "1"), ("a", "bad"), ("a", "2"))

    results = await provider.push(call_context(Grouped), batch)

    assert sorted(WRITTEN) == [("1",), ("1", "bad", "2")]
    assert [result.item_id for result in results] == ["a/1", "b/1", "a/bad", "a/2"]
    assert [_reason(result) for result in results] == ["UPDATED", "UPDATED", "BACKEND_ERROR", "UPDATED"]


async def test_a_failure_of_the_group_is_one_of_each_item_and_of_no_other_key(provider: InMemory) -> None:
    results = await provider.push(call_context(Grouped), push(("broken", "1"), ("broken", "2"), ("fine", "1")))

    assert [_reason(result) for result in results] == ["BACKEND_ERROR", "BACKEND_ERROR", "UPDATED"]


async def test_secrets_that_push_metadata_refers_to_are_masked_in_errors(provider: InMemory) -> None:
    item = PushItem("1", RemoteRef("echo"), SecretBytes(b"v"), resolved=(Credential("/policy", SecretBytes(CANARY)),))

    (result,) = await provider.push(call_context(Grouped), PushBatch((item,), idempotency_key="once"))

    assert isinstance(result.outcome, ProviderError)
    assert CANARY.decode() not in result.outcome.message
    assert "the backend says" in result.outcome.message


async def test_properties_of_one_key_are_removed_together(provider: InMemory) -> None:
    items = tuple(DeleteItem(name, RemoteRef("a", property=name)) for name in ("there", "gone"))

    results = await provider.delete(call_context(Grouped), DeleteBatch(items, "once"))

    assert WRITTEN == [("there", "gone")]
    assert [result.existed for result in results] == [True, False]


async def test_properties_of_one_key_are_removed_in_turn_where_the_author_removes_one_at_a_time(
    provider: InMemory,
) -> None:
    """Concurrent deletions would restore each other's property."""
    InTurn.document = frozenset({"1", "2", "3"})
    items = tuple(DeleteItem(name, RemoteRef("a", property=name)) for name in ("1", "2"))

    results = await provider.delete(call_context(InTurn), DeleteBatch(items, "once"))

    assert [result.existed for result in results] == [True, True]
    assert InTurn.document == {"3"}


def test_a_store_that_writes_groups_says_so() -> None:
    assert served_kind(Grouped).operations == {
        Operation.PUSH,
        Operation.PUSH_GROUPED,
        Operation.PUSH_IF_ABSENT,
        Operation.DELETE,
    }


def _reason(result: PushResult) -> str:
    return str(result.outcome.reason if isinstance(result.outcome, ProviderError) else result.outcome)


def test_marks_of_a_field_become_terms_of_the_handshake() -> None:
    class Marked(Fragment, frozen=True, kw_only=True):
        aws: Annotated[ServiceAccountSelector, audiences(annotation("aud", otherwise="sts"))] | None = None
        jwt: Annotated[
            ServiceAccountSelector,
            audiences(REFERENCE, sibling("1/audiences", otherwise="vault")),
            lifetime(600, sibling="1/seconds"),
        ]
        fixed: Annotated[ServiceAccountSelector, audiences("a", "b"), lifetime(900)] | None = None
        key: Annotated[SecretKeySelector, default_key("tls.crt")] | None = None

    account = CredentialKind.SERVICE_ACCOUNT
    rule = AudienceRule(AudienceSource.ANNOTATION, ("aud",), otherwise=("sts",))
    beside = AudienceRule(AudienceSource.SPEC, ("1/audiences",), otherwise=("vault",))
    own = AudienceRule(AudienceSource.REFERENCE)
    assert {path.pattern: path for path in patterns_of(Marked)} == {
        "/aws": CredentialPath("/aws", account, ("sts",), audience_rules=(rule, own)),
        "/jwt": CredentialPath(
            "/jwt",
            account,
            ("vault",),
            audience_rules=(own, beside),
            lifetime_seconds=600,
            lifetime_pointer="1/seconds",
        ),
        "/fixed": CredentialPath("/fixed", account, ("a", "b"), lifetime_seconds=900),
        "/key": CredentialPath("/key", CredentialKind.SECRET_KEY, default_key="tls.crt"),
    }
