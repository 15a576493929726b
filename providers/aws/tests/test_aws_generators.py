"""Logins for container registries and temporary keys: values, expiry, and errors of AWS."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_provider_aws.generators import ECRAuthorizationTokenGenerator, STSSessionTokenGenerator
from eso_provider_aws.provider import PROVIDER
from eso_provider_aws.testing.front import Front, RecordedRequest, StubResponse, refused
from eso_provider_aws.testing.sessions import AUTH, KEYS, context, credentials
from eso_sdk.testing import InMemory, call_context
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Generated, KindRole, Token, ValidationMode, ValidationState
from kubebase.clock import SystemClock

ROLE = "arn:aws:iam::123456789012:role/puller"
ACCOUNT = {"jwt": {"serviceAccountRef": {"name": "puller"}}}
TOKEN_SENT = "/auth/jwt/serviceAccountRef"


def texts(made: Generated) -> dict[str, str]:
    return {name: value.reveal().decode() for name, value in made.data.items()}


def json_response(body: Any) -> StubResponse:
    return StubResponse(200, json.dumps(body).encode(), {"Content-Type": "application/x-amz-json-1.1"})


def public_login(_asked: RecordedRequest) -> StubResponse:
    """As in the model of ecr-public: one object, not a list, and no endpoint. moto has no ecr-public."""
    token = base64.b64encode(b"AWS:public-password").decode()
    return json_response({"authorizationData": {"authorizationToken": token, "expiresAt": 1_800_000_000.25}})


def denied(_asked: RecordedRequest) -> StubResponse:
    """As STS refuses: XML, status 403."""
    body = (
        b'<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>'
        b"<Code>AccessDenied</Code><Message>words of STS</Message></Error><RequestId>id</RequestId></ErrorResponse>"
    )
    return StubResponse(403, body, {"Content-Type": "text/xml"})


async def failure(provider: InMemory, generator: Any, **spec: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await provider.generate(context(generator, **spec))
    return caught.value


# --- ECRAuthorizationToken -------------------------------------------------------------------------------------------


async def test_a_private_login_has_the_values_of_the_source_documents_and_its_end(
    front: Front, provider: InMemory
) -> None:
    made = await provider.generate(context(ECRAuthorizationTokenGenerator))

    assert texts(made) == {
        "username": "AWS",
        "password": "123456789012-auth-token",
        "token": "123456789012-auth-token",
        "registry": "123456789012.dkr.ecr.eu-west-1.amazonaws.com",
        "proxy_endpoint": "https://123456789012.dkr.ecr.eu-west-1.amazonaws.com",
        "expires_at": "1420070400",  # moto's tokens ended in 2015
    }
    assert made.metadata.expires_at == datetime(2015, 1, 1, tzinfo=UTC)
    assert made.state is None
    (request,) = front.requests
    assert (request.operation, request.service, request.region) == ("GetAuthorizationToken", "ecr", "eu-west-1")


async def test_a_public_login_is_requested_in_the_only_region_that_has_them(front: Front, provider: InMemory) -> None:
    front.respond("GetAuthorizationToken", public_login)

    made = await provider.generate(context(ECRAuthorizationTokenGenerator, scope="public"))

    assert texts(made) == {
        "username": "AWS",
        "password": "public-password",
        "token": "public-password",
        "registry": "public.ecr.aws",
        "expires_at": "1800000000",
    }
    (request,) = front.requests
    assert (request.service, request.region) == ("ecr-public", "us-east-1")


async def test_the_role_is_assumed_in_the_region_of_the_spec(front: Front, provider: InMemory) -> None:
    front.respond("GetAuthorizationToken", public_login)

    await provider.generate(context(ECRAuthorizationTokenGenerator, scope="public", role=ROLE))

    assume, request = front.requests
    assert (assume.operation, assume.region, assume.key_id) == ("AssumeRole", "eu-west-1", KEYS[0])
    assert assume.body["RoleArn"] == ROLE
    assert request.key_id not in ("", KEYS[0])


async def test_keys_of_a_secret_win_over_a_service_account(front: Front, provider: InMemory) -> None:
    expires = SystemClock().now() + timedelta(minutes=10)
    token = Token(SecretBytes(b"token"), expires_at=expires, namespace="team", name="puller", uid="1")
    call = call_context(
        ECRAuthorizationTokenGenerator,
        {"region": "eu-west-1", "auth": AUTH | ACCOUNT},
        credentials() | {TOKEN_SENT: token},
    )

    await provider.generate(call)

    assert [(request.operation, request.key_id) for request in front.requests] == [("GetAuthorizationToken", KEYS[0])]


async def test_a_service_account_alone_logs_in_with_its_token(front: Front, provider: InMemory) -> None:
    expires = SystemClock().now() + timedelta(minutes=10)
    annotations = {"eks.amazonaws.com/role-arn": ROLE}
    token = Token(
        SecretBytes(b"token"), expires_at=expires, namespace="team", name="puller", uid="1", annotations=annotations
    )
    call = call_context(ECRAuthorizationTokenGenerator, {"region": "eu-west-1", "auth": ACCOUNT}, {TOKEN_SENT: token})

    await provider.generate(call)

    assert list(front.counts) == ["AssumeRoleWithWebIdentity", "GetAuthorizationToken"]


@pytest.mark.parametrize(
    "result",
    [
        pytest.param({"authorizationData": []}, id="no login"),
        pytest.param({}, id="nothing"),
        pytest.param(
            {"authorizationData": [{"authorizationToken": "QVdT", "expiresAt": 1, "proxyEndpoint": "https://a"}]},
            id="a token without a password",
        ),
        pytest.param(
            {"authorizationData": [{"authorizationToken": "canary!", "expiresAt": 1, "proxyEndpoint": "https://a"}]},
            id="a token that is not base64",
        ),
    ],
)
async def test_a_response_without_one_login_is_an_error_that_quotes_nothing(
    front: Front, provider: InMemory, result: dict[str, Any]
) -> None:
    front.respond("GetAuthorizationToken", json_response(result))

    failed = await failure(provider, ECRAuthorizationTokenGenerator)

    assert failed.reason is ErrorReason.BACKEND_ERROR
    assert failed.message == "ecr in eu-west-1: GetAuthorizationToken did not return one login"


async def test_a_denied_login_names_the_missing_action(front: Front, provider: InMemory) -> None:
    front.respond("GetAuthorizationToken", refused("AccessDeniedException"))

    failed = await failure(provider, ECRAuthorizationTokenGenerator)

    assert failed.reason is ErrorReason.PERMISSION_DENIED
    assert failed.message.endswith("GetAuthorizationToken is denied (HTTP 400); allow ecr:GetAuthorizationToken")


# --- STSSessionToken -------------------------------------------------------------------------------------------------


async def test_session_keys_have_their_end(front: Front, provider: InMemory) -> None:
    before = SystemClock().now()

    made = await provider.generate(context(STSSessionTokenGenerator, requestParameters={"sessionDuration": 3600}))

    values = texts(made)
    assert set(values) == {"access_key_id", "secret_access_key", "session_token", "expiration"}
    assert made.metadata.expires_at is not None
    assert int(values["expiration"]) == int(made.metadata.expires_at.timestamp())
    assert timedelta(seconds=3590) < made.metadata.expires_at - before < timedelta(seconds=3610)
    assert made.state is None
    (request,) = front.requests
    assert (request.operation, request.body["DurationSeconds"]) == ("GetSessionToken", "3600")


async def test_the_code_of_an_mfa_device_is_sent_with_its_serial_number(front: Front, provider: InMemory) -> None:
    device = "arn:aws:iam::123456789012:mfa/ann"

    await provider.generate(
        context(STSSessionTokenGenerator, requestParameters={"serialNumber": device, "tokenCode": "123456"})
    )

    (request,) = front.requests
    assert (request.body["SerialNumber"], request.body["TokenCode"]) == (device, "123456")
    assert "DurationSeconds" not in request.body


async def test_temporary_keys_are_refused_with_the_remedy(front: Front, provider: InMemory) -> None:
    front.respond("GetSessionToken", denied)

    failed = await failure(provider, STSSessionTokenGenerator, role=ROLE)

    assert failed.reason is ErrorReason.PERMISSION_DENIED
    assert failed.message == (
        "sts in eu-west-1: GetSessionToken is denied to temporary keys, such as those of a role; give auth.secretRef"
        " the long-term keys of an IAM user, without sessionTokenSecretRef and role"
    )


async def test_a_denied_code_reports_that_each_code_works_once(front: Front, provider: InMemory) -> None:
    front.respond("GetSessionToken", denied)
    device = {"serialNumber": "arn:aws:iam::123456789012:mfa/ann", "tokenCode": "123456"}

    failed = await failure(provider, STSSessionTokenGenerator, requestParameters=device)

    assert failed.reason is ErrorReason.PERMISSION_DENIED
    assert "write a new tokenCode" in failed.message
    assert "123456" not in failed.message.replace("123456789012", "")


async def test_long_term_keys_that_are_denied_are_given_the_action(front: Front, provider: InMemory) -> None:
    front.respond("GetSessionToken", denied)

    failed = await failure(provider, STSSessionTokenGenerator)

    assert failed.message == "sts in eu-west-1: GetSessionToken is denied (HTTP 403); allow sts:GetSessionToken"


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        pytest.param({"auth": ACCOUNT}, "/auth/jwt: ", id="a service account"),
        pytest.param({"region": "no region of AWS"}, "/region: ", id="a region that cannot be"),
        pytest.param(
            {"requestParameters": {"sessionDuration": 60}},
            "/requestParameters/sessionDuration: must be between 900 and 129600 seconds",
            id="a session that is too short",
        ),
        pytest.param(
            {"requestParameters": {"tokenCode": "123456"}},
            "/requestParameters: set serialNumber and tokenCode together, or neither",
            id="a code without its device",
        ),
    ],
)
async def test_a_session_token_that_cannot_be_is_refused_before_any_call(
    front: Front, provider: InMemory, spec: dict[str, Any], text: str
) -> None:
    failed = await failure(provider, STSSessionTokenGenerator, **spec)

    assert failed.reason is ErrorReason.CONFIG_INVALID
    assert failed.message.startswith(text)
    assert not front.requests


async def test_a_role_for_session_tokens_is_warned_about(provider: InMemory) -> None:
    call = context(STSSessionTokenGenerator, role=ROLE)

    response = await provider.validate(call, ValidationMode.STATIC, KindRole.GENERATOR)

    assert response.warnings == ("AWS denies GetSessionToken to keys of an assumed role; remove role",)


# --- both ------------------------------------------------------------------------------------------------------------


async def test_validation_obtains_the_keys_and_reports_a_role_that_is_refused(front: Front, provider: InMemory) -> None:
    call = context(ECRAuthorizationTokenGenerator, role=ROLE)
    front.respond("AssumeRole", denied)

    response = await provider.validate(call, role=KindRole.GENERATOR)

    assert response.state is ValidationState.INVALID
    assert response.error is not None
    assert response.error.reason is ErrorReason.PERMISSION_DENIED
    assert response.error.message == (
        f'role "{ROLE}" in eu-west-1: AssumeRole is denied (HTTP 403); allow sts:AssumeRole, also in the trust policy'
        " of the role"
    )
    assert list(front.counts) == ["AssumeRole"]


@pytest.mark.parametrize("kind", ["ECRAuthorizationToken", "STSSessionToken"])
def test_both_groups_of_generators_are_served(kind: str) -> None:
    groups = {info.kind.group for info in PROVIDER.kind_infos if info.kind.kind == kind}

    assert groups == {"generators.external-secrets.io", "provider.generator.external-secrets.io"}
