"""`metadata` of a PushSecret entry: the envelope around what a service can be told, decoded strictly.

class ParameterMetadata(Told, frozen=True, kw_only=True):
    description: str = ""

decoded(item.provider_metadata, ParameterMetadata, item.remote.key).description
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from eso_provider_aws.ownership import MARK
from eso_sdk.errors import invalid_request

API_VERSION: Final = "kubernetes.external-secrets.io/v1alpha1"
KIND: Final = "PushSecretMetadata"

_QUOTED: Final = re.compile(r"""['"].*['"]""", re.DOTALL)


class Told(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of what `spec` of an envelope says, and of its parts: a field that is not known is refused."""


T = TypeVar("T", bound=Told)


def decoded(metadata: Mapping[str, Any] | None, spec: type[T], key: str) -> T:
    """What the metadata of one pushed entry says; the defaults if there is none. Errors name fields, never values."""
    try:
        if not metadata:
            return spec()
        envelope = msgspec.convert(dict(metadata), _envelope(spec))
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


@cache
def _envelope(spec: type[Told]) -> Any:
    fields: list[tuple[str, Any] | tuple[str, Any, Any]]
    fields = [("api_version", str), ("kind", str), ("spec", spec, msgspec.field(default_factory=spec))]
    return msgspec.defstruct("Envelope", fields, rename="camel", forbid_unknown_fields=True, kw_only=True)
