"""Calls with the token of a service account, verified with the issuer's published keys, over real sockets.

Rows R139, R158.
"""

import base64
import hmac
import io
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
import structlog
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from grpc import aio

from eso_sdk.accounts import CallAuth, JwksSettings, ServiceAccount, TokenPolicy
from eso_sdk.frame import UNARY
from eso_sdk.jwks import LEEWAY_SECONDS
from eso_sdk.logs import configure
from eso_sdk.testing import Client, ProviderServer, call_context
from eso_sdk.testing.issuer import AUDIENCE, ISSUER, Issuer
from eso_sdk.testing.scripted import SCRIPTED, Script, Scripted, ScriptedMaker
from eso_sdk.testing.server import CLIENT_ID
from eso_wire import codec
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    Context,
    DeleteBatch,
    FindQuery,
    GetItem,
    ObjectRef,
    PushBatch,
    RemoteRef,
    SubscribeMessage,
    SubscribeOpen,
)
from kubebase.clock import SystemClock
from kubebase.testing.clock import START, VirtualClock


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with Issuer.publishing() as made:
        yield made


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def verifying(issuer: Issuer, clock: VirtualClock, **changes: Any) -> ProviderServer:
    auth = replace(CallAuth((AUDIENCE,), JwksSettings(issuer.address, ISSUER)), **changes)
    return ProviderServer(SCRIPTED, clock, call_auth=auth)


def reading(script: Script | None = None, **changes: Any) -> Context:
    return call_context(Scripted, {"script": (script or Script.new(values={"a": b"1"})).name}, **changes)


async def refusal(client: Client, context: Context | None = None) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await client.get_one(context or reading(), "a")
    return caught.value


# --- whose token it is -----------------------------------------------------------------------------------------------


async def test_the_account_of_a_good_token_reaches_the_author(issuer: Issuer, clock: VirtualClock) -> None:
    seen: list[ServiceAccount | None] = []

    async def get(store: Scripted, _: RemoteRef) -> bytes:
        seen.append(store.call.account)
        return b"1"

    async with verifying(issuer, clock) as server:
        client = await server.connect_as(issuer.token())
        await client.get_one(reading(Script.new(get=get)), "a")

    assert seen == [ServiceAccount("team", "robot", "uid-robot")]


@pytest.mark.parametrize(
    ("claims", "problem"),
    [
        pytest.param({"iss": "https://other.test"}, "issuer", id="another issuer"),
        pytest.param({"aud": ["external-secrets-provider/other"]}, "not meant for this provider", id="for another"),
        pytest.param({"aud": None}, '"aud"', id="without an audience"),
        pytest.param({"exp": None}, '"exp"', id="for ever"),
        pytest.param({"sub": None}, '"sub"', id="without a subject"),
        pytest.param({"sub": "alice"}, "no service account", id="of a person"),
        pytest.param({"sub": "system:serviceaccount:team:robot:more"}, "no service account", id="an odd subject"),
        pytest.param({"exp": int(START.timestamp() - LEEWAY_SECONDS)}, "expired", id="expired"),
        pytest.param({"nbf": int(START.timestamp() + 3600)}, "not valid yet", id="of the future"),
        pytest.param({"exp": "soon"}, "malformed|not a number", id="a time that is none"),
    ],
)
async def test_a_token_that_does_not_fit_is_refused(
    issuer: Issuer, clock: VirtualClock, claims: dict[str, Any], problem: str
) -> None:
    token = issuer.token(**claims)
    async with verifying(issuer, clock) as server:
        error = await refusal(await server.connect_as(token))

    assert error.reason is ErrorReason.CREDENTIALS_REJECTED
    assert any(part in error.message for part in problem.split("|")), error.message
    assert token not in error.message
    assert "auth.serviceAccountRef" in error.message


def headed(issuer: Issuer, algorithm: str) -> str:
    """Return the claims of a valid token under another header."""
    header = json.dumps({"alg": algorithm, "kid": "first"}).encode()
    return f"{in_base64(header)}.{issuer.token().split('.')[1]}"


def in_base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def unsigned(issuer: Issuer) -> str:
    return f"{headed(issuer, 'none')}."


def signed_with_what_is_public(issuer: Issuer) -> str:
    """Sign with the classic confusion: the published key as the secret of a symmetric signature."""
    signed = headed(issuer, "HS256")
    public = issuer.keys["first"].public_key()
    secret = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return f"{signed}.{in_base64(hmac.digest(secret, signed.encode(), 'sha256'))}"


