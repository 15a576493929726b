"""What each generator asks its service for, what it returns, and what it leaves behind: nothing."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_provider_tokens.beyondtrust import BeyondtrustGenerator
from eso_provider_tokens.grafana import GrafanaGenerator
from eso_provider_tokens.provider import PROVIDER
from eso_provider_tokens.registries import CloudsmithGenerator, QuayGenerator
from eso_provider_tokens.testing.servers import (
    LIFE,
    BeyondtrustServer,
    CloudsmithServer,
    GrafanaServer,
    QuayServer,
    signed,
)
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.standin import StandinResponse
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import CleanupOutcome, CleanupRequest, Context, Generated, GenerateRequest, Token
from kubebase.clock import SystemClock
from kubebase.testing.clock import VirtualClock

CANARY = "CANARY-9d2e"
ACCOUNT = {"serviceAccountRef": {"name": "reader"}}
JWT = Token(SecretBytes(b"jwt-of-reader"), namespace="team", name="reader", uid="1")


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of tests are on this machine, whatever the environment says."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def skew(clock: VirtualClock) -> float:
    """Seconds by which the clock of the test is ahead."""
    return clock.now().timestamp() - SystemClock().now().timestamp()


@pytest.fixture
async def client(clock: VirtualClock) -> AsyncIterator[InMemory]:
    async with InMemory(PROVIDER, clock, addresses=AddressPolicy.parse(["loopback"])) as made:
        yield made


@pytest.fixture
def quay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skew: float) -> Iterator[QuayServer]:
    with QuayServer.started(tls_folder=tmp_path, robots={"shop+ci": "jwt-of-reader"}, skew=skew) as server:
        (tmp_path / "ca.pem").write_bytes(server.ca)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        yield server


@pytest.fixture
def smith(skew: float) -> Iterator[CloudsmithServer]:
    with CloudsmithServer.started(services={("shop", "ci"): "jwt-of-reader"}, skew=skew) as server:
        yield server


@pytest.fixture
def grafana(skew: float) -> Iterator[GrafanaServer]:
    with GrafanaServer.started(skew=skew) as server:
        yield server


@pytest.fixture
def beyondtrust(skew: float) -> Iterator[BeyondtrustServer]:
    with BeyondtrustServer.started(secrets={("aws/prod", "reader")}, skew=skew) as server:
        yield server


def texts(made: Generated) -> dict[str, str]:
    return {name: value.reveal().decode() for name, value in made.data.items()}


async def failure(calling: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await calling
    for hidden in (CANARY, "jwt-of-reader", "glsa-of-the-tests", "bt-of-the-tests"):
        assert hidden not in caught.value.message
    return caught.value


# --- Quay ------------------------------------------------------------------------------------------------------------


def quay_context(host: str, **spec: Any) -> Context:
    whole = {"url": host, "robotAccount": "shop+ci", **ACCOUNT} | spec
    return call_context(QuayGenerator, whole, {"/serviceAccountRef": JWT})


async def test_quay_exchanges_the_token_of_the_account_for_a_login(
    client: InMemory, quay: QuayServer, clock: VirtualClock
) -> None:
    made = await client.generate(quay_context(quay.url))

    values = texts(made)
    assert values.keys() == {"registry", "auth", "expiry"}
    assert values["registry"] == quay.url.removeprefix("https://")
    assert base64.b64decode(values["auth"]).decode().startswith("shop+ci:ey")
    assert made.metadata.expires_at is not None
    assert (made.metadata.expires_at - clock.now()).total_seconds() == pytest.approx(LIFE, abs=30)
    assert values["expiry"] == str(int(made.metadata.expires_at.timestamp()))
    (request,) = quay.calls
    assert request.headers["authorization"] == "Basic " + base64.b64encode(b"shop+ci:jwt-of-reader").decode()


async def test_quay_says_that_the_robot_does_not_trust_the_account(client: InMemory, quay: QuayServer) -> None:
    quay.robots.clear()

    failed = [await failure(client.generate(quay_context(quay.url))) for _ in range(3)]

    assert {one.reason for one in failed} == {ErrorReason.CREDENTIALS_REJECTED}
    assert 'robot account "shop+ci"' in failed[0].message


@pytest.mark.parametrize("response", [{"token": CANARY}, {"token": "e30.e30.x"}, {"nothing": CANARY}])
async def test_quay_refuses_a_token_without_an_expiry(client: InMemory, quay: QuayServer, response: Any) -> None:
    quay.script("GET *", StandinResponse(200, response))

    assert (await failure(client.generate(quay_context(quay.url)))).reason is ErrorReason.BACKEND_ERROR


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"robotAccount": ""}, "/robotAccount", id="no robot"),
        pytest.param({"robotAccount": "a:b"}, "/robotAccount", id="a robot with a colon"),
        pytest.param({"url": "quay.io/path"}, "/url", id="a path instead of a host"),
    ],
)
async def test_quay_refuses_what_cannot_work(client: InMemory, spec: Any, field: str) -> None:
    assert (await failure(client.generate(quay_context("quay.io", **spec)))).message.startswith(field)


# --- Cloudsmith ------------------------------------------------------------------------------------------------------


def smith_context(url: str) -> Context:
    spec = {"apiUrl": url, "orgSlug": "shop", "serviceSlug": "ci", **ACCOUNT}
    return call_context(CloudsmithGenerator, spec, {"/serviceAccountRef": JWT})


async def test_cloudsmith_exchanges_the_token_of_the_account_for_a_login(
    client: InMemory, smith: CloudsmithServer
) -> None:
    values = texts(await client.generate(smith_context(smith.url)))

    assert values.keys() == {"auth", "expiry"}
    assert base64.b64decode(values["auth"]).decode().startswith("token:ey")
    (request,) = smith.calls
    assert request.line == "POST /openid/shop/"
    assert request.json() == {"oidc_token": "jwt-of-reader", "service_slug": "ci"}


async def test_cloudsmith_accepts_only_a_created_token(client: InMemory, smith: CloudsmithServer) -> None:
    smith.script("POST *", StandinResponse(200, {"token": signed("x", 4102444800)}))

    assert "HTTP 200" in (await failure(client.generate(smith_context(smith.url)))).message


# --- Grafana ---------------------------------------------------------------------------------------------------------


def grafana_context(server: GrafanaServer, **changes: Any) -> Context:
    account = {"name": "ci", "role": "Viewer", "secondsToLive": 600}
    spec = {"url": server.url, "auth": {"token": {"name": "g", "key": "t"}}, "serviceAccount": account, **changes}
    credentials = {"/auth/token": server.token, "/auth/basic/password": server.password}
    sent = {pointer: text for pointer, text in credentials.items() if pointer.split("/")[2] in spec["auth"]}
    return call_context(GrafanaGenerator, spec, sent)


async def test_grafana_creates_the_account_once_and_a_token_each_time(
    client: InMemory, grafana: GrafanaServer, clock: VirtualClock
) -> None:
    made = [await client.generate(grafana_context(grafana), GenerateRequest(key)) for key in ("one", "two")]

    assert [one["role"] for one in grafana.accounts.values()] == ["Viewer"]
    assert grafana.tokens == {1: {2: "one", 3: "two"}}
    assert texts(made[0]) == {"login": "sa-ci", "token": "glsa_2"}
    assert made[0].metadata.expires_at is not None
    assert (made[0].metadata.expires_at - clock.now()).total_seconds() == 600
    assert made[0].state is not None
    assert json.loads(made[0].state.reveal()) == {"serviceAccount": {"id": 1, "login": "sa-ci", "tokenID": 2}}


@pytest.mark.parametrize("taken", [400, 409])
async def test_a_repeated_generation_replaces_the_token_whose_answer_was_lost(
    client: InMemory, grafana: GrafanaServer, taken: int
) -> None:
    grafana.taken = taken

    first = await client.generate(grafana_context(grafana), GenerateRequest("one"))
    second = await client.generate(grafana_context(grafana), GenerateRequest("one"))

    assert texts(first)["token"] != texts(second)["token"]
    assert grafana.tokens == {1: {3: "one"}}


async def test_grafana_cleans_up_with_a_state_and_without(client: InMemory, grafana: GrafanaServer) -> None:
    context = grafana_context(grafana)
    made = await client.generate(context, GenerateRequest("one"))
    await client.generate(context, GenerateRequest("lost"))
    assert made.state is not None

    outcomes = [
        await client.cleanup(context, CleanupRequest(made.state)),
        await client.cleanup(context, CleanupRequest(made.state)),
        await client.cleanup(context, CleanupRequest(SecretBytes(b""), "lost")),
    ]

    assert outcomes == [CleanupOutcome.CLEANED, CleanupOutcome.ALREADY_GONE, CleanupOutcome.CLEANED]
    assert grafana.tokens == {1: {}}
    assert len(grafana.accounts) == 1


async def test_grafana_takes_a_user_and_a_password(client: InMemory, grafana: GrafanaServer) -> None:
    auth = {"basic": {"username": "admin", "password": {"name": "g", "key": "p"}}}

    made = await client.generate(grafana_context(grafana, auth=auth))

    assert texts(made)["login"] == "sa-ci"
    assert grafana.calls[0].headers["authorization"].startswith("Basic ")


async def test_a_grafana_below_a_path_is_asked_there(client: InMemory, grafana: GrafanaServer) -> None:
    grafana.script("GET /grafana/api/serviceaccounts/search", StandinResponse(200, {"serviceAccounts": []}))
    grafana.script("POST /grafana/api/serviceaccounts", StandinResponse(201, {"id": 7, "name": "ci", "login": "sa-ci"}))
    grafana.script(
        "POST /grafana/api/serviceaccounts/7/tokens", StandinResponse(200, {"id": 8, "name": "n", "key": "glsa_8"})
    )

    made = await client.generate(grafana_context(grafana, url=f"{grafana.url}/grafana/"))

    assert texts(made)["token"] == "glsa_8"


async def test_grafana_without_credentials_is_refused(client: InMemory, grafana: GrafanaServer) -> None:
    failed = await failure(client.generate(grafana_context(grafana, auth={})))

    assert failed.message == "/auth: needs token or basic"


# --- BeyondTrust -----------------------------------------------------------------------------------------------------


def beyondtrust_context(server: BeyondtrustServer, path: str = "aws/prod/reader") -> Context:
    provider = {
        "server": {"apiUrl": f"{server.url}/", "siteId": server.site},
        "auth": {"apikey": {"token": {"name": "b", "key": "t"}}},
        "folderPath": path,
    }
    return call_context(BeyondtrustGenerator, {"provider": provider}, {"/provider/auth/apikey/token": server.token})


async def test_beyondtrust_issues_credentials_that_expire_with_their_lease(
    client: InMemory, beyondtrust: BeyondtrustServer, clock: VirtualClock
) -> None:
    made = await client.generate(beyondtrust_context(beyondtrust))

    values = texts(made)
    assert values.keys() == {"accessKeyId", "secretAccessKey", "sessionToken", "leaseId", "expiration"}
    assert made.metadata.expires_at is not None
    assert (made.metadata.expires_at - clock.now()).total_seconds() == pytest.approx(LIFE, abs=30)
    (request,) = beyondtrust.calls
    assert (request.line, request.query) == ("POST /site-1/secrets/dynamic/reader/generate", {"folder": "aws/prod"})


async def test_beyondtrust_revokes_the_lease(client: InMemory, beyondtrust: BeyondtrustServer) -> None:
    context = beyondtrust_context(beyondtrust)
    made = await client.generate(context)
    assert made.state is not None

    outcomes = [await client.cleanup(context, CleanupRequest(made.state)) for _ in range(2)]

    assert outcomes == [CleanupOutcome.CLEANED, CleanupOutcome.ALREADY_GONE]
    assert beyondtrust.leases == {}


async def test_beyondtrust_says_that_a_key_may_not_revoke_leases(
    client: InMemory, beyondtrust: BeyondtrustServer
) -> None:
    context = beyondtrust_context(beyondtrust)
    made = await client.generate(context)
    beyondtrust.may_revoke = False
    assert made.state is not None

    failed = await failure(client.cleanup(context, CleanupRequest(made.state)))

    assert failed.reason is ErrorReason.PERMISSION_DENIED


async def test_a_state_of_the_operator_in_go_has_no_lease_to_revoke(
    client: InMemory, beyondtrust: BeyondtrustServer
) -> None:
    outcome = await client.cleanup(
        beyondtrust_context(beyondtrust), CleanupRequest(SecretBytes(b'{"path":"aws/prod/reader"}'))
    )

    assert outcome is CleanupOutcome.ALREADY_GONE
    assert beyondtrust.calls == []


async def test_a_dynamic_secret_that_does_not_exist_is_named(client: InMemory, beyondtrust: BeyondtrustServer) -> None:
    failed = await failure(client.generate(beyondtrust_context(beyondtrust, "aws/none")))

    assert 'dynamic secret "aws/none"' in failed.message


@pytest.mark.parametrize("expiration", [CANARY, "2030-01-01T00:00:00"])
async def test_an_expiry_that_is_no_moment_is_an_error(
    client: InMemory, beyondtrust: BeyondtrustServer, expiration: str
) -> None:
    made = {"accessKeyId": "a", "secretAccessKey": "s", "leaseId": "l", "expiration": expiration}
    beyondtrust.script("POST *", StandinResponse(201, {"secret": made}))

    assert (await failure(client.generate(beyondtrust_context(beyondtrust)))).reason is ErrorReason.BACKEND_ERROR
