"""Calls carry the token of a service account: verified with the keys its issuer publishes, over real sockets.

Rows R139, R158.
"""

import argparse
import asyncio
import base64
import hmac
import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
import structlog
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from grpc import aio

from eso_sdk.accounts import ServiceAccount, TokenPolicy
from eso_sdk.callauth import CallAuth, CallAuthError, add_flags, call_auth
from eso_sdk.jwks import KEEP_SECONDS, LEEWAY_SECONDS, PAUSE_SECONDS, REFRESH_SECONDS, JwksSettings
from eso_sdk.logs import configure
from eso_sdk.main import run
from eso_sdk.methods import UNARY
from eso_sdk.outbound import ANSWER_SECONDS, MAX_ANSWER_BYTES
from eso_sdk.testing import Client, ProviderServer, call_context
from eso_sdk.testing.scripted import SCRIPTED, Script, Scripted, ScriptedMaker
from eso_sdk.testing.server import CLIENT_ID
from eso_sdk.tokenreview import POD_FOLDER, ReviewSettings
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
from kuberun.clock import SystemClock
from kuberun.testing.clock import START, VirtualClock

ISSUER = "https://issuer.test"
AUDIENCE = "external-secrets-provider/scripted"


@dataclass
class Issuer:
    """Signs tokens, and publishes its keys over HTTP."""

    keys: dict[str, Any] = field(default_factory=dict, repr=False)
    asked: int = 0
    respond: Callable[[], web.Response] | None = None
    address: str = ""
    hold: asyncio.Event | None = None

    def add_key(self, key_id: str) -> None:
        self.keys[key_id] = ec.generate_private_key(ec.SECP256R1())

    def document(self) -> str:
        published = [
            {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key())), "kid": key_id, "alg": "ES256"}
            for key_id, key in self.keys.items()
        ]
        return json.dumps({"keys": published})

    def token(self, key_id: str = "first", *, algorithm: str = "ES256", key: Any = None, **claims: Any) -> str:
        said = {
            "iss": ISSUER,
            "aud": [AUDIENCE],
            "sub": "system:serviceaccount:team:robot",
            "exp": int((START + timedelta(hours=1)).timestamp()),
            "kubernetes.io": {"serviceaccount": {"name": "robot", "uid": "uid-robot"}},
            **claims,
        }
        said = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(said, key or self.keys[key_id], algorithm=algorithm, headers={"kid": key_id})

    async def answer(self, _: web.Request) -> web.Response:
        self.asked += 1
        if self.hold is not None:
            await self.hold.wait()
        return self.respond() if self.respond else web.Response(text=self.document(), content_type="application/json")

    @asynccontextmanager
    async def published(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_get("/jwks", self.answer)
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.address = f"http://127.0.0.1:{runner.addresses[0][1]}/jwks"
        try:
            yield
        finally:
            await runner.cleanup()


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    made = Issuer()
    made.add_key("first")
    async with made.published():
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
        pytest.param({"aud": None}, '"aud"', id="for nobody in particular"),
        pytest.param({"exp": None}, '"exp"', id="for ever"),
        pytest.param({"sub": None}, '"sub"', id="of nobody"),
        pytest.param({"sub": "alice"}, "no service account", id="of a person"),
        pytest.param({"sub": "system:serviceaccount:team:robot:more"}, "no service account", id="an odd subject"),
        pytest.param({"exp": int(START.timestamp() - LEEWAY_SECONDS)}, "expired", id="expired"),
        pytest.param({"nbf": int(START.timestamp() + 3600)}, "not valid yet", id="of the future"),
        pytest.param({"exp": "soon"}, "malformed|no number", id="a time that is none"),
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
    """The claims of a good token under another header."""
    header = json.dumps({"alg": algorithm, "kid": "first"}).encode()
    return f"{in_base64(header)}.{issuer.token().split('.')[1]}"


def in_base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def unsigned(issuer: Issuer) -> str:
    return f"{headed(issuer, 'none')}."


def signed_with_what_is_public(issuer: Issuer) -> str:
    """The classic confusion: the published key as the secret of a symmetric signature."""
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


async def test_a_token_that_nobody_verifies_is_ignored_and_said_once(clock: VirtualClock) -> None:
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


# --- keys ------------------------------------------------------------------------------------------------------------


async def test_keys_are_fetched_once_for_many_calls(issuer: Issuer, clock: VirtualClock) -> None:
    async with verifying(issuer, clock) as server:
        client = await server.connect_as(issuer.token())
        await asyncio.gather(*(client.get_one(reading(), "a") for _ in range(20)))

    assert issuer.asked == 1


async def test_a_new_key_is_found_as_soon_as_a_token_names_it(issuer: Issuer, clock: VirtualClock) -> None:
    async with verifying(issuer, clock) as server:
        await (await server.connect_as(issuer.token())).get_one(reading(), "a")
        issuer.add_key("second")
        await clock.advance(PAUSE_SECONDS)

        got = await (await server.connect_as(issuer.token("second"))).get_one(reading(), "a")

    assert not isinstance(got.outcome, ProviderError)
    assert issuer.asked == 2


async def test_tokens_with_made_up_key_ids_do_not_make_the_issuer_busy(issuer: Issuer, clock: VirtualClock) -> None:
    stranger = Issuer()
    async with verifying(issuer, clock) as server:
        for number in range(10):
            stranger.add_key(f"made-up-{number}")
            error = await refusal(await server.connect_as(stranger.token(f"made-up-{number}")))
            assert error.reason is ErrorReason.CREDENTIALS_REJECTED

    assert issuer.asked == 1


async def test_a_withdrawn_key_is_no_longer_good(issuer: Issuer, clock: VirtualClock) -> None:
    token = issuer.token()
    async with verifying(issuer, clock) as server:
        client = await server.connect_as(token)
        await client.get_one(reading(), "a")
        issuer.keys.clear()
        issuer.add_key("second")

        await clock.advance(REFRESH_SECONDS)
        error = await refusal(client)

    assert error.reason is ErrorReason.CREDENTIALS_REJECTED
    assert "does not publish" in error.message


async def test_known_keys_outlast_an_issuer_that_is_away_but_not_for_ever(issuer: Issuer, clock: VirtualClock) -> None:
    token = issuer.token(exp=int((START + timedelta(days=1)).timestamp()))
    async with verifying(issuer, clock) as server:
        client = await server.connect_as(token)
        await client.get_one(reading(), "a")
        issuer.respond = lambda: web.Response(status=503)

        await clock.advance(REFRESH_SECONDS)
        still = await client.get_one(reading(), "a")
        await clock.advance(KEEP_SECONDS)
        error = await refusal(client)

    assert not isinstance(still.outcome, ProviderError)
    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert "503" in error.message


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(lambda: web.Response(status=500), id="an error"),
        pytest.param(lambda: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), id="a redirect"),
        pytest.param(lambda: web.Response(body=b"x" * (MAX_ANSWER_BYTES + 1)), id="far too much"),
        pytest.param(lambda: web.Response(text="no JSON"), id="no JSON"),
        pytest.param(lambda: web.Response(text='{"keys": []}'), id="no keys"),
        pytest.param(lambda: web.Response(text='{"keys": [{"kty": "oct", "kid": "first", "k": "AA"}]}'), id="a secret"),
        pytest.param(lambda: web.Response(text='{"keys": [{"kty": "EC", "kid": "first"}]}'), id="half a key"),
        pytest.param(lambda: web.Response(text="[" * 100_000), id="deep nesting"),
    ],
)
async def test_an_issuer_without_usable_keys_leaves_it_open_whether_a_token_is_good(
    issuer: Issuer, clock: VirtualClock, response: Callable[[], web.Response]
) -> None:
    """Not the caller's fault, so not a refusal: the operator tries again."""
    issuer.respond = response
    async with verifying(issuer, clock) as server:
        error = await refusal(await server.connect_as(issuer.token()))

    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE


