"""The mapping of AWS error codes to `ProviderError`.

    SECRET_NOT_FOUND       ResourceNotFoundException, ParameterNotFound, marked for deletion
    VERSION_NOT_FOUND      ResourceNotFoundException about a value, ParameterVersionNotFound
    CREDENTIALS_REJECTED   unknown keys, wrong signatures, expired tokens
    PERMISSION_DENIED      AccessDenied and denials of KMS; names the action to allow
    RATE_LIMITED           Throttling and its relatives
    BACKEND_UNAVAILABLE    5xx, no connection

Most errors have status 400, so the code decides. The service's message only helps to distinguish cases. It is never
quoted: it repeats parts of the request, and its request id would make every failure look new.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from socket import gaierror
from typing import Any, Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004 - the SDK's own
    ConnectTimeoutError,
    HTTPClientError,
    ParamValidationError,
    ProxyConnectionError,
    ReadTimeoutError,
    SSLError,
)
from botocore.parsers import ResponseParserError

from eso_sdk.errors import with_status
from eso_sdk.http import is_unresolved, tls_problem, unresolved
from eso_wire.errors import ErrorReason, ProviderError, RetryClass

FAILURES: Final = (ClientError, BotoCoreError, ResponseParserError, TimeoutError, OSError, ValueError)
"""The errors that an SDK call may raise; `refusal` maps them."""

_REJECTED: Final = frozenset(
    {
        "UnrecognizedClientException",
        "InvalidClientTokenId",
        "SignatureDoesNotMatch",
        "InvalidSignatureException",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidIdentityToken",
        "IDPRejectedClaim",
        "AuthFailure",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "NotAuthorized",
        "OptInRequired",
        "RequestExpired",
        "RequestTimeTooSkewed",
    }
)
_DENIED: Final = frozenset({"UnauthorizedOperation", "DecryptionFailure"})
_LIMITED: Final = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
        "TooManyUpdates",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "PriorRequestNotComplete",
        "KMSThrottlingException",
    }
)
_DOWN: Final = frozenset(
    {
        "InternalServiceError",
        "InternalServerError",
        "InternalFailure",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "IDPCommunicationError",
    }
)
_EXISTS: Final = frozenset({"ResourceExistsException", "ParameterAlreadyExists"})
_ABSENT: Final = frozenset({"ResourceNotFoundException", "ParameterNotFound", "InvalidResourceId"})
_ABOUT_MANY: Final = frozenset(
    {"BatchGetSecretValue", "ListSecrets", "GetParameters", "GetParametersByPath", "DescribeParameters", "GetResources"}
)
"""Calls about many objects: their "not found" must not count for each object, as deletion policies act on it."""
_CODE: Final = re.compile(r"<Code>(\w{1,64})</Code>")
_PLAIN: Final = re.compile(r"[A-Za-z][\w.]{0,63}")
_SKEWED: Final = re.compile(r"Signature expired|not yet current|RequestTimeTooSkewed|RequestExpired")
_ACTION: Final = re.compile(r"perform: ([a-z0-9-]+:[A-Za-z0-9]+)")
_ACTIONS: Final = {"resourcegroupstaggingapi": "tag"}


@dataclass(frozen=True, slots=True)
class CallSubject:
    """The subject of a call, for its error."""

    service: str
    operation: str
    region: str
    about: str = ""
    """The object: `secret "db"`. Empty if the call is about none."""

    def __str__(self) -> str:
        return f"{self.about} in {self.region}" if self.about else f"{self.service} in {self.region}"

    @property
    def action(self) -> str:
        """Return the action that a policy must allow."""
        return f"{_ACTIONS.get(self.service, self.service)}:{self.operation}"


def refusal(failed: Exception, subject: CallSubject) -> ProviderError:
    """Return the error of a call that AWS rejected or that did not reach AWS."""
    if isinstance(failed, ClientError):
        response: Any = failed.response
        error = response.get("Error", {})
        status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        refused = of_code(str(error.get("Code", "")), str(error.get("Message", "")), subject, status=status)
        return with_status(refused, status)
    return _no_response(failed, subject)


def of_code(code: str, message: str, subject: CallSubject, *, status: int = 0) -> ProviderError:
    """Return the error for a code, of a call or of one item of a batch. `message` only distinguishes cases."""
    code = _plain(code, message)

    def error(reason: ErrorReason, text: str, **more: Any) -> ProviderError:
        return ProviderError(reason, text, backend_code=code, **more)

    if code in _ABSENT or _is_marked_for_deletion(code, message):
        return _absent(code, message, subject)
    if code == "ParameterVersionNotFound":
        return error(ErrorReason.VERSION_NOT_FOUND, f"{subject} has no such version or label")
    if code in _REJECTED:
        return error(ErrorReason.CREDENTIALS_REJECTED, _rejection(code, message, subject))
    if code in _LIMITED or status == 429:
        return error(ErrorReason.RATE_LIMITED, f"{subject.service} in {subject.region} limits its calls; retried later")
    if code in _DENIED or "AccessDenied" in code:
        return error(ErrorReason.PERMISSION_DENIED, f"{subject}: {_denial(code, message, subject)}")
    if code in _EXISTS:
        return error(ErrorReason.ALREADY_EXISTS, f"{subject} exists already")
    if _is_too_large(code, message):
        text = f"{subject}: {subject.operation} exceeds a limit of the service ({code}); make the value smaller"
        # Quotas can be raised without a change on our side.
        return error(ErrorReason.PAYLOAD_TOO_LARGE, text, retry=RetryClass.BACKOFF)
    if code in _DOWN or status >= 500:
        text = f"{subject.service} in {subject.region} failed to process {subject.operation} ({code or status})"
        return error(ErrorReason.BACKEND_UNAVAILABLE, text)
    if code.startswith(("Invalid", "Validation", "Malformed")):
        text = (
            f"{subject}: the service does not accept the request {subject.operation} ({code}); check names and fields"
        )
        return error(ErrorReason.INVALID_REQUEST, text, retry=RetryClass.BACKOFF)
    if not code:
        text = f"{subject}: {subject.operation} got HTTP {status} without a code of AWS; check proxies on the way"
        return error(ErrorReason.BACKEND_ERROR, text)
    return error(ErrorReason.BACKEND_ERROR, f"{subject}: {subject.operation} was refused ({code})")


def no_identity(failure: str = "") -> ProviderError:
    """Return the error of a process without credentials; `failure` is the type of the exception."""
    if failure:
        text = (
            f"the AWS identity of the provider process cannot be obtained ({failure}); check AWS_REGION, its web"
            " identity, Pod Identity or instance role, or set auth"
        )
    else:
        text = (
            "the provider process has no AWS identity: no keys in its environment, no web identity, Pod Identity or"
            " instance role; give it one, or set auth"
        )
    return ProviderError(ErrorReason.CREDENTIALS_NOT_FOUND, text, retry=RetryClass.BACKOFF)


def no_client(service: str, region: str, variable: str) -> ProviderError:
    """Return the error of an address that cannot be used."""
    text = f"{service} in {region} has no address that can be used; check region and {variable or 'AWS_ENDPOINT_URL'}"
    return ProviderError(ErrorReason.CONFIG_INVALID, text, retry=RetryClass.BACKOFF)


def _plain(code: str, message: str) -> str:
    """Return the error code.

    Without one, the SDK sets the status as code; XML services have the code in the message.
    """
    found = _PLAIN.fullmatch(code.rpartition("#")[2].partition(":")[0])
    if found is None:
        found = _CODE.search(message)
        return found.group(1) if found else ""
    return found.group()


def _rejection(code: str, message: str, subject: CallSubject) -> str:
    refused = f"{subject.service} in {subject.region} does not accept the credentials ({code})"
    if _SKEWED.search(f"{code} {message}"):
        return f"{refused}: the clock of the provider process is wrong; set it"
    return f"{refused}; replace them"


def _is_too_large(code: str, message: str) -> bool:
    too_long = code.startswith("Validation") and "length less than or equal" in message
    return "LimitExceeded" in code or code == "RequestEntityTooLarge" or too_long


def _is_marked_for_deletion(code: str, message: str) -> bool:
    marked = re.search(r"(marked|scheduled) for deletion|marked deleted", message)
    return code in ("InvalidRequestException", "InvalidParameterException") and marked is not None


def _absent(code: str, message: str, subject: CallSubject) -> ProviderError:
    if subject.operation in _ABOUT_MANY:
        text = f"{subject}: {subject.operation} was refused as a whole ({code})"
        return ProviderError(ErrorReason.BACKEND_ERROR, text, backend_code=code)
    if code == "ResourceNotFoundException" and re.search(r"secret value|staging label|VersionId", message):
        text = f"{subject} has no value with that version or stage"
        return ProviderError(ErrorReason.VERSION_NOT_FOUND, text, backend_code=code)
    text = f"{subject} does not exist" if code in _ABSENT else f"{subject} is marked for deletion"
    return ProviderError(ErrorReason.SECRET_NOT_FOUND, text, backend_code=code)


def _denial(code: str, message: str, subject: CallSubject) -> str:
    """Return the error with the missing action; the service's own name for it is preferred."""
    found = _ACTION.search(message)
    if found and found.group(1) != subject.action:
        return f"{subject.operation} is denied; allow {found.group(1)}"
    if code == "DecryptionFailure" or "KMS" in message:
        return (
            f"{subject.operation} may not use the KMS key of the value; allow kms:Decrypt, for writes"
            " kms:GenerateDataKey"
        )
    if subject.operation.startswith("AssumeRole"):
        return f"{subject.operation} is denied; allow {subject.action}, also in the trust policy of the role"
    return f"{subject.operation} is denied; allow {subject.action}"


