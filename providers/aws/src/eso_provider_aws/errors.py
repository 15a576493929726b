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
class Asked:
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


def refusal(failed: Exception, asked: Asked) -> ProviderError:
    """Return the error of a call that AWS rejected or that did not reach AWS."""
    if isinstance(failed, ClientError):
        told: Any = failed.response
        error = told.get("Error", {})
        status = int(told.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        refused = of_code(str(error.get("Code", "")), str(error.get("Message", "")), asked, status=status)
        return with_status(refused, status)
    return _without_answer(failed, asked)


def of_code(code: str, message: str, asked: Asked, *, status: int = 0) -> ProviderError:
    """Return the error for a code, of a call or of one item of a batch. `message` only distinguishes cases."""
    code = _plain(code, message)

    def error(reason: ErrorReason, words: str, **more: Any) -> ProviderError:
        return ProviderError(reason, words, backend_code=code, **more)

    if code in _ABSENT or _is_marked_for_deletion(code, message):
        return _absent(code, message, asked)
    if code == "ParameterVersionNotFound":
        return error(ErrorReason.VERSION_NOT_FOUND, f"{asked} has no such version or label")
    if code in _REJECTED:
        return error(ErrorReason.CREDENTIALS_REJECTED, _rejection(code, message, asked))
    if code in _LIMITED or status == 429:
        return error(ErrorReason.RATE_LIMITED, f"{asked.service} in {asked.region} limits its calls; asked again later")
    if code in _DENIED or "AccessDenied" in code:
        return error(ErrorReason.PERMISSION_DENIED, f"{asked}: {_denial(code, message, asked)}")
    if code in _EXISTS:
        return error(ErrorReason.ALREADY_EXISTS, f"{asked} exists already")
    if _is_too_large(code, message):
        words = f"{asked}: {asked.operation} exceeds a limit of the service ({code}); make the value smaller"
        # Quotas can be raised without a change on our side.
        return error(ErrorReason.PAYLOAD_TOO_LARGE, words, retry=RetryClass.BACKOFF)
    if code in _DOWN or status >= 500:
        words = f"{asked.service} in {asked.region} failed to answer {asked.operation} ({code or status})"
        return error(ErrorReason.BACKEND_UNAVAILABLE, words)
    if code.startswith(("Invalid", "Validation", "Malformed")):
        words = f"{asked}: the service does not accept the request {asked.operation} ({code}); check names and fields"
        return error(ErrorReason.INVALID_REQUEST, words, retry=RetryClass.BACKOFF)
    if not code:
        words = f"{asked}: {asked.operation} got HTTP {status} without a code of AWS; check proxies on the way"
        return error(ErrorReason.BACKEND_ERROR, words)
    return error(ErrorReason.BACKEND_ERROR, f"{asked}: {asked.operation} was refused ({code})")


def no_identity(failure: str = "") -> ProviderError:
    """Return the error of a process without credentials; `failure` is the type of the exception."""
    if failure:
        words = (
            f"the AWS identity of the provider process cannot be obtained ({failure}); check AWS_REGION, its web"
            " identity, Pod Identity or instance role, or set auth"
        )
    else:
        words = (
            "the provider process has no AWS identity: no keys in its environment, no web identity, Pod Identity or"
            " instance role; give it one, or set auth"
        )
    return ProviderError(ErrorReason.CREDENTIALS_NOT_FOUND, words, retry=RetryClass.BACKOFF)


def no_client(service: str, region: str, variable: str) -> ProviderError:
    """Return the error of an address that cannot be used."""
    words = f"{service} in {region} has no address that can be used; check region and {variable or 'AWS_ENDPOINT_URL'}"
    return ProviderError(ErrorReason.CONFIG_INVALID, words, retry=RetryClass.BACKOFF)


def _plain(code: str, message: str) -> str:
    """Return the error code.

    Without one, the SDK sets the status as code; XML services have the code in the message.
    """
    found = _PLAIN.fullmatch(code.rpartition("#")[2].partition(":")[0])
    if found is None:
        found = _CODE.search(message)
        return found.group(1) if found else ""
    return found.group()


def _rejection(code: str, message: str, asked: Asked) -> str:
    refused = f"{asked.service} in {asked.region} does not accept the credentials ({code})"
    if _SKEWED.search(f"{code} {message}"):
        return f"{refused}: the clock of the provider process is wrong; set it"
    return f"{refused}; replace them"


def _is_too_large(code: str, message: str) -> bool:
    too_long = code.startswith("Validation") and "length less than or equal" in message
    return "LimitExceeded" in code or code == "RequestEntityTooLarge" or too_long


def _is_marked_for_deletion(code: str, message: str) -> bool:
    marked = re.search(r"(marked|scheduled) for deletion|marked deleted", message)
    return code in ("InvalidRequestException", "InvalidParameterException") and marked is not None


def _absent(code: str, message: str, asked: Asked) -> ProviderError:
    if asked.operation in _ABOUT_MANY:
        words = f"{asked}: {asked.operation} was refused as a whole ({code})"
        return ProviderError(ErrorReason.BACKEND_ERROR, words, backend_code=code)
    if code == "ResourceNotFoundException" and re.search(r"secret value|staging label|VersionId", message):
        words = f"{asked} has no value with that version or stage"
        return ProviderError(ErrorReason.VERSION_NOT_FOUND, words, backend_code=code)
    words = f"{asked} does not exist" if code in _ABSENT else f"{asked} is marked for deletion"
    return ProviderError(ErrorReason.SECRET_NOT_FOUND, words, backend_code=code)


def _denial(code: str, message: str, asked: Asked) -> str:
    """Return the error with the missing action; the service's own name for it is preferred."""
    found = _ACTION.search(message)
    if found and found.group(1) != asked.action:
        return f"{asked.operation} is denied; allow {found.group(1)}"
    if code == "DecryptionFailure" or "KMS" in message:
        return (
            f"{asked.operation} may not use the KMS key of the value; allow kms:Decrypt, for writes kms:GenerateDataKey"
        )
    if asked.operation.startswith("AssumeRole"):
        return f"{asked.operation} is denied; allow {asked.action}, also in the trust policy of the role"
    return f"{asked.operation} is denied; allow {asked.action}"


def _without_answer(failed: Exception, asked: Asked) -> ProviderError:
    where = f"{asked.service} in {asked.region}"
    match failed:
        case ParamValidationError():  # its text quotes the values
            words = f"{asked}: {asked.operation} cannot be asked with these names and fields; check their length"
            return ProviderError(ErrorReason.INVALID_REQUEST, words)
        case ConnectTimeoutError() | ReadTimeoutError() | TimeoutError():
            return ProviderError(ErrorReason.BACKEND_TIMEOUT, f"{where} did not answer {asked.operation} in time")
        case SSLError():
            words = tls_problem(_cause(failed), where, "the endpoint variables", "AWS_CA_BUNDLE")
            return ProviderError(ErrorReason.BACKEND_UNAVAILABLE, words)
        case ProxyConnectionError():
            words = f"the proxy on the way to {where} cannot be used; check HTTPS_PROXY and NO_PROXY"
            return ProviderError(ErrorReason.BACKEND_UNAVAILABLE, words)
        case HTTPClientError() | ConnectionError() | OSError() if _is_unresolved(_cause(failed)):
            return ProviderError(ErrorReason.BACKEND_UNAVAILABLE, unresolved(where, "region and endpoint variables"))
        case HTTPClientError() | ConnectionError() | OSError():
            words = f"{where} cannot be reached; check region, network and endpoint variables"
            return ProviderError(ErrorReason.BACKEND_UNAVAILABLE, words)
        case BotoCoreError():
            words = f"{asked}: {asked.operation} failed in the SDK ({type(failed).__name__})"
            return ProviderError(ErrorReason.BACKEND_ERROR, words)
        case _:
            words = f"{asked}: {asked.operation} was answered with something that is no answer of {asked.service}"
            return ProviderError(ErrorReason.BACKEND_ERROR, words)


def _cause(failed: Exception) -> BaseException:
    """Return the error of the connection behind an error of the SDK."""
    told = getattr(failed, "kwargs", {}).get("error")
    return told if isinstance(told, BaseException) else failed


def _is_unresolved(failed: BaseException) -> bool:
    return is_unresolved(failed) or isinstance(failed, gaierror)