async def test_an_issuer_that_does_not_answer_holds_a_call_up_for_seconds_only(
    issuer: Issuer, clock: VirtualClock
) -> None:
    issuer.hold = asyncio.Event()
    async with verifying(issuer, clock) as server, asyncio.TaskGroup() as group:
        client = await server.connect_as(issuer.token())
        failing = group.create_task(refusal(client))
        while not issuer.asked:  # noqa: ASYNC110 - the question comes over a socket, which sets no event
            await asyncio.sleep(0.01)
        await clock.advance(ANSWER_SECONDS)
        error = await failing
        issuer.hold.set()

    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert "did not answer" in error.message


async def test_keys_may_stand_in_a_file(issuer: Issuer, clock: VirtualClock, tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    auth = CallAuth((AUDIENCE,), JwksSettings(str(file), ISSUER))
    async with ProviderServer(SCRIPTED, clock, call_auth=auth) as server:
        client = await server.connect_as(issuer.token())
        missing = await refusal(client)
        file.write_text(issuer.document(), encoding="utf-8")
        await clock.advance(PAUSE_SECONDS)
        got = await client.get_one(reading(), "a")

    assert missing.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert str(file) in missing.message
    assert not isinstance(got.outcome, ProviderError)


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

    calls = [line for line in map(json.loads, stream.getvalue().splitlines()) if line["event"] == "call handled"]
    assert [(line["code"], line.get("account")) for line in calls] == [("OK", "team/robot"), ("UNAUTHENTICATED", None)]
    assert all(part not in words for token in (good, bad) for part in token.split("."))


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        pytest.param(["--token-audience=a"], "need --token-jwks or --token-review", id="an audience alone"),
        pytest.param(["--token-jwks=/k", "--token-issuer=i"], "--token-audience is needed", id="no audience"),
        pytest.param(["--token-jwks=/k", "--token-audience=a"], "needs --token-issuer", id="no issuer"),
        pytest.param(
            ["--token-jwks=/k", "--token-issuer=i", "--token-review", "--token-audience=a"], "exclude", id="both ways"
        ),
        pytest.param(
            ["--token-jwks=http://issuer.test/k", "--token-issuer=i", "--token-audience=a"], "https://", id="plain HTTP"
        ),
        pytest.param(["--token-review", "--token-audience=a"], "in a pod only", id="a review outside of a cluster"),
    ],
)
def test_flags_that_make_no_sense_end_the_start(
    flags: list[str],
    problem: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    code = run(SCRIPTED, [f"--tls-dir={tmp_path}", f"--allowed-client={CLIENT_ID}", *flags])

    assert code == 2
    assert problem in capsys.readouterr().err


def chosen(flags: list[str], environment: dict[str, str]) -> CallAuth | None:
    parser = argparse.ArgumentParser()
    add_flags(parser, environment)
    return call_auth(
        parser.parse_args(flags), {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    )


@pytest.mark.parametrize(
    ("flags", "environment", "expected"),
    [
        pytest.param([], {}, None, id="nothing is verified unless asked for"),
        pytest.param(
            ["--token-jwks=https://i.test/k", "--token-issuer=i", "--token-audience=a", "--token-audience=b"],
            {},
            CallAuth(("a", "b"), JwksSettings("https://i.test/k", "i")),
            id="keys at an address",
        ),
        pytest.param(
            [],
            {"TOKEN_JWKS": "/k", "TOKEN_ISSUER": "i", "TOKEN_AUDIENCE": "a,b", "TOKEN_POLICY": "optional"},
            CallAuth(("a", "b"), JwksSettings("/k", "i"), TokenPolicy.OPTIONAL),
            id="all of it from the environment",
        ),
        pytest.param(
            ["--token-review", "--token-audience=a"],
            {},
            CallAuth(("a",), ReviewSettings("https://[fd00::1]:6443", POD_FOLDER / "token", POD_FOLDER / "ca.crt")),
            id="the API server of the pod",
        ),
    ],
)
def test_flags_and_environment_say_how_tokens_are_verified(
    flags: list[str], environment: dict[str, str], expected: CallAuth | None
) -> None:
    assert chosen(flags, environment) == expected


def test_an_odd_policy_of_the_environment_is_no_policy() -> None:
    with pytest.raises(CallAuthError, match="--token-policy"):
        chosen(["--token-review", "--token-audience=a"], {"TOKEN_POLICY": "sometimes"})
