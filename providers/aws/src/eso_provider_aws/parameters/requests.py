"""What PutParameter is asked with, and what its refusals mean."""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec

from eso_api.values import SecretBytes
from eso_provider_aws.drafts import text_of
from eso_provider_aws.parameters.metadata import ParameterMetadata
from eso_provider_aws.parameters.reading import about
from eso_sdk.errors import invalid_request
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import PushItem

STANDARD_LIMIT: Final = 4096
ADVANCED_LIMIT: Final = 8192
"""Characters of a value."""
DEFAULT_KEY: Final = "alias/aws/ssm"


def payload_of(item: PushItem, metadata: ParameterMetadata) -> bytes:
    """The bytes of one key, or a JSON object of the whole Secret: its values in base64 unless told otherwise."""
    payload, key = item.payload, item.remote.key
    if isinstance(payload, SecretBytes):
        return text_of(payload.reveal(), key).encode()
    if metadata.encode_as_decoded:
        members = {name: text_of(value.reveal(), key, name) for name, value in payload.items()}
    else:
        members = {name: base64.b64encode(value.reveal()).decode() for name, value in payload.items()}
    return msgspec.json.encode(members, order="sorted")


def put_request(name: str, value: bytes, metadata: ParameterMetadata, *, type_now: str) -> dict[str, Any]:
    """The fields of PutParameter; `type_now` is the type of a parameter that exists, else empty."""
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


def refused_write(failed: ProviderError, name: str, request: dict[str, Any]) -> ProviderError:
    """The error of a refused PutParameter, with what to do about it."""
    if failed.backend_code == "HierarchyTypeMismatchException":
        words = (
            f"{about(name)} has another type, and Parameter Store does not change it; delete it or change secretType"
        )
        return ProviderError(ErrorReason.INVALID_REQUEST, words, backend_code=failed.backend_code)
    # The service counts for itself: the default tier of the account decides what a value without a tier may have.
    if failed.reason is ErrorReason.INVALID_REQUEST and len(request["Value"].encode()) > STANDARD_LIMIT:
        return _too_large(name, STANDARD_LIMIT, " of the Standard tier; set tier.type Advanced or Intelligent-Tiering")
    return failed


def _check_size(name: str, text: str, metadata: ParameterMetadata) -> None:
    if not text:
        raise invalid_request(f"the value for {about(name)} is empty, and Parameter Store keeps no empty values")
    if len(text) > ADVANCED_LIMIT:
        raise _too_large(name, ADVANCED_LIMIT, " of Parameter Store; split it, or use Secrets Manager")
    if len(text) > STANDARD_LIMIT and metadata.tier is not None and metadata.tier.type == "Standard":
        raise _too_large(name, STANDARD_LIMIT, " of the Standard tier; set tier.type Advanced or Intelligent-Tiering")


def _too_large(name: str, limit: int, rest: str) -> ProviderError:
    words = f"the value for {about(name)} has more than {limit} characters, the limit{rest}"
    return ProviderError(ErrorReason.PAYLOAD_TOO_LARGE, words)
