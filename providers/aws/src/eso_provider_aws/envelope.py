"""`metadata` of a PushSecret entry: the envelope around what a service can be told, decoded strictly.

class ParameterMetadata(Told, frozen=True, kw_only=True):
    description: str = ""

decoded(item.provider_metadata, ParameterMetadata, item.remote.key).description
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from eso_provider_aws.ownership import MARK
from eso_sdk.errors import invalid_request

API_VERSION: Final = "kubernetes.external-secrets.io/v1alpha1"
KIND: Final = "PushSecretMetadata"

_QUOTED: Final = re.compile(r"""['"].*['"]""", re.DOTALL)


class Told(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of what `spec` of an envelope says, and of its parts: a field that is not known is refused."""


T = TypeVar("T", bound=Told)


class Envelope(msgspec.Struct, Generic[T], frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What stands around it."""

    api_version: str
    kind: str
    spec: T


def decoded(metadata: Mapping[str, Any] | None, spec: type[T], key: str) -> T:
    """What the metadata of one pushed entry says; the defaults if there is none. Errors name fields, never values."""
    if not metadata:
        return spec()
    try:
        envelope = msgspec.convert({"spec": {}, **metadata}, Envelope[spec])  # type: ignore[valid-type] # at run time
    except msgspec.ValidationError as problem:
        # The text names fields and types. A value that was found stands in quotes.
        words = _QUOTED.sub("…", str(problem)).replace("$", "metadata")
        raise invalid_request(f'metadata of "{key}" does not have the expected form: {words}') from None
    if (envelope.api_version, envelope.kind) != (API_VERSION, KIND):
        raise invalid_request(f'metadata of "{key}" must have apiVersion {API_VERSION} and kind {KIND}')
    found: T = envelope.spec
    if MARK in (getattr(found, "tags", None) or ()):
        raise invalid_request(f'metadata of "{key}" sets the tag {MARK}, which is set by External Secrets; remove it')
    return found
