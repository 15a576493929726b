"""The gcp method: the JWT of a login is verified as Vault does, by signature, audience and lifetime."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from eso_api.values import SecretBytes
from eso_provider_vault.testing.logins import CloudLogins, RecordedRequest, Responder, standin
from eso_provider_vault.testing.openbao import OpenBao
from eso_provider_vault.testing.sessions import TRUSTED, opened, read
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Token
from kubebase.clock import SystemClock

EMAIL = "app@project.iam.gserviceaccount.com"
POINTER = "/auth/gcp/secretRef/secretAccessKeySecretRef"


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def account_key(key: rsa.RSAPrivateKey) -> str:
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return json.dumps({"type": "service_account", "client_email": EMAIL, "private_key": pem, "private_key_id": "key-1"})


@contextmanager
def front(bao: OpenBao, mount: str, key: rsa.RSAPrivateKey, audience: str) -> Iterator[CloudLogins]:
    """Vault's side of the login."""

    def verify(body: Mapping[str, Any]) -> str | None:
        assert body["role"] == "app"
        expected = audience.format(server=logins.url)
        try:
            claims = jwt.decode(body["jwt"], key.public_key(), algorithms=["RS256"], audience=expected)
        except jwt.PyJWTError:
            return None
        now = SystemClock().now().timestamp()
        return claims["sub"] if now < claims["exp"] <= now + 15 * 60 else None

    bao.put(mount, "app", {"password": "value"})
    bao.policy(mount, f'path "{mount}/*" {{ capabilities = ["read"] }}')
    with CloudLogins.started(bao, {"auth/gcp/login": verify}, policy=mount) as logins:
        yield logins


def spec(server: CloudLogins, mount: str, **gcp: Any) -> dict[str, Any]:
    return {"server": server.url, "path": mount, "auth": {"gcp": {"role": "app", **gcp}}}


SECRET_REF = {"secretRef": {"secretAccessKeySecretRef": {"name": "gcp", "key": "key.json"}}}


async def test_a_service_account_key_signs_the_login(bao: OpenBao, mount: str, key: rsa.RSAPrivateKey) -> None:
    with front(bao, mount, key, "vault/app") as server:
        async with opened(spec(server, mount, **SECRET_REF), {POINTER: account_key(key)}) as store:
            assert (await read(store, f"{mount}/data/app")).ok

    assert server.proven == [EMAIL]


async def test_a_key_of_another_account_is_refused(bao: OpenBao, mount: str, key: rsa.RSAPrivateKey) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    with front(bao, mount, key, "vault/app") as server:
        async with opened(spec(server, mount, **SECRET_REF), {POINTER: account_key(other)}) as store:
            with pytest.raises(ProviderError) as caught:
                await read(store, f"{mount}/data/app")

    assert caught.value.reason is ErrorReason.CREDENTIALS_REJECTED
    assert 'role "app"' in caught.value.message


@pytest.mark.parametrize(
    "content", ["CANARY", "{}", '{"client_email":"a","private_key":"CANARY","private_key_id":"b"}']
)
async def test_a_value_that_is_no_key_names_the_field(bao: OpenBao, mount: str, content: str) -> None:
    config = {"server": bao.url, "path": mount, "auth": {"gcp": {"role": "app", **SECRET_REF}}}

    async with opened(config, {POINTER: content}) as store:
        with pytest.raises(ProviderError) as caught:
            await read(store, f"{mount}/data/app")

    assert caught.value.reason is ErrorReason.CONFIG_INVALID
    assert caught.value.message.startswith(POINTER)
    assert "CANARY" not in caught.value.message