def signed_by_another(issuer: Issuer) -> str:
    return issuer.token(key=ec.generate_private_key(ec.SECP256R1()))


def signed_otherwise(issuer: Issuer) -> str:
    return issuer.token(algorithm="RS256", key=rsa.generate_private_key(65537, 2048))


def changed(issuer: Issuer) -> str:
    header, _, signature = issuer.token().split(".")
    other = issuer.token(sub="system:serviceaccount:kube-system:admin").split(".")[1]
    return f"{header}.{other}.{signature}"


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(unsigned, id="no signature"),
        pytest.param(signed_with_what_is_public, id="a symmetric signature"),
        pytest.param(signed_by_another, id="another key under a known id"),
        pytest.param(signed_otherwise, id="another algorithm under a known id"),
        pytest.param(changed, id="other claims"),
        pytest.param(lambda _: "rubbish", id="no JWT"),
        pytest.param(lambda _: "a.b.c", id="three parts of nothing"),
        pytest.param(lambda _: "x" * 17_000, id="too long"),
    ],
)
async def test_a_forged_token_is_refused(issuer: Issuer, clock: VirtualClock, forged: Callable[[Issuer], str]) -> None:
    async with verifying(issuer, clock) as server:
        error = await refusal(await server.connect_as(forged(issuer)))

    assert error.reason is ErrorReason.CREDENTIALS_REJECTED


async def test_an_expired_token_is_refused_although_it_was_good(issuer: Issuer, clock: VirtualClock) -> None:
    async with verifying(issuer, clock) as server:
        client = await server.connect_as(issuer.token())
        await client.get_one(reading(), "a")

        await clock.advance(3600 + LEEWAY_SECONDS)
        error = await refusal(client)

    assert "expired" in error.message


async def test_the_account_of_a_namespaced_store_is_of_its_namespace(issuer: Issuer, clock: VirtualClock) -> None:
    store = ObjectRef("secretstore.external-secrets.io/v2alpha1", "ClusterSecretStore", "", "store", uid="u")
    async with verifying(issuer, clock) as server:
        client = await server.connect_as(issuer.token(sub="system:serviceaccount:other:robot"))

        error = await refusal(client)
        shared = await client.get_one(reading(store=store), "a")

    assert error.reason is ErrorReason.NAMESPACE_DENIED
    assert '"other"' in error.message
    assert not isinstance(shared.outcome, ProviderError)


# --- calls without one -----------------------------------------------------------------------------------------------


async def nothing() -> AsyncIterator[SubscribeMessage]:
    yield SubscribeOpen(reading(), (), "")


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda client: client.get_one(reading(), "a"), id="get"),
        pytest.param(lambda client: client.validate(reading()), id="validate"),
        pytest.param(lambda client: client.find(reading(), FindQuery(name_regexp=".")), id="find"),
        pytest.param(lambda client: client.check(reading(), [GetItem("1", RemoteRef("a"))]), id="check"),
        pytest.param(lambda client: client.push(reading(), PushBatch(())), id="push"),
        pytest.param(lambda client: client.delete(reading(), DeleteBatch(())), id="delete"),
        pytest.param(lambda client: anext(client.subscribe(nothing())), id="subscribe"),
        pytest.param(
            lambda client: client.generate(call_context(ScriptedMaker, {"script": Script.new().name})), id="generate"
        ),
    ],
)
async def test_a_call_without_a_token_is_refused_where_one_is_required(
    issuer: Issuer, clock: VirtualClock, call: Callable[[Client], Any]
) -> None:
    async with verifying(issuer, clock) as server:
        with pytest.raises(ProviderError) as caught:
            await call(server.client)

    assert caught.value.reason is ErrorReason.CREDENTIALS_REJECTED
    assert "auth.serviceAccountRef" in caught.value.message


async def test_the_refusal_is_unauthenticated_on_the_wire(issuer: Issuer, clock: VirtualClock) -> None:
    request = codec.to_get_request(reading(), [GetItem("1", RemoteRef("a"))]).SerializeToString()
    async with verifying(issuer, clock) as server:
        channel: Any = await server.channel(server.authority.leaf(CLIENT_ID))
        with pytest.raises(aio.AioRpcError) as caught:
            await channel.unary_unary(UNARY[2].path)(request, timeout=10)

    assert caught.value.code().name == "UNAUTHENTICATED"


