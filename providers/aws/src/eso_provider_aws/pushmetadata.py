"""The envelope around `spec.data[].metadata` of a PushSecret: `apiVersion`, `kind`, and the `spec` of one service."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from eso_sdk.errors import invalid_request

API_VERSION: Final = "kubernetes.external-secrets.io/v1alpha1"
KIND: Final = "PushSecretMetadata"

_QUOTED: Final = re.compile(r"'[^']*'")

S = TypeVar("S", bound=msgspec.Struct)


class Envelope(msgspec.Struct, Generic[S], frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a PushSecret says about the object it writes, besides its value."""

    api_version: str
    kind: str
    spec: S


def spec_of(plain: Mapping[str, Any] | None, key: str, spec: type[S]) -> S | None:
    """Decode the metadata of one entry; None if it has none. A field that is not known is an error."""
    if not plain:
        return None
    given = {"spec": {}, **plain}
    try:
        envelope = msgspec.convert(given, Envelope[spec])  # type: ignore[valid-type] # a type at run time
    except msgspec.ValidationError as problem:
        text = _QUOTED.sub("…", str(problem))  # names fields and types; a value that was found stands in quotes
        raise invalid_request(f'metadata of "{key}" does not have the expected form: {text}') from None
    if (envelope.api_version, envelope.kind) != (API_VERSION, KIND):
        raise invalid_request(f'metadata of "{key}" must have apiVersion {API_VERSION} and kind {KIND}')
    found: S = envelope.spec
    return found