async def test_without_credentials_the_machine_gives_an_identity_token(
    bao: OpenBao, mount: str, key: rsa.RSAPrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    def metadata(sent: RecordedRequest) -> tuple[int, bytes]:
        query = parse_qs(urlsplit(sent.path).query)
        if sent.headers.get("metadata-flavor") != "Google" or query["format"] != ["full"]:
            return 403, b""
        claims = {"sub": "machine", "aud": query["audience"][0], "exp": int(SystemClock().now().timestamp()) + 600}
        return 200, jwt.encode(claims, key, algorithm="RS256").encode()

    with standin(metadata) as address, front(bao, mount, key, "{server}/vault/app") as server:
        monkeypatch.setenv("GCE_METADATA_HOST", address)
        async with opened(spec(server, mount), process_identity=TRUSTED) as store:
            assert (await read(store, f"{mount}/data/app")).ok

    assert server.proven == ["machine"]


async def test_a_machine_without_a_service_account_says_what_to_add(
    bao: OpenBao, mount: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with standin(lambda _asked: (404, b"")) as address:
        monkeypatch.setenv("GCE_METADATA_HOST", address)
        config = {"server": bao.url, "path": mount, "auth": {"gcp": {"role": "app"}}}
        async with opened(config, process_identity=TRUSTED) as store:
            with pytest.raises(ProviderError) as caught:
                await read(store, f"{mount}/data/app")

    assert caught.value.reason is ErrorReason.CREDENTIALS_NOT_FOUND
    assert "secretRef" in caught.value.message


WORKLOAD = {
    "workloadIdentity": {
        "serviceAccountRef": {"name": "app"},
        "clusterProjectID": "project",
        "clusterLocation": "europe",
        "clusterName": "production",
    }
}
WORKLOAD_POINTER = "/auth/gcp/workloadIdentity/serviceAccountRef"
CLUSTER = "https://container.googleapis.com/v1/projects/project/locations/europe/clusters/production"


def account(**annotations: str) -> Token:
    audiences = ("project.svc.id.goog",)
    token = SecretBytes(b"kubernetes-token")
    return Token(token, None, audiences, namespace="team", name="app", uid="uid-1", annotations=annotations)


def google(key: rsa.RSAPrivateKey) -> Responder:
    """Google's side: exchanges the token of the cluster, and signs for the service account."""

    def answer(sent: RecordedRequest) -> tuple[int, bytes]:
        body = json.loads(sent.body)
        if sent.path == "/v1/identitybindingtoken":
            good = body["subject_token"] == "kubernetes-token"
            good &= body["audience"] == f"identitynamespace:project.svc.id.goog:{CLUSTER}"
            return (200, b'{"access_token": "federated"}') if good else (400, b"{}")
        if sent.path != f"/v1/projects/-/serviceAccounts/{EMAIL}:signJwt":
            return 404, b"{}"
        if sent.headers["authorization"] != "Bearer federated":
            return 401, b"{}"
        signed = jwt.encode(json.loads(body["payload"]), key, algorithm="RS256")
        return 200, json.dumps({"signedJwt": signed}).encode()

    return answer


async def test_workload_identity_lets_google_sign_the_login(
    bao: OpenBao, mount: str, key: rsa.RSAPrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = account(**{"iam.gke.io/gcp-service-account": EMAIL})

    with standin(google(key)) as address, front(bao, mount, key, "vault/app") as server:
        monkeypatch.setenv("GOOGLE_SECURETOKEN_ENDPOINT", f"http://{address}")
        monkeypatch.setenv("GOOGLE_IAM_CREDENTIALS_ENDPOINT", f"http://{address}")
        async with opened(spec(server, mount, **WORKLOAD), {WORKLOAD_POINTER: token}) as store:
            assert (await read(store, f"{mount}/data/app")).ok

    assert server.proven == [EMAIL]


@pytest.mark.parametrize(
    ("annotations", "change", "reason", "text"),
    [
        pytest.param({}, {}, ErrorReason.CONFIG_INVALID, "iam.gke.io/gcp-service-account", id="no annotation"),
        pytest.param(
            {"iam.gke.io/gcp-service-account": EMAIL},
            {"clusterName": ""},
            ErrorReason.CONFIG_INVALID,
            "clusterName",
            id="no cluster",
        ),
        pytest.param(
            {"iam.gke.io/gcp-service-account": "other@project"},
            {},
            ErrorReason.CREDENTIALS_REJECTED,
            "workloadIdentityUser",
            id="another service account",
        ),
    ],
)
async def test_a_workload_identity_that_cannot_be_used_says_why(
    bao: OpenBao,
    mount: str,
    key: rsa.RSAPrivateKey,
    monkeypatch: pytest.MonkeyPatch,
    *,
    annotations: dict[str, str],
    change: dict[str, str],
    reason: ErrorReason,
    text: str,
) -> None:
    identity = {"workloadIdentity": {**WORKLOAD["workloadIdentity"], **change}}

    with standin(google(key)) as address, front(bao, mount, key, "vault/app") as server:
        monkeypatch.setenv("GOOGLE_SECURETOKEN_ENDPOINT", f"http://{address}")
        monkeypatch.setenv("GOOGLE_IAM_CREDENTIALS_ENDPOINT", f"http://{address}")
        async with opened(spec(server, mount, **identity), {WORKLOAD_POINTER: account(**annotations)}) as store:
            with pytest.raises(ProviderError) as caught:
                await read(store, f"{mount}/data/app")

    assert caught.value.reason is reason
    assert text in caught.value.message
