"""For stores that write: the value that a push is about to write, and the metadata of its entry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from eso_api.values import SecretBytes
from eso_sdk.errors import invalid_request
from eso_sdk.extract import Dots, outcome_of, path_in, property_of
from eso_sdk.lookups import Job
from eso_wire.errors import ProviderError
from eso_wire.values import DeleteItem, PushItem

# --- The value that a push is about to write. Properties are set and removed in memory; nothing is sent yet ----------
#
# A property names the same part as in reads (`extract.py`); what is absent is an sjson path.


class Draft:
    """A value in preparation; None if there is none."""

    def __init__(self, value: bytes | None, dots: Dots = Dots.MEMBER_FIRST) -> None:
        self.value = value
        self._dots = dots

    async def has(self, name: str) -> bool:
        """Return whether the property exists; without a name, whether there is a value."""
        if self.value is None or not name:
            return self.value is not None
        return _document(self.value) is not None and await property_of(self.value, await self._path(name)) is not None

    async def put(self, key: str, name: str, raw: bytes) -> bool:
        """Set a property, or the whole value if there is no name; return whether the value changed."""
        before = self.value
        after = await self._with(key, name, raw) if name else raw
        if name and before is not None and _document(after) == _document(before):
            return False  # the same document, which another writer may spell differently: `<` as \u003c
        self.value = after
        return self.value != before

    async def remove(self, name: str) -> bool:
        """Remove a property, or the whole value if there is no name; return whether it existed."""
        if self.value is None or not await self.has(name):
            return False
        rest = await _edited(Job("delete", self.value, await self._path(name)), name) if name else b""
        self.value = None if not name or _is_blank(_document(rest)) else rest
        return True

    async def _with(self, key: str, name: str, raw: bytes) -> bytes:
        value = b"{}" if self.value is None else self.value
        if _document(value) is None:
            raise invalid_request(
                f'the value of "{key}" is not a JSON object, so property "{name}" cannot be set in it; remove'
                " remoteRef.property, or choose another remoteKey"
            )
        text = text_of(raw, key, name).encode()
        return await _edited(Job("set", value, await self._path(name), text), name, key)

    async def _path(self, name: str) -> str:
        return await path_in(self.value or b"{}", name, self._dots)


async def removed(draft: Draft, item: DeleteItem) -> bool | ProviderError:
    """Remove the property of an item; return whether it existed, or why it cannot be removed."""
    try:
        return await draft.remove(item.remote.property)
    except ProviderError as refused:
        return refused


def payload_of(item: PushItem) -> bytes:
    """Return the bytes of one key, or all keys of the Secret as one JSON object."""
    if isinstance(item.payload, SecretBytes):
        return item.payload.reveal()
    texts = {name: text_of(value.reveal(), item.remote.key, name) for name, value in item.payload.items()}
    return msgspec.json.encode(texts, order="sorted")


def text_of(raw: bytes, key: str, name: str = "") -> str:
    """Return a value as text; errors name `key` and `name`."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        # The decoder's own message quotes the value.
        what = f'"{name}" of "{key}"' if name else f'"{key}"'
        raise invalid_request(
            f"the value for {what} is binary, and only text can be stored there; encode it first, for example with"
            " b64enc in spec.template of the PushSecret"
        ) from None


def _document(value: bytes) -> dict[str, Any] | list[Any] | None:
    """Return the value as a JSON object or array; None if it is neither."""
    try:
        found = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None


def _is_blank(document: Any) -> bool:
    """Return whether nothing is left: no members, or only objects that nested properties were removed from."""
    return isinstance(document, dict) and all(_is_blank(value) for value in document.values())


async def _edited(edit: Job, name: str, key: str = "") -> bytes:
    outcome = await outcome_of(edit, key)
    if outcome.problem or outcome.value is None:
        raise invalid_request(f'property "{name}" cannot be written: {outcome.problem}')
    return outcome.value


# --- `metadata` of a PushSecret entry: the envelope around the settings of a provider, decoded strictly --------------
#
# class ParameterMetadata(MetadataSpec, frozen=True, kw_only=True):
#     description: str = ""
#
# decoded(item.provider_metadata, ParameterMetadata, item.remote.key).description


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


def decode_metadata(metadata: Mapping[str, Any] | None, spec: type[T], key: str) -> T:
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
