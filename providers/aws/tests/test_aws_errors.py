"""The mapping of AWS errors, and their messages for users."""

from __future__ import annotations

from socket import gaierror
from ssl import SSLCertVerificationError
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ParamValidationError,
    ProxyConnectionError,
    ReadTimeoutError,
    SSLError,
)
from botocore.parsers import ResponseParserError

from eso_provider_aws.errors import CallSubject, no_client, no_identity, of_code, refusal
from eso_wire.errors import ErrorReason, RetryClass

SUBJECT = CallSubject("secretsmanager", "GetSecretValue", "eu-west-1", 'secret "db"')
ASSUMED = CallSubject("sts", "AssumeRole", "eu-west-1", 'role "arn:x"')
LEAK = "CANARY-of-the-service"


def _response(code: str, message: str = LEAK, status: int = 400, request_id: str = "id-1") -> ClientError:
    result: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status, "RequestId": request_id},
    }
    return ClientError(result, "GetSecretValue")


MARKED = "You can't perform this operation on the secret because it was marked for deletion."
MARKED_TOO = "the secret was scheduled for deletion"

CODES = [
    ("ResourceNotFoundException", "Secrets Manager can't find the specified secret.", ErrorReason.SECRET_NOT_FOUND),
    ("ParameterNotFound", "", ErrorReason.SECRET_NOT_FOUND),
    ("InvalidResourceId", "", ErrorReason.SECRET_NOT_FOUND),
    ("InvalidRequestException", MARKED, ErrorReason.SECRET_NOT_FOUND),
    ("InvalidParameterException", MARKED_TOO, ErrorReason.SECRET_NOT_FOUND),
    (
        "ResourceNotFoundException",
        "can't find the specified secret value for staging label: X",
        ErrorReason.VERSION_NOT_FOUND,
    ),
    (
        "ResourceNotFoundException",
        "can't find the specified secret value for VersionId: 1",
        ErrorReason.VERSION_NOT_FOUND,
    ),
    ("ParameterVersionNotFound", "", ErrorReason.VERSION_NOT_FOUND),
    ("UnrecognizedClientException", "", ErrorReason.CREDENTIALS_REJECTED),
    ("InvalidClientTokenId", "", ErrorReason.CREDENTIALS_REJECTED),
    ("SignatureDoesNotMatch", "", ErrorReason.CREDENTIALS_REJECTED),
    ("InvalidSignatureException", "", ErrorReason.CREDENTIALS_REJECTED),
    ("ExpiredToken", "", ErrorReason.CREDENTIALS_REJECTED),
    ("ExpiredTokenException", "", ErrorReason.CREDENTIALS_REJECTED),
    ("InvalidIdentityToken", "", ErrorReason.CREDENTIALS_REJECTED),
    ("AccessDenied", "", ErrorReason.PERMISSION_DENIED),
    ("AccessDeniedException", "", ErrorReason.PERMISSION_DENIED),
    ("KMS.AccessDeniedException", "", ErrorReason.PERMISSION_DENIED),
    ("DecryptionFailure", "", ErrorReason.PERMISSION_DENIED),
    ("ThrottlingException", "", ErrorReason.RATE_LIMITED),
    ("Throttling", "", ErrorReason.RATE_LIMITED),
    ("TooManyRequestsException", "", ErrorReason.RATE_LIMITED),
    ("RequestLimitExceeded", "", ErrorReason.RATE_LIMITED),
    ("TooManyUpdates", "", ErrorReason.RATE_LIMITED),
    ("InternalServiceError", "", ErrorReason.BACKEND_UNAVAILABLE),
    ("InternalServerError", "", ErrorReason.BACKEND_UNAVAILABLE),
    ("ServiceUnavailable", "", ErrorReason.BACKEND_UNAVAILABLE),
    ("ResourceExistsException", "", ErrorReason.ALREADY_EXISTS),
    ("ParameterAlreadyExists", "", ErrorReason.ALREADY_EXISTS),
    ("LimitExceededException", "", ErrorReason.PAYLOAD_TOO_LARGE),
    (
        "ValidationException",
        "Member must have length less than or equal to 65536",
        ErrorReason.PAYLOAD_TOO_LARGE,
    ),
    ("InvalidParameterException", "", ErrorReason.INVALID_REQUEST),
    ("ValidationException", "", ErrorReason.INVALID_REQUEST),
    ("SomethingNew", "", ErrorReason.BACKEND_ERROR),
    ("com.amazonaws.secretsmanager#ThrottlingException", "", ErrorReason.RATE_LIMITED),
    ("AccessDeniedException:http://internal.amazon.com/coral/", "", ErrorReason.PERMISSION_DENIED),
]


