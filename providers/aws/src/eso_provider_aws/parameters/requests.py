"""The request of PutParameter, and the mapping of its errors."""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec

from eso_api.values import SecretBytes
from eso_provider_aws.errors import Asked
from eso_provider_aws.parameters.metadata import ParameterMetadata
from eso_provider_aws.parameters.reading import about
from eso_sdk.drafts import text_of
from eso_sdk.errors import invalid_request
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.values import PushItem

STANDARD_LIMIT: Final = 4096
ADVANCED_LIMIT: Final = 8192
"""Characters of a value."""
DEFAULT_KEY: Final = "alias/aws/ssm"

_STANDARD: Final = " of the Standard tier; set tier.type Advanced or Intelligent-Tiering"
_POLICIES: Final = "Parameter Store does not accept tier.policies; check types, attributes and number of the policies"
_REFUSALS: Final = {
    "HierarchyTypeMismatchException": "it has another type, which Parameter Store does not change; delete it, or change"
    " secretType",
    "UnsupportedParameterType": "Parameter Store does not have the type that secretType names; correct it",
    "InvalidKeyId": "the KMS key cannot be used; check that kmsKeyID names a key that exists and is enabled",
    "ParameterMaxVersionLimitExceeded": "its oldest version has a label, so no other fits; move or remove the label",
    "ParameterLimitExceeded": "the account has no room for another parameter; delete some, or set tier.type Advanced",
    "ParameterPatternMismatchException": "the value does not match the pattern that the parameter demands",
    "HierarchyLevelLimitExceededException": "its name has more than 15 levels; shorten it",
    "InvalidPolicyTypeException": _POLICIES,
    "InvalidPolicyAttributeException": _POLICIES,
    "IncompatiblePolicyException": _POLICIES,
    "PoliciesLimitExceededException": _POLICIES,
}
"""Errors that only PutParameter has."""


def payload_of(item: PushItem, metadata: ParameterMetadata) -> bytes:
    """Return the bytes of one key, or the whole Secret as a JSON object.

    Its values are in base64, unless the metadata disables it.
    """
    payload, key = item.payload, item.remote.key
    if isinstance(payload, SecretBytes):
        return text_of(payload.reveal(), key).encode()
    if metadata.encode_as_decoded:
        members = {name: text_of(value.reveal(), key, name) for name, value in payload.items()}
    else:
        members = {name: base64.b64encode(value.reveal()).decode() for name, value in payload.items()}
    return msgspec.json.encode(members, order="sorted")


def put_request(name: str, value: bytes, metadata: ParameterMetadata, *, type_now: str) -> dict[str, Any]:
    """Return the fields of PutParameter; `type_now` is the type of an existing parameter, else empty."""
    text = value.decode()
    _check_size(name, text, metadata)
    kind = metadata.secret_type or type_now or "String"
    request: dict[str, Any] = {"Name": name, "Value": text, "Type": kind}
    if kind == "SecureString":
        request["KeyId"] = metadata.kms_key_id or DEFAULT_KEY
    if metadata.description is not None:
        request["Description"] = metadata.description
    tier = metadata.tier
    # A parameter cannot go back to Standard, so an existing one is not asked to.
    if tier is not None and (tier.type != "Standard" or not type_now):
        request["Tier"] = tier.type
    if tier is not None and tier.policies is not None and tier.type != "Standard":
        request["Policies"] = msgspec.json.encode(tier.policies, order="sorted").decode()
    return request


def refused_write(failed: ProviderError, asked: Asked, request: dict[str, Any]) -> ProviderError:
    """Return the error of a rejected PutParameter, with advice."""
    code = failed.backend_code
    if words := _REFUSALS.get(code):
        reason, retry = ErrorReason.INVALID_REQUEST, RetryClass.BACKOFF
        return ProviderError(reason, f"{asked}: {words} ({code})", backend_code=code, retry=retry)
    # Without a tier, the account's default limits the size of a value, and only the service knows it.
    is_large = len(request["Value"].encode()) > STANDARD_LIMIT and "Tier" not in request
    if failed.reason is ErrorReason.INVALID_REQUEST and is_large:
        return _too_large(request["Name"], STANDARD_LIMIT, _STANDARD)
    return failed


def _check_size(name: str, text: str, metadata: ParameterMetadata) -> None:
    if not text:
        raise invalid_request(f"the value for {about(name)} is empty, and Parameter Store keeps no empty values")
    if len(text) > ADVANCED_LIMIT:
        raise _too_large(name, ADVANCED_LIMIT, " of Parameter Store; split it, or use Secrets Manager")
    if len(text) > STANDARD_LIMIT and metadata.tier is not None and metadata.tier.type == "Standard":
        raise _too_large(name, STANDARD_LIMIT, _STANDARD)


def _too_large(name: str, limit: int, rest: str) -> ProviderError:
    words = f"the value for {about(name)} has more than {limit} characters, the limit{rest}"
    return ProviderError(ErrorReason.PAYLOAD_TOO_LARGE, words)
