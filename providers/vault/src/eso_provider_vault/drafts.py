"""The document that a push is about to write. Members are set and removed in memory; nothing is sent yet.

A property is the name of one member; dots are part of the name. Reads find such a member before they try a path.
Values are text: KV engines hold JSON, which has no bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

from eso_api.values import SecretBytes
from eso_provider_vault.documents import Json, Members, NotJsonError, Number, parse, same
from eso_sdk.drafts import payload_of
from eso_sdk.errors import invalid_request
from eso_wire.values import PushItem


class Draft:
    """A document in preparation."""

    def __init__(self, standing: Members | None) -> None:
        self.document: Members = dict(standing or {})

    def has(self, name: str) -> bool:
        """Return whether the property exists; without a property, whether there is a value."""
        return not name or name in self.document

    def put(self, item: PushItem) -> bool:
        """Set the value of an item; return whether the document changed."""
        before = self.document
        self.document = self._with(item)
        return not same(storable(before), storable(self.document))

    def remove(self, name: str) -> bool:
        """Remove a property, or everything if there is no name; return whether it existed."""
        if not self.has(name):
            return False
        self.document = {key: value for key, value in self.document.items() if name and key != name}
        return True

    def _with(self, item: PushItem) -> Members:
        key, name = item.remote.key, item.remote.property
        if not name:
            return _whole(item)
        value = item.payload
        told = value.reveal() if isinstance(value, SecretBytes) else payload_of(item)
        return {**self.document, name: _text(told, key, name)}


def storable(document: Members) -> Members:
    """Return the document as a version 2 engine returns it.

    Those engines return numbers as 64-bit floats. A number that would lose digits is stored as a string, which reads
    the same as a property.
    """
    return {name: _storable(value) for name, value in document.items()}


def _storable(value: Json) -> Json:
    match value:
        case Number():
            return value if value.fits_a_float else value.text
        case dict():
            return {name: _storable(entry) for name, entry in value.items()}
        case list():
            return [_storable(entry) for entry in value]
        case _:
            return value


def _whole(item: PushItem) -> Members:
    """Return the document that replaces the whole value."""
    key = item.remote.key
    if not isinstance(item.payload, SecretBytes):
        return _texts(item.payload, key)
    try:
        document = parse(item.payload.reveal())
    except NotJsonError:
        document = None
    if not isinstance(document, dict):
        raise invalid_request(
            f'the value for "{key}" is not a JSON object, and Vault keeps nothing else; set remoteRef.property to store'
            " it as one member"
        )
    return document


def _texts(whole: Mapping[str, SecretBytes], key: str) -> Members:
    return {name: _text(value.reveal(), key, name) for name, value in whole.items()}


def _text(raw: bytes, key: str, name: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        # The decoder's own message quotes the value.
        raise invalid_request(
            f'the value for "{name}" of "{key}" is binary, and Vault keeps text; encode it first, for example with'
            " b64enc in spec.template of the PushSecret"
        ) from None