async def test_a_handshake_needs_no_token(issuer: Issuer, clock: VirtualClock) -> None:
    async with verifying(issuer, clock) as server:
        answer = await server.client.handshake()

    assert answer.provider_name == "scripted"


async def test_where_tokens_are_optional_only_bad_ones_are_refused(issuer: Issuer, clock: VirtualClock) -> None:
    seen: list[ServiceAccount | None] = []

    async def get(store: Scripted, _: RemoteRef) -> bytes:
        seen.append(store.call.account)
        return b"1"

    context = reading(Script.new(get=get))
    async with verifying(issuer, clock, policy=TokenPolicy.OPTIONAL) as server:
        await server.client.get_one(context, "a")
        error = await refusal(await server.connect_as(signed_by_another(issuer)), context)

    assert seen == [None]
    assert error.reason is ErrorReason.CREDENTIALS_REJECTED


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param((("authorization", "Basic dXNlcjpwYXNz"),), id="another scheme"),
        pytest.param((("authorization", "Bearer "),), id="an empty token"),
        pytest.param((("authorization", "Bearer a"), ("authorization", "Bearer b")), id="two tokens"),
    ],
)
async def test_odd_metadata_is_refused(
    issuer: Issuer, clock: VirtualClock, metadata: tuple[tuple[str, str], ...]
) -> None:
    async with verifying(issuer, clock) as server:
        client = await server.connect(server.authority.leaf(CLIENT_ID), metadata)
        error = await refusal(client)

    assert error.reason is ErrorReason.CREDENTIALS_REJECTED


async def test_an_unverified_token_is_ignored_and_logged_once(clock: VirtualClock) -> None:
    seen: list[ServiceAccount | None] = []

    async def get(store: Scripted, _: RemoteRef) -> bytes:
        seen.append(store.call.account)
        return b"1"

    context = reading(Script.new(get=get))
    with structlog.testing.capture_logs() as lines:
        async with ProviderServer(SCRIPTED, clock) as server:
            client = await server.connect_as("CANARY-TOKEN")
            await client.get_one(context, "a")
            await client.get_one(context, "a")

    warnings = [line for line in lines if line["log_level"] == "warning"]
    assert seen == [None, None]
    assert [line["event"] for line in warnings] == [
        "tokens of calls are not verified; see --token-jwks and --token-review"
    ]
    assert "CANARY" not in str(lines)


# --- sessions --------------------------------------------------------------------------------------------------------


async def test_accounts_share_no_session_and_a_renewed_token_keeps_its_own(issuer: Issuer, clock: VirtualClock) -> None:
    opened: list[ServiceAccount | None] = []

    async def opening(store: Scripted) -> None:
        opened.append(store.call.account)

    context = reading(Script.new(values={"a": b"1"}, open=opening))
    async with verifying(issuer, clock, policy=TokenPolicy.OPTIONAL) as server:
        for claims in (
            {},
            {"jti": "renewed"},
            {"sub": "system:serviceaccount:team:other"},
            {"kubernetes.io": {"serviceaccount": {"uid": "made anew"}}},
        ):
            client = await server.connect_as(issuer.token(**claims))
            await client.get_one(context, "a")
        await server.client.get_one(context, "a")

    assert opened == [
        ServiceAccount("team", "robot", "uid-robot"),
        ServiceAccount("team", "other", "uid-robot"),
        ServiceAccount("team", "robot", "made anew"),
        None,
    ]


# --- what is logged --------------------------------------------------------------------------------------------------


async def test_logs_name_the_account_and_show_no_token(issuer: Issuer, clock: VirtualClock) -> None:
    stream = io.StringIO()
    configure(SystemClock(), stream)
    good, bad = issuer.token(), signed_by_another(issuer)
    try:
        async with verifying(issuer, clock) as server:
            await (await server.connect_as(good)).get_one(reading(), "a")
            await refusal(await server.connect_as(bad))
            words = stream.getvalue() + server.server.metrics.exposition().decode()
    finally:
        structlog.reset_defaults()

    calls = [line for line in map(json.loads, stream.getvalue().splitlines()) if line["msg"] == "call handled"]
    assert [(line["code"], line.get("account")) for line in calls] == [("OK", "team/robot"), ("UNAUTHENTICATED", None)]
    assert all(part not in words for token in (good, bad) for part in token.split("."))