def _no_response(failed: Exception, subject: CallSubject) -> ProviderError:
    where = f"{subject.service} in {subject.region}"
    match failed:
        case ParamValidationError():  # its text quotes the values
            text = f"{subject}: {subject.operation} cannot be sent with these names and fields; check their length"
            return ProviderError(ErrorReason.INVALID_REQUEST, text)
        case ConnectTimeoutError() | ReadTimeoutError() | TimeoutError():
            return ProviderError(ErrorReason.BACKEND_TIMEOUT, f"{where} did not respond to {subject.operation} in time")
        case SSLError():
            text = tls_problem(_cause(failed), where, "the endpoint variables", "AWS_CA_BUNDLE")
            return ProviderError(ErrorReason.BACKEND_UNAVAILABLE, text)
        case ProxyConnectionError():
            text = f"the proxy on the way to {where} cannot be used; check HTTPS_PROXY and NO_PROXY"
            return ProviderError(ErrorReason.BACKEND_UNAVAILABLE, text)
        case HTTPClientError() | ConnectionError() | OSError() if _is_unresolved(_cause(failed)):
            return ProviderError(ErrorReason.BACKEND_UNAVAILABLE, unresolved(where, "region and endpoint variables"))
        case HTTPClientError() | ConnectionError() | OSError():
            text = f"{where} cannot be reached; check region, network and endpoint variables"
            return ProviderError(ErrorReason.BACKEND_UNAVAILABLE, text)
        case BotoCoreError():
            text = f"{subject}: {subject.operation} failed in the SDK ({type(failed).__name__})"
            return ProviderError(ErrorReason.BACKEND_ERROR, text)
        case _:
            text = f"{subject}: {subject.operation} got a response that is not from {subject.service}"
            return ProviderError(ErrorReason.BACKEND_ERROR, text)


def _cause(failed: Exception) -> BaseException:
    """Return the error of the connection behind an error of the SDK."""
    cause = getattr(failed, "kwargs", {}).get("error")
    return cause if isinstance(cause, BaseException) else failed


def _is_unresolved(failed: BaseException) -> bool:
    return is_unresolved(failed) or isinstance(failed, gaierror)
