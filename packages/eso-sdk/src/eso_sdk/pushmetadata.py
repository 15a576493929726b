"""`metadata` of a PushSecret entry: the envelope around the settings of a provider, decoded strictly.

class ParameterMetadata(MetadataSpec, frozen=True, kw_only=True):
    description: str = ""

decoded(item.provider_metadata, ParameterMetadata, item.remote.key).description
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from eso_sdk.errors import invalid_request

API_VERSION: Final = "kubernetes.external-secrets.io/v1alpha1"
KIND: Final = "PushSecretMetadata"

_QUOTED: Final = re.compile(r"""['"].*['"]""", re.DOTALL)


class MetadataSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of the `spec` of an envelope, and of its parts: an unknown field is refused."""


T = TypeVar("T", bound=MetadataSpec)


class Envelope(msgspec.Struct, Generic[T], frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The whole object, as the PushSecret has it."""

    api_version: str
    kind: str
    spec: T


def decoded(metadata: Mapping[str, Any] | None, spec: type[T], key: str) -> T:
    """Decode the metadata of one pushed entry; the defaults if it has none. Errors name fields, never values."""
    if not metadata:
        return spec()
    try:
        envelope = msgspec.convert({"spec": {}, **metadata}, Envelope[spec])  # type: ignore[valid-type] # at run time
    except msgspec.ValidationError as problem:
        # The text names fields and types. It quotes the value that was found.
        text = _QUOTED.sub("…", str(problem)).replace("$", "metadata")
        raise invalid_request(f'metadata of "{key}" does not have the expected form: {text}') from None
    if (envelope.api_version, envelope.kind) != (API_VERSION, KIND):
        raise invalid_request(f'metadata of "{key}" must have apiVersion {API_VERSION} and kind {KIND}')
    found: T = envelope.spec
    return found
