"""What an error of AWS means: its code -> `ProviderError`.

    SECRET_NOT_FOUND       ResourceNotFoundException, ParameterNotFound, marked for deletion
    VERSION_NOT_FOUND      ResourceNotFoundException about a value, ParameterVersionNotFound
    CREDENTIALS_REJECTED   unknown keys, wrong signatures, expired tokens
    PERMISSION_DENIED      AccessDenied and denials of KMS; names the action to allow
    RATE_LIMITED           Throttling and its relatives
    BACKEND_UNAVAILABLE    5xx, no connection

The status says little (400 for most), so the code decides. The service's own words only help to tell cases apart. They
are never quoted: they repeat parts of the request, and a request id would make every failure a new one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ReadTimeoutError,
    SSLError,
)

from eso_wire.errors import ErrorReason, ProviderError, RetryClass

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
        "NotAuthorized",
        "OptInRequired",
    }
)
_DENIED: Final = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "DecryptionFailure"})
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
    }
)
_DOWN: Final = frozenset(
    {"InternalServiceError", "InternalServerError", "InternalFailure", "ServiceUnavailable", "IDPCommunicationError"}
)
_EXISTS: Final = frozenset({"ResourceExistsException", "ParameterAlreadyExists"})
_ABSENT: Final = frozenset({"ResourceNotFoundException", "ParameterNotFound", "InvalidResourceId"})
_TOO_LARGE: Final = frozenset({"RequestEntityTooLarge", "ParameterMaxVersionLimitExceeded"})
_ACTION: Final = re.compile(r"perform: ([a-z0-9-]+:[A-Za-z0-9]+)")
_ACTIONS: Final = {"resourcegroupstaggingapi": "tag"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a call was about, for its error."""

    service: str
    operation: str
    region: str
    about: str = ""
    """The object: `secret "db"`. Empty if the call is about none."""

    def __str__(self) -> str:
        return f"{self.about} in {self.region}" if self.about else f"{self.service} in {self.region}"

    @property
    def action(self) -> str:
        """The action that a policy has to allow."""
        return f"{_ACTIONS.get(self.service, self.service)}:{self.operation}"


def refusal(failed: Exception, asked: Asked) -> ProviderError:
    """The error of a call that AWS, or the way to it, refused."""
    if isinstance(failed, ClientError):
        told: Any = failed.response
        error = told.get("Error", {})
        status = told.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return of_code(str(error.get("Code", "")), str(error.get("Message", "")), asked, status=int(status))
    return _without_answer(failed, asked)


def of_code(code: str, message: str, asked: Asked, *, status: int = 0) -> ProviderError:
    """The error behind a code, of a whole call or of one item of a batch. `message` only tells cases apart."""
    code = code.rpartition("#")[2]

    def error(reason: ErrorReason, words: str, **more: Any) -> ProviderError:
        return ProviderError(reason, words, backend_code=code, **more)

    if code in _ABSENT or _is_marked_for_deletion(code, message):
        return _absent(code, message, asked)
    if code == "ParameterVersionNotFound":
        return error(ErrorReason.VERSION_NOT_FOUND, f"{asked} has no such version or label")
    if code in _REJECTED:
        words = f"{asked.service} in {asked.region} does not accept the credentials ({code}); replace them"
        return error(ErrorReason.CREDENTIALS_REJECTED, words)
    if code in _DENIED or status == 403:
        return error(ErrorReason.PERMISSION_DENIED, f"{asked}: {_denial(code, message, asked)}")
    if code in _LIMITED or status == 429:
        return error(ErrorReason.RATE_LIMITED, f"{asked.service} in {asked.region} limits its calls; asked again later")
    if code in _EXISTS:
        return error(ErrorReason.ALREADY_EXISTS, f"{asked} exists already")
    if code in _TOO_LARGE or (code.startswith("Validation") and "length less than or equal" in message):
        return error(ErrorReason.PAYLOAD_TOO_LARGE, f"{asked}: the service refuses it as too large ({code})")
    if code in _DOWN or status >= 500:
        words = f"{asked.service} in {asked.region} failed to answer {asked.operation} ({code or status})"
        return error(ErrorReason.BACKEND_UNAVAILABLE, words)
    if code.startswith(("Invalid", "Validation", "Malformed")):
        words = f"{asked}: the service does not accept the request {asked.operation} ({code}); check names and fields"
        return error(ErrorReason.INVALID_REQUEST, words, retry=RetryClass.BACKOFF)
    return error(ErrorReason.BACKEND_ERROR, f"{asked}: {asked.operation} was refused ({code or status})")


def _is_marked_for_deletion(code: str, message: str) -> bool:
    marked = re.search(r"(marked|scheduled) for deletion|marked deleted", message)
    return code in ("InvalidRequestException", "InvalidParameterException") and marked is not None


def _absent(code: str, message: str, asked: Asked) -> ProviderError:
    if code == "ResourceNotFoundException" and re.search(r"secret value|staging label|VersionId", message):
        words = f"{asked} has no value with that version or stage"
        return ProviderError(ErrorReason.VERSION_NOT_FOUND, words, backend_code=code)
    words = f"{asked} does not exist" if code in _ABSENT else f"{asked} is marked for deletion"
    return ProviderError(ErrorReason.SECRET_NOT_FOUND, words, backend_code=code)


def _denial(code: str, message: str, asked: Asked) -> str:
    """Name the action that is missing, as the service names it where it does."""
    if found := _ACTION.search(message):
        return f"{asked.operation} is denied; allow {found.group(1)}"
    if code == "DecryptionFailure" or "KMS" in message:
        return (
            f"{asked.operation} may not use the KMS key of the value; allow kms:Decrypt, for writes kms:GenerateDataKey"
        )
    return f"{asked.operation} is denied; allow {asked.action}"


def _without_answer(failed: Exception, asked: Asked) -> ProviderError:
    where = f"{asked.service} in {asked.region}"
    match failed:
        case ParamValidationError():  # its text quotes the values
            words = f"{asked}: {asked.operation} cannot be asked with these names and fields; check their length"
            return ProviderError(ErrorReason.INVALID_REQUEST, words)
        case NoCredentialsError() | PartialCredentialsError() | CredentialRetrievalError():
            words = "the provider process has no AWS identity that works; give it one, or set auth"
            return ProviderError(ErrorReason.CREDENTIALS_NOT_FOUND, words, retry=RetryClass.BACKOFF)
        case ConnectTimeoutError() | ReadTimeoutError() | TimeoutError():
            return ProviderError(ErrorReason.BACKEND_TIMEOUT, f"{where} did not answer {asked.operation} in time")
        case SSLError():
            words = f"the certificate of {where} is not trusted; check AWS_CA_BUNDLE and any proxy"
            return ProviderError(ErrorReason.BACKEND_UNAVAILABLE, words)
        case HTTPClientError():
            words = f"{where} cannot be reached; check region, network and endpoint variables"
            return ProviderError(ErrorReason.BACKEND_UNAVAILABLE, words)
        case BotoCoreError():
            words = f"{asked}: {asked.operation} failed in the SDK ({type(failed).__name__})"
            return ProviderError(ErrorReason.BACKEND_ERROR, words)
        case _:
            words = f"{asked}: {asked.operation} was answered with something that is no answer of {asked.service}"
            return ProviderError(ErrorReason.BACKEND_ERROR, words)
