"""Whom a store is to AWS: keys of a Secret, a service account, the process itself, and roles assumed from there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_provider_aws.generators import ECRAuthorizationTokenGenerator, STSSessionTokenGenerator
from eso_provider_aws.provider import SecretsManager
from eso_provider_aws.testing.front import ARN, POD_PATH, Front, Metadata, RecordedRequest, Sts, StubResponse, refused
from eso_provider_aws.testing.sessions import (
    AUTH,
    KEYS,
    REGION,
    TOKEN_POINTER,
    credentials,
    read,
    token,
    whoami,
    with_keys,
    with_own,
    with_token,
)
from eso_sdk.testing import InMemory, call_context
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, ObjectRef, Token, ValidationState
from kubebase.clock import SystemClock


@pytest.fixture
def sts(front: Front) -> Sts:
    """Grants every role, and shows who is behind the key of a read."""
    granting = Sts(SystemClock())
    front.respond("AssumeRole", granting)
    front.respond("AssumeRoleWithWebIdentity", granting)
    front.respond("GetSecretValue", whoami)
    return granting


async def _who(provider: InMemory, call: Context) -> str:
    (result,) = await read(provider, call, "any")
    assert isinstance(result, bytes), result
    return result.decode()


async def _refusal(provider: InMemory, call: Context) -> ProviderError:
    """Return the error: a failed open fails the call, a failed read fails the item."""
    try:
        (result,) = await read(provider, call, "any")
    except ProviderError as failed:
        return failed
    assert isinstance(result, ProviderError), result
    return result


# --- keys of a Secret ---


@pytest.mark.usefixtures("sts")
async def test_keys_of_a_secret_sign_the_calls(front: Front, provider: InMemory) -> None:
    sent = credentials() | {"/auth/secretRef/sessionTokenSecretRef": "the session"}
    auth = {"secretRef": AUTH["secretRef"] | {"sessionTokenSecretRef": {"name": "aws", "key": "token"}}}

    assert await _who(provider, call_context(SecretsManager, {"region": REGION, "auth": auth}, sent)) == KEYS[0]

    (request,) = front.requests
    assert (request.service, request.region) == ("secretsmanager", "eu-west-1")
    assert request.headers["X-Amz-Security-Token"] == "the session"


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        pytest.param(("", "secret"), "is empty", id="an empty key id"),
        pytest.param(("AKIA", " \n"), "is empty", id="a secret of white space"),
        pytest.param(("AKIA", "schlüssel"), "characters that no key", id="a secret that is no text of a key"),
    ],
)
async def test_keys_that_cannot_be_any_are_not_tried(
    front: Front, provider: InMemory, keys: tuple[str, str], text: str
) -> None:
    error = await _refusal(provider, with_keys(keys))

    assert error.reason is ErrorReason.CREDENTIALS_NOT_FOUND
    assert text in error.message
    assert "schlüssel" not in error.message
    assert front.requests == []


@pytest.mark.usefixtures("sts")
async def test_a_newline_at_the_end_of_a_key_does_not_matter(provider: InMemory) -> None:
    assert await _who(provider, with_keys((f"{KEYS[0]}\n", f"{KEYS[1]}\n"))) == KEYS[0]


# --- service accounts ---


async def test_the_token_of_a_service_account_is_exchanged_for_the_role_of_its_annotation(
    front: Front, provider: InMemory, sts: Sts
) -> None:
    key_id = await _who(provider, with_token(token("the token")))

    (request,) = sts.granted.values()
    assert sts.granted == {key_id: request}
    assert request.operation == "AssumeRoleWithWebIdentity"
    assert request.key_id == ""
    assert request.body["WebIdentityToken"] == "the token"
    assert request.body["RoleArn"] == f"{ARN}app"
    assert request.body["RoleSessionName"] == "external-secrets-provider-aws"
    assert front.counts == {"AssumeRoleWithWebIdentity": 1, "GetSecretValue": 1}


async def test_a_service_account_wins_over_keys_of_a_secret(provider: InMemory, sts: Sts) -> None:
    auth = {**AUTH, "jwt": {"serviceAccountRef": {"name": "app"}}}
    sent = {**credentials(), TOKEN_POINTER: token()}

    key_id = await _who(provider, call_context(SecretsManager, {"region": REGION, "auth": auth}, sent))

    assert sts.chain(key_id) == ["", "app"]


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        pytest.param(
            token(annotations={}),
            'service account "team/app" has no annotation eks.amazonaws.com/role-arn',
            id="no role",
        ),
        pytest.param(Token(SecretBytes(b"token")), "upgrade the operator", id="an operator that names no account"),
    ],
)
async def test_a_service_account_without_a_role_is_told_what_to_do(
    front: Front, provider: InMemory, sent: Token, text: str
) -> None:
    error = await _refusal(provider, with_token(sent))

    assert error.reason is ErrorReason.CREDENTIALS_NOT_FOUND
    assert text in error.message
    assert front.requests == []


async def test_stores_of_one_service_account_share_its_keys(front: Front, provider: InMemory, sts: Sts) -> None:
    calls = [with_token(token(), prefix=f"{number}/") for number in range(20)]

    found = await asyncio.gather(*(_who(provider, call) for call in calls))

    assert set(found) == set(sts.granted)
    assert front.counts == {"AssumeRoleWithWebIdentity": 1, "GetSecretValue": 20}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"namespace": "other"}, id="another namespace"),
        pytest.param({"name": "other"}, id="another name"),
        pytest.param({"uid": "made anew"}, id="a successor of the same name"),
        pytest.param({"audiences": ("other",)}, id="another audience"),
        pytest.param({"role": "other"}, id="another role"),
    ],
)
async def test_other_accounts_have_other_keys(provider: InMemory, sts: Sts, other: dict[str, Any]) -> None:
    first = await _who(provider, with_token(token()))
    second = await _who(provider, with_token(token("token-2", **other)))

    assert first != second
    assert len(sts.granted) == 2


async def test_the_newest_token_of_any_session_is_used(front: Front, provider: InMemory, sts: Sts) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    one, two = (with_token(token("old token", expires_at=now), prefix=prefix) for prefix in ("1/", "2/"))
    newer = with_token(token("new token", expires_at=now + timedelta(minutes=5)), prefix="1/")
    for call in (one, two, newer):
        await provider.validate(call)  # opens sessions; the third renews the token of the first
    front.respond("GetSecretValue", _expired_once())

    await _who(provider, two)

    assert [request.body["WebIdentityToken"] for request in sts.granted.values()] == ["old token", "new token"]


def _expired_once() -> Callable[[RecordedRequest], StubResponse]:
    used: list[str] = []

    def result(request: RecordedRequest) -> StubResponse:
        used.append(request.key_id)
        return refused("ExpiredTokenException") if len(used) == 1 else whoami(request)

    return result


# --- the process itself ---


@pytest.fixture
async def metadata() -> AsyncIterator[Front]:
    async with Front.before("") as endpoint:
        endpoint.respond("*", Metadata())
        yield endpoint


@pytest.mark.parametrize("spec", [{}, {"role": f"{ARN}admin"}], ids=["without a role", "with a role"])
async def test_a_store_of_a_namespace_does_not_use_the_identity_of_the_provider(
    front: Front, provider: InMemory, monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any]
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOFTHEPROCESS")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    failed = await _refusal(provider, call_context(SecretsManager, {"region": REGION, **spec}))

    assert failed.reason is ErrorReason.CONFIG_INVALID
    assert "--ambient-identity=namespaced" in failed.message
    assert front.requests == []


@pytest.mark.parametrize("kind", [ECRAuthorizationTokenGenerator, STSSessionTokenGenerator])
async def test_a_generator_of_a_namespace_gives_nothing_of_the_providers_identity(
    front: Front, provider: InMemory, monkeypatch: pytest.MonkeyPatch, kind: type[Any]
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOFTHEPROCESS")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    with pytest.raises(ProviderError, match="--ambient-identity=namespaced"):
        await provider.generate(call_context(kind, {"region": REGION}))

    assert front.requests == []


@pytest.mark.usefixtures("sts")
async def test_the_process_may_have_keys_in_its_environment(
    provider: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOFTHEPROCESS")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    assert await _who(provider, with_own()) == "AKIAOFTHEPROCESS"


async def test_the_process_may_have_a_web_identity_file(
    front: Front, provider: InMemory, sts: Sts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("token of the pod")
    monkeypatch.setenv("AWS_ROLE_ARN", f"{ARN}pod")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_REGION", REGION)

    found = await asyncio.gather(*(_who(provider, with_own(prefix=f"{number}/")) for number in range(30)))

    assert set(found) == set(sts.granted)
    (request,) = sts.granted.values()
    assert request.body["WebIdentityToken"] == "token of the pod"
    assert front.count("AssumeRoleWithWebIdentity") == 1


@pytest.mark.usefixtures("sts")
async def test_the_process_may_have_a_pod_identity(
    provider: InMemory, metadata: Front, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("token of the pod")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", metadata.url + POD_PATH)
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))

    found = await asyncio.gather(*(_who(provider, with_own(prefix=f"{number}/")) for number in range(30)))

    assert set(found) == {"ASIAOFTHEPOD"}
    (request,) = metadata.requests
    assert request.headers["Authorization"] == "token of the pod"


@pytest.mark.usefixtures("sts")
async def test_the_process_may_have_the_role_of_its_instance(
    provider: InMemory, metadata: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url)

    found = await asyncio.gather(*(_who(provider, with_own(prefix=f"{number}/")) for number in range(30)))

    assert set(found) == {"ASIAOFTHEINSTANCE"}
    assert len(metadata.requests) == 3


async def test_a_process_without_an_identity_reports_so_and_looks_once(
    front: Front, provider: InMemory, metadata: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url)
    metadata.respond("*", Metadata(broken=True))

    errors = await asyncio.gather(*(_refusal(provider, with_own(prefix=f"{number}/")) for number in range(30)))

    assert {error.reason for error in errors} == {ErrorReason.CREDENTIALS_NOT_FOUND}
    assert "give it one, or set auth" in errors[0].message
    assert len(metadata.requests) <= 4
    assert front.requests == []
    assert (await provider.validate(with_own())).state is ValidationState.INVALID


@pytest.mark.usefixtures("front")
async def test_a_failed_pod_identity_is_reported_without_its_response(
    provider: InMemory, metadata: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", metadata.url + POD_PATH)
    metadata.respond("*", Metadata(broken=True))

    error = await _refusal(provider, with_own())

    assert error.reason is ErrorReason.CREDENTIALS_NOT_FOUND
    assert "(CredentialRetrievalError)" in error.message


async def test_keys_of_the_process_that_are_rejected_are_requested_again(
    front: Front, provider: InMemory, metadata: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", metadata.url + POD_PATH)
    front.respond("GetSecretValue", _expired_once())

    assert await _who(provider, with_own()) == "ASIAOFTHEPOD"
    assert len(metadata.requests) == 2


@pytest.mark.usefixtures("front")
async def test_a_web_identity_without_a_region_reports_which_variable_is_missing(
    provider: InMemory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("token of the pod")
    monkeypatch.setenv("AWS_ROLE_ARN", f"{ARN}pod")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.delenv("AWS_STS_ENDPOINT")
    for variable in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(variable, raising=False)

    error = await _refusal(provider, with_own())

    assert error.reason is ErrorReason.CREDENTIALS_NOT_FOUND
    assert "check AWS_REGION" in error.message


@pytest.mark.usefixtures("front")
async def test_a_missing_web_identity_file_is_no_internal_error(
    provider: InMemory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ROLE_ARN", f"{ARN}pod")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_REGION", REGION)

    error = await _refusal(provider, with_own())

    assert error.reason is ErrorReason.CREDENTIALS_NOT_FOUND
    assert "(FileNotFoundError)" in error.message


# --- roles ---


async def test_roles_are_assumed_one_by_the_other_and_the_last_one_reads(provider: InMemory, sts: Sts) -> None:
    call = with_keys(
        role="last",
        additionalRoles=["first", "second"],
        externalID="external",
        sessionTags=[{"key": "team", "value": "red"}],
        transitiveTagKeys=["team"],
    )

    key_id = await _who(provider, call)

    assert sts.chain(key_id) == [KEYS[0], "first", "second", "last"]
    first, second, last = sts.granted.values()
    assert (last.body["ExternalId"], last.body["TransitiveTagKeys.member.1"]) == ("external", "team")
    assert sts.tags(key_id) == {"team": "red"}
    for request in (first, second):
        assert not {"ExternalId", "Tags.member.1.Key", "TransitiveTagKeys.member.1"} & set(request.body)


async def test_any_number_of_stores_and_reads_assumes_a_chain_once(front: Front, provider: InMemory, sts: Sts) -> None:
    calls = [with_keys(role="last", additionalRoles=["first"], prefix=f"{number}/") for number in range(20)]

    found = {await _who(provider, call) for call in calls for _ in range(5)}
    found |= set(await asyncio.gather(*(_who(provider, call) for call in calls for _ in range(2))))

    assert len(found) == 1
    assert sts.roles == [f"{ARN}first", f"{ARN}last"]
    assert front.counts == {"AssumeRole": 2, "GetSecretValue": 140}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"externalID": "other"}, id="another external id"),
        pytest.param({"sessionTags": [{"key": "team", "value": "blue"}]}, id="other tags"),
        pytest.param({"additionalRoles": ["before"]}, id="another chain"),
        pytest.param({"region": "eu-central-1"}, id="another region"),
    ],
)
async def test_a_session_that_differs_to_aws_is_not_shared(provider: InMemory, sts: Sts, other: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"role": "app", "sessionTags": [{"key": "team", "value": "red"}]}
    first = await _who(provider, with_keys(**usual))
    second = await _who(provider, with_keys(**usual | other))

    assert first != second
    assert sts.chain(first)[-1] == sts.chain(second)[-1] == "app"


def _in(namespace: str, **spec: object) -> Context:
    """A call from a namespace through one cluster-scoped store, which has no credentials of any namespace."""
    return call_context(
        SecretsManager,
        {"region": REGION, "role": f"{ARN}app", **spec},
        caller=ObjectRef("external-secrets.io/v1", "ExternalSecret", namespace, "caller", uid=namespace),
        store=ObjectRef("external-secrets.io/v1", "ClusterSecretStore", "", "shared", uid="uid-3"),
        namespace="",
    )


@pytest.mark.parametrize(
    ("policy", "more"),
    [
        pytest.param({"sessionTagsPolicy": "Simple"}, {}, id="Simple"),
        pytest.param(
            {"sessionTagsPolicy": "Custom", "customSessionTags": {"stage": "prod", "empty": ""}},
            {"stage": "prod"},
            id="Custom",
        ),
    ],
)
async def test_namespaces_never_share_a_session_that_is_tagged_with_them(
    provider: InMemory,
    sts: Sts,
    monkeypatch: pytest.MonkeyPatch,
    *,
    policy: dict[str, object],
    more: dict[str, str],
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOFTHEPROCESS")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    replaced = {"sessionTags": [{"key": "team", "value": "red"}]}
    names = ("red", "blue") * 20

    found = await asyncio.gather(*(_who(provider, _in(name, **policy, **replaced)) for name in names))

    for name, key_id in zip(names, found, strict=True):
        tags = {"esoNamespace": name, "esoStoreName": "config", "esoStoreKind": "SecretsManager", **more}
        assert sts.tags(key_id) == tags
    assert len(sts.granted) == 2


async def test_without_a_policy_namespaces_share_the_session(
    provider: InMemory, sts: Sts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOFTHEPROCESS")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    found = {await _who(provider, _in(name)) for name in ("red", "blue")}

    assert found == set(sts.granted)
    assert len(found) == 1
