"""Logins: what each form sends, how often, where, and what a refusal costs."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from eso_api.values import SecretBytes
from eso_provider_akeyless.auth import UNKNOWN_LIFE, api_url, prefixes, seconds_left
from eso_provider_akeyless.provider import PROVIDER
from eso_provider_akeyless.testing.contract import api
from eso_provider_akeyless.testing.server import ACCESS_ID, ACCESS_KEY, AkeylessServer, Identity
from eso_provider_akeyless.testing.sessions import PLACE, store, with_auth, with_login
from eso_sdk.addresses import AddressPolicy
from eso_sdk.awsidentity import AwsCredentials, Scope, SignableRequest, signed_headers
from eso_sdk.processidentity import ProcessIdentityPolicy
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import read
from eso_sdk.testing.standin import StandIn, StandinRequest, StandinResponse
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, Token, ValidationState
from kubebase.testing.clock import VirtualClock

ACCOUNT = "/authSecretRef/serviceAccountRef"
CLUSTER = {"accessID": "p-k8s", "k8sConfName": "conf"}


@dataclass(slots=True)
class Clouds(StandIn):
    """The metadata servers of Azure and Google, the Pod Identity agent of AWS, and Entra ID."""

    async def respond(self, request: StandinRequest) -> StandinResponse:
        match request.method, request.path:
            case "GET", "/metadata/identity/oauth2/token" if request.headers.get("metadata") == "true":
                return StandinResponse(
                    200, {"access_token": f"azure for {request.query.get('object_id', 'the machine')}"}
                )
            case "GET", "/computeMetadata/v1/instance/service-accounts/default/identity":
                return StandinResponse(200, f"google for {request.query['audience']}".encode())
            case "GET", "/pod-identity":
                return StandinResponse(
                    200, {"AccessKeyId": "AKIA", "SecretAccessKey": "aws-secret", "Token": "aws-session"}
                )
            case "POST", "/tenant-1/oauth2/v2.0/token" if request.form()["client_assertion"] == "jwt":
                return StandinResponse(200, {"access_token": f"entra for {request.form()['client_id']}"})
            case "POST", _:
                return StandinResponse(401, {"error": "invalid_client"})
            case _:
                return StandinResponse(404)


@pytest.fixture
def clouds(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clouds]:
    with Clouds.started() as running:
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", running.url)
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", running.url)
        monkeypatch.setenv("GCE_METADATA_HOST", running.url.removeprefix("http://"))
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{running.url}/pod-identity")
        monkeypatch.setenv("AWS_REGION", "eu-central-1")
        for name in ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AZURE_TENANT_ID",
                     "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_ENVIRONMENT", "AZURE_CLOUD"):  # fmt: skip
            monkeypatch.delenv(name, raising=False)
        yield running


def by_cloud(server: AkeylessServer, kind: str, proof: str, param: str = "", **more: Any) -> Context:
    """Return the context of a store with a cloud identity, which the server accepts with this proof."""
    server.identities[ACCESS_ID] = Identity(proof, access_type=kind)
    parts = {"accessID": ACCESS_ID, "accessType": kind, **({"accessTypeParam": param} if param else {})}
    return with_login(server.url, parts, **more)


async def logged_in(provider: InMemory, server: AkeylessServer, call: Context) -> dict[str, Any]:
    """Read a value; return the body of the login before it."""
    server.put("/a", "1")
    assert await read(provider, call, "/a") == [b"1"]
    (login,) = server.commands("auth")
    body: dict[str, Any] = login.json()
    return body


async def refusal(provider: InMemory, call: Context) -> ProviderError:
    try:
        (outcome,) = await read(provider, call, "/a")
    except ProviderError as failed:
        outcome = failed
    assert isinstance(outcome, ProviderError)
    assert ACCESS_KEY not in outcome.message
    return outcome


def account(**annotations: str) -> Token:
    named = {f"azure.workload.identity/{key.replace('_', '-')}": text for key, text in annotations.items()}
    return Token(SecretBytes(b"jwt"), namespace="team", name="reader", uid="1", annotations=named)


# --- what is sent ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["api_key", "access_key"])
async def test_an_access_key_is_sent(provider: InMemory, server: AkeylessServer, kind: str) -> None:
    parts = {"accessID": ACCESS_ID, "accessType": f"{kind}\n", "accessTypeParam": ACCESS_KEY}

    body = await logged_in(provider, server, with_login(server.url, parts))

    assert body == {"access-id": ACCESS_ID, "access-key": ACCESS_KEY}


@pytest.mark.parametrize(
    ("auth", "place", "credential"),
    [
        pytest.param(
            {"serviceAccountRef": {"name": "reader"}},
            "serviceAccountRef",
            Token(SecretBytes(b"jwt"), namespace="team", name="reader", uid="1"),
            id="of a service account",
        ),
        pytest.param({"secretRef": {"name": "reader", "key": "token"}}, "secretRef", "jwt", id="of a Secret"),
    ],
)
async def test_a_kubernetes_token_is_sent_in_base64(
    provider: InMemory, server: AkeylessServer, auth: dict[str, Any], place: str, credential: Any
) -> None:
    server.identities["p-k8s"] = Identity("jwt", access_type="k8s")
    place = f"/authSecretRef/kubernetesAuth/{place}"

    body = await logged_in(
        provider, server, with_auth(server.url, {"kubernetesAuth": {**CLUSTER, **auth}}, {place: credential})
    )

    assert body == {
        "access-id": "p-k8s",
        "access-type": "k8s",
        "k8s-auth-config-name": "conf",
        "k8s-service-account-token": base64.b64encode(b"jwt").decode(),
    }


async def test_aws_iam_sends_a_signed_request_for_the_role_of_the_pod(
    provider: InMemory, server: AkeylessServer, clouds: Clouds, clock: VirtualClock
) -> None:
    del clouds
    body = await logged_in(provider, server, by_cloud(server, "aws_iam", "GetCallerIdentity"))

    request: dict[str, str] = json.loads(base64.b64decode(body["cloud-id"]))
    url, sent = (base64.b64decode(request[f"sts_request_{part}"]).decode() for part in ("url", "body"))
    headers = {name: each for name, (each,) in json.loads(base64.b64decode(request["sts_request_headers"])).items()}
    credentials = AwsCredentials("AKIA", SecretBytes(b"aws-secret"), SecretBytes(b"aws-session"))
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    expected = signed_headers(
        SignableRequest("POST", URL(url), form, sent.encode()), credentials, Scope("eu-central-1", "sts"), clock.now()
    )
    assert (request["sts_request_method"], url) == ("POST", "https://sts.eu-central-1.amazonaws.com/")
    assert headers == {name: text for name, text in expected.items() if name != "Host"}
    assert headers["X-Amz-Security-Token"] == "aws-session"


@pytest.mark.parametrize(("param", "audience"), [("", "akeyless.io"), ("mine", "mine")])
async def test_gcp_sends_an_identity_token_for_the_audience(
    provider: InMemory, server: AkeylessServer, clouds: Clouds, param: str, audience: str
) -> None:
    del clouds
    call = by_cloud(server, "gcp", f"google for {audience}", param)

    assert (await logged_in(provider, server, call))["access-type"] == "gcp"


@pytest.mark.parametrize("param", ["", "object-1"])
async def test_azure_ad_sends_a_token_of_the_machine(
    provider: InMemory, server: AkeylessServer, clouds: Clouds, param: str
) -> None:
    body = await logged_in(provider, server, by_cloud(server, "azure_ad", "azure for", param))

    assert base64.b64decode(body["cloud-id"]).decode() == f"azure for {param or 'the machine'}"
    assert clouds.calls[0].query["resource"] == "https://management.azure.com/"


async def test_azure_ad_uses_the_workload_identity_of_the_pod(
    provider: InMemory, server: AkeylessServer, clouds: Clouds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del clouds
    (tmp_path / "token").write_text("jwt\n")
    for name, text in (
        ("FEDERATED_TOKEN_FILE", str(tmp_path / "token")),
        ("CLIENT_ID", "own"),
        ("TENANT_ID", "tenant-1"),
    ):
        monkeypatch.setenv(f"AZURE_{name}", text)

    await logged_in(provider, server, by_cloud(server, "azure_ad", "entra for own"))


@pytest.mark.parametrize(
    ("annotations", "param"),
    [({"client_id": "app", "tenant_id": "tenant-1"}, ""), ({"tenant_id": "tenant-1"}, "app")],
    ids=["client id of the annotation", "client id of accessTypeParam"],
)
async def test_azure_ad_uses_the_workload_identity_of_a_service_account(
    provider: InMemory, server: AkeylessServer, clouds: Clouds, annotations: dict[str, str], param: str
) -> None:
    call = by_cloud(
        server,
        "azure_ad",
        "entra for app",
        param,
        auth={"serviceAccountRef": {"name": "reader"}},
        more={ACCOUNT: account(**annotations)},
    )

    await logged_in(provider, server, call)

    assert clouds.calls[0].form()["scope"] == "https://management.azure.com/.default"


async def test_the_token_of_a_universal_identity_has_its_own_member(provider: InMemory, server: AkeylessServer) -> None:
    server.identities[ACCESS_ID].token_prefix = "u-"

    await logged_in(provider, server, store(server.url))

    assert all("uid-token" in each.json() and "token" not in each.json() for each in server.commands())


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "remedy"),
    [
        pytest.param("namespaced", "--identity-host=http://127.0.0.1", id="the host is not listed"),
        pytest.param("cluster", "--ambient-identity=namespaced", id="the store is namespaced"),
    ],
)
@pytest.mark.parametrize("kind", ["aws_iam", "gcp", "azure_ad"])
async def test_the_identity_of_the_provider_is_not_shown_to_servers_of_tenants(
    server: AkeylessServer, clouds: Clouds, kind: str, scope: str, remedy: str
) -> None:
    identity = ProcessIdentityPolicy.parse(scope, ["gateway.example.com"])

    async with InMemory(PROVIDER, addresses=AddressPolicy.parse(["loopback"]), process_identity=identity) as provider:
        refused = await refusal(provider, by_cloud(server, kind, ""))

    assert refused.reason is ErrorReason.CONFIG_INVALID
    assert remedy in refused.message
    assert (clouds.calls, server.calls) == ([], [])


@pytest.mark.parametrize(
    ("auth", "text"),
    [
        pytest.param({}, "needs secretRef or kubernetesAuth", id="nothing"),
        pytest.param({"secretRef": {"accessType": {"name": "s", "key": "k"}}}, "accessID", id="no access id"),
        pytest.param({"secretRef": {"accessID": {"name": "s", "key": "k"}}}, "accessType", id="no access type"),
        pytest.param({"kubernetesAuth": CLUSTER}, "needs serviceAccountRef or secretRef", id="no token"),
        pytest.param(
            {"kubernetesAuth": {**CLUSTER, "k8sConfName": "", "secretRef": {"name": "s"}}},
            "k8sConfName",
            id="no config",
        ),
    ],
)
async def test_an_incomplete_login_is_refused(provider: InMemory, auth: dict[str, Any], text: str) -> None:
    checked = await provider.validate(with_auth("https://gateway.example.com", auth, {}))

    assert checked.error is not None
    assert text in checked.error.message


@pytest.mark.parametrize(
    ("kind", "text"), [("k8s", "kubernetesAuth"), ("saml", "none of api_key"), ("access_key", "accessTypeParam")]
)
async def test_other_access_types_are_refused(provider: InMemory, server: AkeylessServer, kind: str, text: str) -> None:
    refused = await refusal(provider, with_login(server.url, {"accessID": ACCESS_ID, "accessType": kind}))

    assert refused.reason is ErrorReason.CONFIG_INVALID
    assert PLACE in refused.message
    assert text in refused.message


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({"tenant_id": "t"}, "client-id"),
        ({"client_id": "c"}, "tenant-id"),
        ({"client_id": "c", "tenant_id": "../x"}, "tenant"),
    ],
)
async def test_an_incomplete_workload_identity_is_refused(
    provider: InMemory, server: AkeylessServer, clouds: Clouds, annotations: dict[str, str], text: str
) -> None:
    auth = {"serviceAccountRef": {"name": "reader"}}
    call = by_cloud(server, "azure_ad", "", auth=auth, more={ACCOUNT: account(**annotations)})

    refused = await refusal(provider, call)

    assert refused.reason is ErrorReason.CONFIG_INVALID
    assert text in refused.message
    assert clouds.calls == []


async def test_a_provider_without_an_aws_role_says_so(
    provider: InMemory, server: AkeylessServer, clouds: Clouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    del clouds
    monkeypatch.delenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")

    assert (await refusal(provider, by_cloud(server, "aws_iam", ""))).reason is ErrorReason.CREDENTIALS_NOT_FOUND


# --- how often -------------------------------------------------------------------------------------------------------


async def test_all_stores_of_an_identity_share_one_login(provider: InMemory, server: AkeylessServer) -> None:
    server.put("/a", "1")

    for number in range(5):
        assert await read(provider, store(server.url, namespace=f"team-{number}"), "/a") == [b"1"]

    assert len(server.commands("auth")) == 1


async def test_a_rejected_access_key_costs_one_call_a_minute(provider: InMemory, server: AkeylessServer) -> None:
    refused = [await refusal(provider, store(server.url, "wrong")) for _ in range(5)]

    assert {each.reason for each in refused} == {ErrorReason.CREDENTIALS_REJECTED}
    assert "check access id and access key" in refused[0].message
    assert len(server.calls) == 1


async def test_an_expired_token_is_replaced(provider: InMemory, server: AkeylessServer) -> None:
    server.put("/a", "1")
    await read(provider, store(server.url), "/a")
    server.tokens.clear()

    assert await read(provider, store(server.url), "/a") == [b"1"]
    assert len(server.commands("auth")) == 2


async def test_a_validation_logs_in(provider: InMemory, server: AkeylessServer) -> None:
    good, bad = await provider.validate(store(server.url)), await provider.validate(store(server.url, "wrong"))

    assert (good.state, bad.state) == (ValidationState.READY, ValidationState.INVALID)
    assert server.commands() == []


@pytest.mark.parametrize(
    ("expiration", "seconds"),
    [
        ("1970-01-01T01:00:00Z", 3600.0),
        ("1970-01-01 01:00:00 +0000 UTC", 3600.0),
        ("3600", 3600.0),
        (3600, 3600.0),
        ("soon", UNKNOWN_LIFE),
        (None, UNKNOWN_LIFE),
    ],
)
def test_the_life_of_a_token_ends_with_its_expiration(expiration: str | int | None, seconds: float) -> None:
    assert seconds_left(expiration, datetime.fromtimestamp(0, UTC)) == seconds


# --- where -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "tried"),
    [
        ("", ("",)),
        ("https://api.akeyless.io", ("",)),
        ("https://api.eu.akeyless.io", ("",)),
        ("https://gateway.example.com:8081", ("",)),
        ("https://gateway.example.com:8000/api/v2/", ("",)),
        ("https://gateway.example.com:8080", ("v2/", "")),
        ("https://notakeyless.io", ("v2/", "")),
    ],
)
def test_the_address_tells_where_the_api_is(address: str, tried: tuple[str, ...]) -> None:
    assert prefixes(api_url(address)) == tried


@pytest.mark.parametrize(
    "address", ["gateway.example.com", "ftp://gateway", "https://", "https://user@gateway", "http://[x"]
)
async def test_an_address_that_is_not_a_url_is_refused(provider: InMemory, address: str) -> None:
    checked = await provider.validate(store(address))

    assert checked.error is not None
    assert "/akeylessGWApiURL" in checked.error.message


@pytest.mark.parametrize(
    ("root", "path", "logins"),
    [
        pytest.param("/v2", "", ["/v2/auth"], id="below /v2"),
        pytest.param("", "", ["/v2/auth", "/auth"], id="at the address itself"),
        pytest.param("/api/v2", "/api/v2", ["/api/v2/auth"], id="at an address that ends with /v2"),
    ],
)
async def test_the_first_login_finds_the_api_of_a_gateway(
    provider: InMemory, server: AkeylessServer, root: str, path: str, logins: list[str]
) -> None:
    server.root = root
    server.contract = api(root) if len(logins) == 1 else None  # a gateway without the path that is tried first
    server.put("/a", "1")

    for _ in range(3):
        assert await read(provider, store(server.url + path), "/a") == [b"1"]

    assert [each.path for each in server.calls if each.path.endswith("/auth")] == logins


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_gateway_needs_a_certificate_of_the_authority_that_the_store_names(
    provider: InMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, trusted: bool
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with AkeylessServer.started(tls_folder=tmp_path) as server:
        server.put("/a", "1")
        bundle = {"caBundle": base64.b64encode(server.ca).decode()} if trusted else {}

        (outcome,) = await read(provider, store(server.url, **bundle), "/a")

    if trusted:
        assert outcome == b"1"
    else:
        assert isinstance(outcome, ProviderError)
        assert server.calls == []