@pytest.mark.parametrize(
    ("code", "message", "reason"), [pytest.param(*row, id=f"{row[0]}{' ' if row[1] else ''}{row[1]}") for row in CODES]
)
def test_a_code_has_a_reason_and_words_without_the_message(code: str, message: str, reason: ErrorReason) -> None:
    found = refusal(_response(code, f"{message} {LEAK}"), SUBJECT)

    assert found.reason is reason
    assert LEAK not in found.message
    assert "eu-west-1" in found.message
    about_the_service = {
        ErrorReason.CREDENTIALS_REJECTED,
        ErrorReason.RATE_LIMITED,
        ErrorReason.BACKEND_UNAVAILABLE,
    }
    assert ('"db"' in found.message) is (reason not in about_the_service)


@pytest.mark.parametrize("code", sorted({row[0] for row in CODES}))
def test_equal_failures_give_equal_errors_whatever_their_request_id(code: str) -> None:
    first, second = (
        refusal(_response(code, f"RequestId: {number}", request_id=str(number)), SUBJECT) for number in (7, 8)
    )

    assert first == second


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        pytest.param(429, ErrorReason.RATE_LIMITED, id="429 is a limit"),
        pytest.param(500, ErrorReason.BACKEND_UNAVAILABLE, id="500 is an outage"),
        pytest.param(503, ErrorReason.BACKEND_UNAVAILABLE, id="503 is an outage"),
        pytest.param(403, ErrorReason.BACKEND_ERROR, id="403 of a proxy is no denial of AWS"),
        pytest.param(404, ErrorReason.BACKEND_ERROR, id="404 of a proxy does not mean that the secret is absent"),
        pytest.param(407, ErrorReason.BACKEND_ERROR, id="407 asks for the password of a proxy"),
    ],
)
def test_a_response_without_a_code_is_judged_by_its_status(status: int, reason: ErrorReason) -> None:
    found = refusal(_response(str(status), f"<html>{LEAK}</html>", status), SUBJECT)

    assert found.reason is reason
    assert f"HTTP {status}" in found.message
    assert LEAK not in found.message


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        pytest.param("AccessDenied", ErrorReason.PERMISSION_DENIED, id="denied"),
        pytest.param("InvalidClientTokenId", ErrorReason.CREDENTIALS_REJECTED, id="unknown key"),
        pytest.param("SignatureDoesNotMatch", ErrorReason.CREDENTIALS_REJECTED, id="wrong secret"),
    ],
)
def test_a_service_of_the_json_protocol_may_refuse_in_xml(code: str, reason: ErrorReason) -> None:
    body = (
        f"<ErrorResponse><Errors><Error><Code>{code}</Code><Message>{LEAK}</Message></Error></Errors></ErrorResponse>"
    )

    found = refusal(_response("403", body, 403), SUBJECT)

    assert (found.reason, found.backend_code) == (reason, code)
    assert LEAK not in found.message


@pytest.mark.parametrize(
    ("subject", "code", "message", "text"),
    [
        pytest.param(SUBJECT, "AccessDeniedException", "", "allow secretsmanager:GetSecretValue", id="the call's own"),
        pytest.param(
            SUBJECT,
            "AccessDeniedException",
            "User: arn:x is not authorized to perform: kms:Decrypt on resource: arn:y",
            "allow kms:Decrypt",
            id="the one that the service names",
        ),
        pytest.param(SUBJECT, "AccessDeniedException", "Access to KMS is not allowed", "kms:Decrypt", id="of the key"),
        pytest.param(ASSUMED, "AccessDenied", "", "allow sts:AssumeRole, also in the trust policy", id="of a role"),
        pytest.param(
            CallSubject("resourcegroupstaggingapi", "GetResources", "eu-west-1"),
            "AccessDeniedException",
            "",
            "allow tag:GetResources",
            id="of a service whose actions have another name",
        ),
    ],
)
def test_a_denial_names_the_action_to_allow(subject: CallSubject, code: str, message: str, text: str) -> None:
    assert text in of_code(code, message, subject).message


