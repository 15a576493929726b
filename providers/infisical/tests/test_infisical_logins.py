"""Logins: what each form sends, how often, and what a refusal costs."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from yarl import URL

from eso_api.values import SecretBytes
from eso_provider_infisical import auth as forms
from eso_provider_infisical.provider import PROVIDER
from eso_provider_infisical.testing.server import (
    CLIENT_ID,
    CLIENT_SECRET,
    CREDENTIALS,
    MAIN,
    UNIVERSAL,
    Identity,
    InfisicalServer,
    store,
)
from eso_sdk.addresses import AddressPolicy
from eso_sdk.awsidentity import AwsCredentials, Scope, SignableRequest, signed_headers
from eso_sdk.processidentity import ProcessIdentityPolicy
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import read
from eso_sdk.testing.standin import StandIn, StandinRequest, StandinResponse
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, ValidationState
from kubebase.testing.clock import VirtualClock

LOGIN = "POST /api/v1/auth/*/login"
IDENTITY = {"name": "infisical", "key": "identity"}
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
SERVICE_ACCOUNT = json.dumps(
    {
        "client_email": "reader@shop.iam.gserviceaccount.com",
        "private_key_id": "kid-1",
        "private_key": KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
    }
)


@dataclass(slots=True)
class Clouds(StandIn):
    """The metadata servers of Azure and Google, and AWS STS with the Pod Identity agent."""

    async def respond(self, request: StandinRequest) -> StandinResponse:
        match request.method, request.path:
            case "GET", "/metadata/identity/oauth2/token" if request.headers.get("metadata") == "true":
                return StandinResponse(200, {"access_token": f"azure for {request.query['resource']}"})
            case "GET", "/computeMetadata/v1/instance/service-accounts/default/identity":
                return StandinResponse(200, f"google for {request.query['audience']}".encode())
            case "GET", "/pod-identity":
                return StandinResponse(
                    200, {"AccessKeyId": "AKIA", "SecretAccessKey": "aws-secret", "Token": "aws-session"}
                )
            case _:
                return StandinResponse(404)


@pytest.fixture
def clouds(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clouds]:
    with Clouds.started() as running:
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", running.url)
        monkeypatch.setenv("GCE_METADATA_HOST", running.url.removeprefix("http://"))
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{running.url}/pod-identity")
        monkeypatch.setenv("AWS_REGION", "eu-central-1")
        for name in ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
            monkeypatch.delenv(name, raising=False)
        yield running


def form(server: InfisicalServer, name: str, method: str, **parts: str) -> Context:
    """Return the context of a store with one form of auth; each part is the content of its Secret."""
    server.logins[f"{method}:{parts['identityId']}"] = Identity("machine", frozenset({MAIN}))
    auth = {name: {part: {"name": "infisical", "key": part} for part in parts}}
    return store(server, {f"/auth/{name}/{part}": text for part, text in parts.items()}, auth=auth)


async def logged_in(provider: InMemory, server: InfisicalServer, call: Context) -> dict[str, Any]:
    """Read a value; return the body of the login before it."""
    server.project().put("/A", "1")
    assert await read(provider, call, "A") == [b"1"]
    (login,) = server.requests(LOGIN)
    body: dict[str, Any] = login.json()
    return body


def reason(outcome: object) -> ErrorReason:
    assert isinstance(outcome, ProviderError)
    return outcome.reason


# --- what is sent ----------------------------------------------------------------------------------------------------


async def test_universal_auth_sends_client_id_and_secret(provider: InMemory, server: InfisicalServer) -> None:
    assert await logged_in(provider, server, store(server)) == {"clientId": CLIENT_ID, "clientSecret": CLIENT_SECRET}


async def test_every_login_names_the_organization_if_the_scope_does(
    provider: InMemory, server: InfisicalServer
) -> None:
    body = await logged_in(provider, server, store(server, organizationSlug="sub"))

    assert body["organizationSlug"] == "sub"


async def test_jwt_auth_sends_the_jwt(provider: InMemory, server: InfisicalServer) -> None:
    call = form(server, "jwtAuthCredentials", "jwt-auth", identityId="id-1", jwt="a.b.c\n")

    assert await logged_in(provider, server, call) == {"identityId": "id-1", "jwt": "a.b.c"}


async def test_ldap_auth_sends_user_and_password(provider: InMemory, server: InfisicalServer) -> None:
    call = form(server, "ldapAuthCredentials", "ldap-auth", identityId="id-1", ldapUsername="anna", ldapPassword="pw")

    assert await logged_in(provider, server, call) == {"identityId": "id-1", "username": "anna", "password": "pw"}


async def test_an_access_token_needs_no_login(provider: InMemory, server: InfisicalServer) -> None:
    server.project().put("/A", "1")
    auth = {"tokenAuthCredentials": {"accessToken": {"name": "infisical", "key": "token"}}}
    call = store(server, {"/auth/tokenAuthCredentials/accessToken": server.token()}, auth=auth)

    assert await read(provider, call, "A") == [b"1"]
    assert server.requests(LOGIN) == []


async def test_kubernetes_auth_sends_the_token_of_the_pod(
    provider: InMemory, server: InfisicalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("pod.token.jwt\n")
    monkeypatch.setattr(forms, "POD_TOKEN", str(tmp_path / "token"))
    call = form(server, "kubernetesAuthCredentials", "kubernetes-auth", identityId="id-1")

    assert await logged_in(provider, server, call) == {"identityId": "id-1", "jwt": "pod.token.jwt"}


@pytest.mark.usefixtures("clouds")
async def test_azure_auth_sends_a_token_of_the_machine(provider: InMemory, server: InfisicalServer) -> None:
    call = form(server, "azureAuthCredentials", "azure-auth", identityId="id-1")

    assert await logged_in(provider, server, call) == {
        "identityId": "id-1",
        "jwt": "azure for https://management.azure.com/",
    }


@pytest.mark.usefixtures("clouds")
async def test_azure_auth_can_name_a_resource(provider: InMemory, server: InfisicalServer) -> None:
    call = form(server, "azureAuthCredentials", "azure-auth", identityId="id-1", resource="api://infisical")

    assert (await logged_in(provider, server, call))["jwt"] == "azure for api://infisical"


@pytest.mark.usefixtures("clouds")
async def test_gcp_id_token_auth_sends_a_token_for_the_identity(provider: InMemory, server: InfisicalServer) -> None:
    call = form(server, "gcpIdTokenAuthCredentials", "gcp-auth", identityId="id-1")

    assert await logged_in(provider, server, call) == {"identityId": "id-1", "jwt": "google for id-1"}


async def test_gcp_iam_auth_signs_a_jwt_with_the_key(
    provider: InMemory, server: InfisicalServer, tmp_path: Path
) -> None:
    (tmp_path / "key.json").write_text(SERVICE_ACCOUNT)
    call = form(
        server,
        "gcpIamAuthCredentials",
        "gcp-auth",
        identityId="id-1",
        serviceAccountKeyFilePath=str(tmp_path / "key.json"),
    )

    token = (await logged_in(provider, server, call))["jwt"]

    claims = jwt.decode(
        token, KEY.public_key(), ["RS256"], audience="id-1", options={"verify_exp": False, "verify_iat": False}
    )
    assert claims["sub"] == "reader@shop.iam.gserviceaccount.com"
    assert jwt.get_unverified_header(token)["kid"] == "kid-1"


@pytest.mark.usefixtures("clouds")
async def test_aws_auth_sends_a_signed_request_for_the_own_identity(
    provider: InMemory, server: InfisicalServer, clock: VirtualClock
) -> None:
    call = form(server, "awsAuthCredentials", "aws-auth", identityId="id-1")

    body = await logged_in(provider, server, call)

    headers = json.loads(base64.b64decode(body["iamRequestHeaders"]))
    request = base64.b64decode(body["iamRequestBody"])
    assert (body["iamHttpRequestMethod"], request) == ("POST", b"Action=GetCallerIdentity&Version=2011-06-15")
    assert headers["Host"] == "sts.eu-central-1.amazonaws.com"
    assert headers["Authorization"] == aws_signature(headers, request, clock)


def aws_signature(headers: dict[str, str], body: bytes, clock: VirtualClock) -> str:
    """Sign the request again, as AWS does to verify it. The signer itself is verified against moto."""
    keys = AwsCredentials("AKIA", SecretBytes(b"aws-secret"), SecretBytes(b"aws-session"))
    signed = {"Content-Type": headers["Content-Type"]}
    request = SignableRequest("POST", URL(f"https://{headers['Host']}/"), signed, body)
    return signed_headers(request, keys, Scope("eu-central-1", "sts"), clock.now())["Authorization"]


@pytest.mark.parametrize("passphrase", ["", "open sesame"])
async def test_oci_auth_sends_a_signed_request_for_the_own_user(
    provider: InMemory, server: InfisicalServer, passphrase: str
) -> None:
    encryption = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
    pem = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()
    parts = {"privateKeyPassphrase": passphrase} if passphrase else {}
    call = form(
        server,
        "ociAuthCredentials",
        "oci-auth",
        identityId="id-1",
        privateKey=pem,
        fingerprint="aa:bb",
        userId="ocid1.user.oc1..u",
        tenancyId="ocid1.tenancy.oc1..t",
        region="eu-frankfurt-1",
        **parts,
    )

    body = await logged_in(provider, server, call)

    sent = body["headers"]
    assert (body["userOcid"], sent["host"]) == ("ocid1.user.oc1..u", "identity.eu-frankfurt-1.oraclecloud.com")
    fields = dict(part.split("=", 1) for part in sent["authorization"].removeprefix("Signature ").split(","))
    assert json.loads(fields["keyId"]) == "ocid1.tenancy.oc1..t/ocid1.user.oc1..u/aa:bb"
    covered = f"date: {sent['date']}\n(request-target): get /20160918/users/ocid1.user.oc1..u\nhost: {sent['host']}"
    signature = base64.b64decode(json.loads(fields["signature"]))
    KEY.public_key().verify(signature, covered.encode(), padding.PKCS1v15(), SHA256())


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("clouds")
@pytest.mark.parametrize(
    ("name", "method", "parts"),
    [
        pytest.param(
            "kubernetesAuthCredentials",
            "kubernetes-auth",
            {"serviceAccountTokenPath": "/etc/provider/tls.key"},
            id="a token file",
        ),
        pytest.param(
            "gcpIamAuthCredentials", "gcp-auth", {"serviceAccountKeyFilePath": "/etc/provider/tls.key"}, id="a key file"
        ),
    ],
)
async def test_only_files_that_the_administrator_lists_are_read(
    provider: InMemory, server: InfisicalServer, name: str, method: str, *, parts: dict[str, str]
) -> None:
    with pytest.raises(ProviderError, match="--identity-file") as refused:
        await read(provider, form(server, name, method, identityId="id-1", **parts), "A")

    assert refused.value.reason is ErrorReason.CONFIG_INVALID
    assert server.calls == []


@pytest.mark.parametrize(
    ("scope", "remedy"),
    [
        pytest.param("namespaced", "--identity-host=http://127.0.0.1", id="the host is not listed"),
        pytest.param("cluster", "--ambient-identity=namespaced", id="the store is namespaced"),
    ],
)
@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("azureAuthCredentials", "azure-auth"),
        ("gcpIdTokenAuthCredentials", "gcp-auth"),
        ("awsAuthCredentials", "aws-auth"),
        ("kubernetesAuthCredentials", "kubernetes-auth"),
    ],
)
async def test_proofs_of_the_providers_identity_are_not_sent_to_servers_of_tenants(
    server: InfisicalServer, clouds: Clouds, name: str, method: str, *, scope: str, remedy: str
) -> None:
    identity = ProcessIdentityPolicy.parse(scope, ["app.infisical.com"])
    call = form(server, name, method, identityId="id-1")

    async with InMemory(PROVIDER, addresses=AddressPolicy.parse(["loopback"]), process_identity=identity) as provider:
        with pytest.raises(ProviderError, match=remedy) as refused:
            await read(provider, call, "A")

    assert refused.value.reason is ErrorReason.CONFIG_INVALID
    assert (server.calls, clouds.calls) == ([], [])


@pytest.mark.usefixtures("clouds")
async def test_aws_auth_without_a_role_of_the_provider_says_so(
    provider: InMemory, server: InfisicalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")

    with pytest.raises(ProviderError, match="bind a role") as refused:
        await read(provider, form(server, "awsAuthCredentials", "aws-auth", identityId="id-1"), "A")

    assert refused.value.reason is ErrorReason.CREDENTIALS_NOT_FOUND


async def test_a_refused_login_costs_one_call_a_minute_and_quotes_nothing(
    provider: InMemory, server: InfisicalServer, clock: VirtualClock
) -> None:
    wrong = CREDENTIALS | {"/auth/universalAuthCredentials/clientSecret": "WRONG-CANARY"}
    call = store(server, wrong)

    outcomes = [*await read(provider, call, "A", "B"), *await read(provider, call, "A")]
    before = len(server.calls)
    await clock.advance(61)
    outcomes += await read(provider, call, "A")

    assert (before, len(server.calls)) == (1, 2)
    assert {reason(each) for each in outcomes} == {ErrorReason.CREDENTIALS_REJECTED}
    assert not any("CANARY" in str(each) for each in outcomes)
    assert "check client id and client secret" in str(outcomes[0])


async def test_a_wrong_access_token_costs_one_call_a_minute(
    provider: InMemory, server: InfisicalServer, clock: VirtualClock
) -> None:
    auth = {"tokenAuthCredentials": {"accessToken": {"name": "infisical", "key": "token"}}}
    call = store(server, {"/auth/tokenAuthCredentials/accessToken": "WRONG-CANARY"}, auth=auth)

    outcomes = [each for _ in range(5) for each in await read(provider, call, "A")]
    before = len(server.calls)
    await clock.advance(61)
    await read(provider, call, "A")

    version = 0 if server.has_v4 else 1  # an older server does not know the path, whatever the token
    assert (before, len(server.calls)) == (1 + version, 2 + version)
    assert {reason(each) for each in outcomes} == {ErrorReason.CREDENTIALS_REJECTED}
    assert "CANARY" not in str(outcomes[0])


async def test_a_missing_key_costs_one_call_a_minute(
    provider: InMemory, server: InfisicalServer, clock: VirtualClock
) -> None:
    call = store(server)
    assert (await provider.validate(call)).state is ValidationState.READY
    server.calls.clear()

    outcomes = [each for _ in range(5) for each in await read(provider, call, "GONE")]
    before = len(server.calls)
    await clock.advance(61)
    await read(provider, call, "GONE")

    assert (before, len(server.calls)) == (1, 2)
    assert {reason(each) for each in outcomes} == {ErrorReason.SECRET_NOT_FOUND}


# --- sharing ---------------------------------------------------------------------------------------------------------


async def test_stores_of_one_identity_share_one_login(provider: InMemory, server: InfisicalServer) -> None:
    for number in range(20):
        server.project().put(f"/team-{number}/A", str(number))

    values = [
        await read(provider, store(server, namespace=f"team-{number}", secretsPath=f"/team-{number}"), "A")
        for number in range(20)
    ]

    assert values == [[str(number).encode()] for number in range(20)]
    assert len(server.requests(LOGIN)) == 1


async def test_a_token_is_replaced_before_it_expires(
    provider: InMemory, server: InfisicalServer, clock: VirtualClock
) -> None:
    server.project().put("/A", "1")
    server.token_seconds = 300
    call = store(server)
    await read(provider, call, "A")
    await clock.advance(230)
    await read(provider, call, "A")
    assert len(server.requests(LOGIN)) == 1

    await clock.advance(20)
    await read(provider, call, "A")

    assert len(server.requests(LOGIN)) == 2
    assert all(request.headers["authorization"] for request in server.requests("GET *"))


async def test_a_token_that_the_server_forgot_is_replaced_at_once(provider: InMemory, server: InfisicalServer) -> None:
    server.project().put("/A", "1")
    call = store(server)
    await read(provider, call, "A")
    server.tokens.clear()

    assert await read(provider, call, "A") == [b"1"]
    assert len(server.requests(LOGIN)) == 2


async def test_namespaces_with_different_credentials_never_see_each_others_values(
    provider: InMemory, server: InfisicalServer
) -> None:
    server.project("blue").put("/A", "blue value")
    server.project("red").put("/A", "red value")
    for name in ("blue", "red"):
        server.logins[f"{name}:{name}-secret"] = Identity(name, frozenset({name}))
    calls = {
        (who, what): store(
            server,
            {
                "/auth/universalAuthCredentials/clientId": who,
                "/auth/universalAuthCredentials/clientSecret": f"{who}-secret",
            },
            auth=UNIVERSAL,
            namespace=who,
            projectSlug=what,
        )
        for who in ("blue", "red")
        for what in ("blue", "red")
    }

    outcomes = {names: (await read(provider, call, "A", "B"))[0] for names, call in calls.items()}

    assert outcomes["blue", "blue"] == b"blue value"
    assert outcomes["red", "red"] == b"red value"
    assert {reason(outcomes[names]) for names in (("blue", "red"), ("red", "blue"))} == {ErrorReason.PERMISSION_DENIED}


async def test_a_throttled_server_is_asked_again_no_sooner_than_it_says(
    provider: InMemory, server: InfisicalServer, clock: VirtualClock
) -> None:
    server.project().put("/A", "1")
    call = store(server)
    await read(provider, call, "A")
    server.calls.clear()
    server.script("GET /api/v[34]/*", StandinResponse(429, {"message": "Rate limit exceeded"}, {"Retry-After": "17"}))

    outcomes = [each for _ in range(3) for each in await read(provider, call, "A")]
    throttled = len(server.calls)
    await clock.advance(18)

    assert {reason(each) for each in outcomes} == {ErrorReason.RATE_LIMITED}
    assert throttled == 1
    assert await read(provider, call, "A") == [b"1"]
