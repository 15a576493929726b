"""Tokens of calls verified by the API server, as a provider's pod would ask it: R139, R158."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from eso_sdk.accounts import (
    ACCEPTED_SECONDS,
    MAX_REMEMBERED,
    REFUSED_SECONDS,
    CallAuth,
    ReviewSettings,
    ReviewVerifier,
    ServiceAccount,
)
from eso_sdk.testing import Client, ProviderServer, call_context
from eso_sdk.testing.scripted import SCRIPTED, Script, Scripted
from eso_sdk.testing.server import Authority
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, RemoteRef
from kubebase.testing.clock import VirtualClock
from kubebase.testing.servers import ApiServer
from kuberun.testing.rawapi import RawApi

AUDIENCE = "external-secrets-provider/scripted"


async def refusal(client: Client, context: Context) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await client.get_one(context, "a")
    return caught.value


# --- a real API server -----------------------------------------------------------------------------------------------


@dataclass
class Cluster:
    """Service accounts of one namespace, one of which is the provider's own."""

    api: RawApi
    namespace: str
    settings: ReviewSettings

    @property
    def _accounts(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/serviceaccounts"

    async def account(self, name: str) -> str:
        """Create an account and return its uid."""
        made = await self.api.post(self._accounts, {"metadata": {"name": name}})
        assert made.status == 201, made.reason
        return str(made.body["metadata"]["uid"])

    async def token(self, name: str, *audiences: str) -> str:
        asked = await self.api.post(f"{self._accounts}/{name}/token", {"spec": {"audiences": list(audiences)}})
        assert asked.status == 201, asked.reason
        return str(asked.body["status"]["token"])

    async def delegate(self, name: str) -> None:
        """Allow an account to review tokens."""
        binding = {
            "metadata": {"name": f"{self.namespace}-reviews"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:auth-delegator",
            },
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": self.namespace}],
        }
        made = await self.api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
        assert made.status == 201, made.reason

    def reading(self, script: Script) -> Context:
        return call_context(Scripted, {"script": script.name}, namespace=self.namespace)

    def serving(self) -> ProviderServer:
        return ProviderServer(SCRIPTED, call_auth=CallAuth((AUDIENCE,), self.settings))


@pytest.fixture
async def cluster(api_server: ApiServer, api: RawApi, namespace: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Provide a cluster and a provider token, mounted as in a pod, without the right to review tokens."""
    own = tmp_path / "token"
    cluster = Cluster(api, namespace, ReviewSettings(api_server.url, own, api_server.ca_file))
    await cluster.account("provider")
    asked = await api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts/provider/token", {"spec": {}})
    own.write_text(asked.body["status"]["token"] + "\n", encoding="ascii")
    yield cluster
    await api.delete(f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{namespace}-reviews")


@pytest.mark.live
async def test_the_account_that_the_api_server_knows_reaches_the_author(cluster: Cluster) -> None:
    seen: list[ServiceAccount | None] = []

    async def get(store: Scripted, _: RemoteRef) -> bytes:
        seen.append(store.call.account)
        return b"1"

    uid = await cluster.account("robot")
    await cluster.delegate("provider")
    async with cluster.serving() as server:
        client = await server.connect_as(await cluster.token("robot", AUDIENCE))
        await client.get_one(cluster.reading(Script.new(get=get)), "a")

    assert seen == [ServiceAccount(cluster.namespace, "robot", uid)]


@pytest.mark.live
async def test_tokens_that_the_api_server_does_not_know_are_refused(cluster: Cluster) -> None:
    await cluster.account("robot")
    await cluster.delegate("provider")
    context = cluster.reading(Script.new(values={"a": b"1"}))
    good = await cluster.token("robot", AUDIENCE)
    tokens = {
        "for another": await cluster.token("robot", "external-secrets-provider/other"),
        "for the API server": await cluster.token("robot"),
        "broken": good[:-6] + "AAAAAA",
        "rubbish": "rubbish",
    }
    async with cluster.serving() as server:
        errors = {name: await refusal(await server.connect_as(token), context) for name, token in tokens.items()}

    assert {name: error.reason for name, error in errors.items()} == dict.fromkeys(
        tokens, ErrorReason.CREDENTIALS_REJECTED
    )
    assert all(token not in str(errors) for token in tokens.values() if token != "rubbish")


@pytest.mark.live
async def test_a_provider_that_may_not_ask_says_which_right_it_lacks(cluster: Cluster) -> None:
    await cluster.account("robot")
    async with cluster.serving() as server:
        client = await server.connect_as(await cluster.token("robot", AUDIENCE))
        error = await refusal(client, cluster.reading(Script.new(values={"a": b"1"})))

    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert "system:auth-delegator" in error.message


@pytest.mark.live
async def test_a_provider_that_is_not_known_itself_cannot_tell(cluster: Cluster) -> None:
    cluster.settings.token_file.write_text("stale", encoding="ascii")
    async with cluster.serving() as server:
        error = await refusal(await server.connect_as("any"), cluster.reading(Script.new()))

    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert "own token" in error.message


@pytest.mark.live
async def test_an_api_server_that_cannot_prove_who_it_is_is_told_no_token(cluster: Cluster, tmp_path: Path) -> None:
    stranger = tmp_path / "other.crt"
    stranger.write_bytes(Authority.make("another authority").pem)
    elsewhere = replace(cluster, settings=replace(cluster.settings, ca_file=stranger))
    async with elsewhere.serving() as server:
        error = await refusal(await server.connect_as("any"), cluster.reading(Script.new()))

    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert "is not trusted" in error.message


# --- odd answers, and how often it is asked --------------------------------------------------------------------------


@dataclass
class Reviews:
    """Answers reviews as the test says."""

    status: dict[str, Any] = field(default_factory=dict)
    code: int = 201
    body: str | None = None
    asked: list[str] = field(default_factory=list, repr=False)

    async def answer(self, request: web.Request) -> web.Response:
        review = await request.json()
        assert request.headers["Authorization"] == "Bearer own"
        assert review["spec"]["audiences"] == [AUDIENCE]
        self.asked.append(review["spec"]["token"])
        text = json.dumps({**review, "status": self.status}) if self.body is None else self.body
        return web.Response(status=self.code, text=text)

    @asynccontextmanager
    async def verifier(self, folder: Path, clock: VirtualClock) -> AsyncIterator[ReviewVerifier]:
        app = web.Application()
        app.router.add_post("/apis/authentication.k8s.io/v1/tokenreviews", self.answer)
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        own = folder / "token"
        own.write_text("own", encoding="ascii")
        settings = ReviewSettings(f"http://127.0.0.1:{runner.addresses[0][1]}", own, folder / "ca.crt")
        try:
            yield ReviewVerifier(settings, (AUDIENCE,), clock)
        finally:
            await runner.cleanup()


KNOWN = {
    "authenticated": True,
    "audiences": [AUDIENCE],
    "user": {"username": "system:serviceaccount:team:robot", "uid": "u"},
}


async def test_a_token_is_asked_about_once_a_minute(tmp_path: Path) -> None:
    clock, reviews = VirtualClock(), Reviews(KNOWN)
    async with reviews.verifier(tmp_path, clock) as verifier:
        await verifier.verify("one")
        await verifier.verify("one")
        await verifier.verify("two")
        await clock.advance(ACCEPTED_SECONDS)
        account = await verifier.verify("one")

    assert account == ServiceAccount("team", "robot", "u")
    assert reviews.asked == ["one", "two", "one"]


async def test_an_account_that_is_deleted_is_out_within_a_minute(tmp_path: Path) -> None:
    clock, reviews = VirtualClock(), Reviews(KNOWN)
    async with reviews.verifier(tmp_path, clock) as verifier:
        await verifier.verify("one")
        reviews.status = {"error": "the account is gone"}
        await clock.advance(ACCEPTED_SECONDS)

        with pytest.raises(ProviderError) as caught:
            await verifier.verify("one")

    assert caught.value.reason is ErrorReason.CREDENTIALS_REJECTED


async def test_a_refused_token_is_not_asked_about_over_and_over(tmp_path: Path) -> None:
    clock, reviews = VirtualClock(), Reviews({})
    async with reviews.verifier(tmp_path, clock) as verifier:
        for _ in range(3):
            with pytest.raises(ProviderError):
                await verifier.verify("one")
        await clock.advance(REFUSED_SECONDS)
        reviews.status = KNOWN
        await verifier.verify("one")

    assert reviews.asked == ["one", "one"]


async def test_only_so_many_tokens_are_remembered(tmp_path: Path) -> None:
    clock, reviews = VirtualClock(), Reviews(KNOWN)
    async with reviews.verifier(tmp_path, clock) as verifier:
        await verifier.verify("first")
        for number in range(0, MAX_REMEMBERED, 8):
            await asyncio.gather(*(verifier.verify(f"token-{number + each}") for each in range(8)))
        await verifier.verify("first")

    assert reviews.asked.count("first") == 2


@pytest.mark.parametrize(
    ("reviews", "reason"),
    [
        pytest.param(
            Reviews({**KNOWN, "audiences": []}), ErrorReason.CREDENTIALS_REJECTED, id="no audience is confirmed"
        ),
        pytest.param(
            Reviews({"authenticated": True, "user": KNOWN["user"]}),
            ErrorReason.CREDENTIALS_REJECTED,
            id="a server that knows no audiences",
        ),
        pytest.param(
            Reviews({**KNOWN, "user": {"username": "alice"}}), ErrorReason.CREDENTIALS_REJECTED, id="a person's token"
        ),
        pytest.param(Reviews({**KNOWN, "user": None}), ErrorReason.CREDENTIALS_REJECTED, id="token without a user"),
        pytest.param(
            Reviews({**KNOWN, "authenticated": "true"}), ErrorReason.CREDENTIALS_REJECTED, id="a yes that is none"
        ),
        pytest.param(Reviews(code=500), ErrorReason.BACKEND_UNAVAILABLE, id="an error of the server"),
        pytest.param(Reviews(body="no JSON"), ErrorReason.BACKEND_UNAVAILABLE, id="no JSON"),
        pytest.param(Reviews(body="[]"), ErrorReason.BACKEND_UNAVAILABLE, id="no review"),
    ],
)
async def test_an_odd_answer_accepts_no_token(reviews: Reviews, reason: ErrorReason, tmp_path: Path) -> None:
    fresh = replace(reviews, asked=[])
    async with fresh.verifier(tmp_path, VirtualClock()) as verifier:
        with pytest.raises(ProviderError) as caught:
            await verifier.verify("one")

    assert caught.value.reason is reason


async def test_a_provider_without_a_token_of_its_own_says_so(tmp_path: Path) -> None:
    settings = ReviewSettings("http://127.0.0.1:1", tmp_path / "absent", tmp_path / "ca.crt")
    verifier = ReviewVerifier(settings, (AUDIENCE,), VirtualClock())

    with pytest.raises(ProviderError) as caught:
        await verifier.verify("one")

    assert caught.value.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert "no token of its own" in caught.value.message