@pytest.mark.parametrize("operation", ["BatchGetSecretValue", "ListSecrets", "GetParameters", "DescribeParameters"])
def test_a_call_about_many_things_never_reports_that_one_is_absent(operation: str) -> None:
    subject = CallSubject("secretsmanager", operation, "eu-west-1", "20 secrets")

    assert of_code("ResourceNotFoundException", "", subject).reason is ErrorReason.BACKEND_ERROR
    assert of_code("InvalidRequestException", MARKED, subject).reason is ErrorReason.BACKEND_ERROR


def test_a_wrong_clock_is_named_as_the_cause() -> None:
    found = of_code("InvalidSignatureException", "Signature expired: 2020 is now earlier than 2021", SUBJECT)

    assert found.reason is ErrorReason.CREDENTIALS_REJECTED
    assert "clock" in found.message


URL = f"https://{LEAK}.example"
WITHOUT_RESPONSE = [
    ("refused", EndpointConnectionError(endpoint_url=URL), ErrorReason.BACKEND_UNAVAILABLE, "cannot be reached"),
    ("cut off", ConnectionClosedError(endpoint_url=URL), ErrorReason.BACKEND_UNAVAILABLE, "cannot be reached"),
    ("odd", HTTPClientError(error=LEAK), ErrorReason.BACKEND_UNAVAILABLE, "cannot be reached"),
    ("system", OSError(LEAK), ErrorReason.BACKEND_UNAVAILABLE, "cannot be reached"),
    ("proxy", ProxyConnectionError(proxy_url=URL), ErrorReason.BACKEND_UNAVAILABLE, "HTTPS_PROXY"),
    (
        "dns",
        EndpointConnectionError(endpoint_url=URL, error=gaierror(LEAK)),
        ErrorReason.BACKEND_UNAVAILABLE,
        "does not resolve; check region and endpoint variables",
    ),
    (
        "authority",
        SSLError(endpoint_url=URL, error=SSLCertVerificationError(LEAK)),
        ErrorReason.BACKEND_UNAVAILABLE,
        "unknown certificate authority; set AWS_CA_BUNDLE",
    ),
    ("tls", SSLError(endpoint_url=URL, error=LEAK), ErrorReason.BACKEND_UNAVAILABLE, "refuses the TLS connection"),
    ("connect", ConnectTimeoutError(endpoint_url=URL), ErrorReason.BACKEND_TIMEOUT, "in time"),
    ("read", ReadTimeoutError(endpoint_url=URL), ErrorReason.BACKEND_TIMEOUT, "in time"),
    ("ours", TimeoutError(), ErrorReason.BACKEND_TIMEOUT, "in time"),
    ("loop", TimeoutError(), ErrorReason.BACKEND_TIMEOUT, "in time"),
    ("fields", ParamValidationError(report=LEAK), ErrorReason.INVALID_REQUEST, "names and fields"),
    ("garbage", ResponseParserError(LEAK), ErrorReason.BACKEND_ERROR, "not from secretsmanager"),
    ("html", ValueError(LEAK), ErrorReason.BACKEND_ERROR, "not from secretsmanager"),
]


@pytest.mark.parametrize(
    ("failed", "reason", "text"), [pytest.param(*row[1:], id=f"{row[0]}: {row[3]}") for row in WITHOUT_RESPONSE]
)
def test_a_call_without_a_response_reports_what_to_look_at(failed: Exception, reason: ErrorReason, text: str) -> None:
    found = refusal(failed, SUBJECT)

    assert found.reason is reason
    assert text in found.message
    assert LEAK not in found.message
    assert "eu-west-1" in found.message


def test_errors_that_heal_without_a_change_of_the_store_are_retried() -> None:
    healing = (no_identity(), no_client("sts", "eu-west-1", ""), of_code("LimitExceededException", "", SUBJECT))

    assert {error.retry for error in healing} == {RetryClass.BACKOFF}
