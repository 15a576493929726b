"""The iam method: the signed request of a login is sent to an STS that verifies signatures, as Vault does."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from eso_api.values import SecretBytes
from eso_provider_vault.testing.logins import Aws, CloudLogins, RecordedRequest, elements, standin
from eso_provider_vault.testing.openbao import OpenBao
from eso_provider_vault.testing.sessions import TRUSTED, Sent, opened, read
from eso_sdk.awsidentity import AwsCredentials, Scope, SignableRequest, signed_headers
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Token

ROLE_ANNOTATION = "eks.amazonaws.com/role-arn"

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    with Aws.started(tmp_path_factory.mktemp("aws")) as server:
        yield server


@pytest.fixture
def keys(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """The access key of a user. From now on, signatures are verified."""
    monkeypatch.setenv("AWS_STS_ENDPOINT", aws.url)
    aws.verify_signatures(after=10_000)
    made = aws.user(f"user-{next(_NUMBERS)}")
    aws.verify_signatures()
    yield made
    aws.verify_signatures(after=10_000)


def front(bao: OpenBao, aws: Aws, mount: str, server_id: str = "") -> AbstractContextManager[CloudLogins]:
    """Vault's side of the login."""

    def verify(body: Mapping[str, Any]) -> str | None:
        headers = {
            name: values[0] for name, values in json.loads(base64.b64decode(body["iam_request_headers"])).items()
        }
        signed = headers["Authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
        if server_id and (
            headers.get("X-Vault-AWS-IAM-Server-ID") != server_id or "x-vault-aws-iam-server-id" not in signed
        ):
            return None
        assert base64.b64decode(body["iam_request_url"]).decode() == aws.url
        assert body["role"] == "app"
        status, answer = aws.send(body["iam_http_request_method"], headers, base64.b64decode(body["iam_request_body"]))
        return elements(answer)["Arn"] if status == 200 else None

    bao.policy(mount, f'path "{mount}/*" {{ capabilities = ["read"] }}')
    return CloudLogins.started(bao, {"auth/aws/login": verify}, policy=mount)


def spec(server: CloudLogins, mount: str, **iam: Any) -> dict[str, Any]:
    return {"server": server.url, "path": mount, "auth": {"iam": {"vaultRole": "app", **iam}}}


def static(keys: tuple[str, str]) -> tuple[dict[str, Any], Sent]:
    refs = {
        "accessKeyIDSecretRef": {"name": "aws", "key": "id"},
        "secretAccessKeySecretRef": {"name": "aws", "key": "key"},
    }
    base = "/auth/iam/secretRef"
    sent = {f"{base}/accessKeyIDSecretRef": keys[0] + "\n", f"{base}/secretAccessKeySecretRef": keys[1]}
    return {"secretRef": refs}, sent


async def test_keys_of_a_secret_log_in(bao: OpenBao, aws: Aws, mount: str, keys: tuple[str, str]) -> None:
    bao.put(mount, "app", {"password": "value"})
    iam, sent = static(keys)

    with front(bao, aws, mount, "vault.example") as server:
        async with opened(spec(server, mount, vaultAwsIamServerID="vault.example", **iam), sent) as store:
            assert (await read(store, f"{mount}/data/app")).ok

    assert [who.rpartition("/")[0] for who in server.proven] == ["arn:aws:iam::123456789012:user"]


async def test_a_role_is_assumed_first(bao: OpenBao, aws: Aws, mount: str, keys: tuple[str, str]) -> None:
    bao.put(mount, "app", {"password": "value"})
    aws.verify_signatures(after=1)
    role = aws.role(f"reader-{mount}")
    iam, sent = static(keys)

    with front(bao, aws, mount) as server:
        async with opened(spec(server, mount, role=role, externalID="outside", **iam), sent) as store:
            assert (await read(store, f"{mount}/data/app")).ok

    assert server.proven == [f"arn:aws:sts::123456789012:assumed-role/reader-{mount}/external-secrets-provider-vault"]


async def test_a_wrong_key_is_refused_and_never_shown(
    bao: OpenBao, aws: Aws, mount: str, keys: tuple[str, str]
) -> None:
    iam, sent = static((keys[0], "CANARY-wrong"))

    with front(bao, aws, mount) as server:
        async with opened(spec(server, mount, **iam), sent) as store:
            with pytest.raises(ProviderError) as caught:
                await read(store, f"{mount}/data/app")

    assert caught.value.reason is ErrorReason.CREDENTIALS_REJECTED
    assert "CANARY" not in caught.value.message
    assert server.proven == []


async def test_a_role_that_may_not_be_assumed_names_the_role(
    bao: OpenBao, aws: Aws, mount: str, keys: tuple[str, str]
) -> None:
    iam, sent = static((keys[0], "CANARY-wrong"))

    with front(bao, aws, mount) as server:
        async with opened(spec(server, mount, role="arn:aws:iam::123456789012:role/x", **iam), sent) as store:
            with pytest.raises(ProviderError) as caught:
                await read(store, f"{mount}/data/app")

    assert caught.value.reason is ErrorReason.CREDENTIALS_REJECTED
    assert "role/x" in caught.value.message
    assert "CANARY" not in caught.value.message


async def test_the_web_identity_of_the_provider_logs_in(
    bao: OpenBao, aws: Aws, mount: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bao.put(mount, "app", {"password": "value"})
    role = aws.role(f"pod-{mount}")
    token = tmp_path / "token"
    token.write_text("header.payload.signature\n")
    for name, value in {
        "AWS_STS_ENDPOINT": aws.url,
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
        "AWS_ROLE_ARN": role,
    }.items():
        monkeypatch.setenv(name, value)

    with front(bao, aws, mount) as server:
        async with opened(spec(server, mount), process_identity=TRUSTED) as store:
            assert (await read(store, f"{mount}/data/app")).ok

    assert server.proven == [f"arn:aws:sts::123456789012:assumed-role/pod-{mount}/external-secrets-provider-vault"]


async def test_pod_identity_of_the_provider_logs_in(
    bao: OpenBao, aws: Aws, mount: str, *, keys: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bao.put(mount, "app", {"password": "value"})
    (tmp_path / "token").write_text("pod-token\n")

    def agent(sent: RecordedRequest) -> tuple[int, bytes]:
        good = sent.headers.get("authorization") == "pod-token" and sent.path == "/v1/credentials"
        return (200, json.dumps({"AccessKeyId": keys[0], "SecretAccessKey": keys[1]}).encode()) if good else (401, b"")

    with standin(agent) as address, front(bao, aws, mount) as server:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://{address}/v1/credentials")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
        async with opened(spec(server, mount), process_identity=TRUSTED) as store:
            assert (await read(store, f"{mount}/data/app")).ok

    assert len(server.proven) == 1


ACCOUNT = {"jwt": {"serviceAccountRef": {"name": "app"}}}
ACCOUNT_POINTER = "/auth/iam/jwt/serviceAccountRef"


def account(**annotations: str) -> Token:
    token = SecretBytes(b"header.payload.signature")
    return Token(
        token, None, ("sts.amazonaws.com",), namespace="team", name="app", uid="uid-1", annotations=annotations
    )


async def test_a_service_account_assumes_the_role_of_its_annotation(
    bao: OpenBao, aws: Aws, mount: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bao.put(mount, "app", {"password": "value"})
    monkeypatch.setenv("AWS_STS_ENDPOINT", aws.url)
    token = account(**{ROLE_ANNOTATION: aws.role(f"account-{mount}")})

    with front(bao, aws, mount) as server:
        async with opened(spec(server, mount, **ACCOUNT), {ACCOUNT_POINTER: token}) as store:
            assert (await read(store, f"{mount}/data/app")).ok

    assert server.proven == [f"arn:aws:sts::123456789012:assumed-role/account-{mount}/external-secrets-provider-vault"]


async def test_a_service_account_without_the_annotation_names_it(bao: OpenBao, mount: str) -> None:
    config = {"server": bao.url, "path": mount, "auth": {"iam": {"vaultRole": "app", **ACCOUNT}}}

    with pytest.raises(ProviderError) as caught:
        async with opened(config, {ACCOUNT_POINTER: account()}):
            pass

    assert caught.value.reason is ErrorReason.CONFIG_INVALID
    assert ROLE_ANNOTATION in caught.value.message


async def test_without_any_identity_the_error_says_what_to_add(
    bao: OpenBao, mount: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        monkeypatch.delenv(name, raising=False)

    config = {"server": bao.url, "path": mount, "auth": {"iam": {"vaultRole": "app"}}}
    with pytest.raises(ProviderError) as caught:
        async with opened(config, process_identity=TRUSTED):
            pass

    assert caught.value.reason is ErrorReason.CREDENTIALS_NOT_FOUND
    assert "secretRef" in caught.value.message


def test_the_signature_is_that_of_the_published_example() -> None:
    request = SignableRequest(
        "GET",
        URL("https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08"),
        {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"},
        b"",
    )
    credentials = AwsCredentials("AKIDEXAMPLE", SecretBytes(b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"))
    moment = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)

    signed = signed_headers(request, credentials, Scope("us-east-1", "iam"), moment)

    assert signed["Authorization"].endswith(
        "Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
    )
    assert "wJalr" not in repr(credentials)
