"""The value that a push is about to write: set and removed piece by piece, nothing sent yet.

A property that is a literal member of the value means that member, as reads have it; any other is an sjson path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from eso_api.values import SecretBytes
from eso_provider_aws.properties import path_in
from eso_sdk import sjson
from eso_sdk.errors import invalid_request
from eso_sdk.extract import property_of
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import PushItem

MAX_BYTES: Final = 65_536


class Draft:
    """A value to be; None for none."""

    def __init__(self, value: bytes | None) -> None:
        self.value = value

    def has(self, name: str) -> bool:
        """Tell whether the property is there; without a name, whether there is a value."""
        if self.value is None or not name:
            return self.value is not None
        return _document(self.value) is not None and property_of(self.value, path_in(self.value, name)) is not None

    def put(self, item: PushItem) -> bool:
        """Set what an item says; tell whether that changed the value."""
        before = self.value
        payload, key = item.payload, item.remote.key
        raw = payload.reveal() if isinstance(payload, SecretBytes) else _whole(payload, key)
        self.value = self._with(raw, key, item.remote.property) if item.remote.property else raw
        return self.value != before

    def remove(self, name: str) -> bool:
        """Remove a property, or everything when there is no name; tell whether it was there."""
        if self.value is None or not self.has(name):
            return False
        value = self.value
        rest = _edited(name, lambda: sjson.delete(value, path_in(value, name))) if name else b""
        self.value = None if not name or _is_blank(_document(rest)) else rest
        return True

    def checked(self, key: str) -> bytes:
        """The value, if Secrets Manager can keep it."""
        if not self.value:
            raise invalid_request(f'the value for "{key}" is empty, and Secrets Manager keeps no empty values')
        if len(self.value) > MAX_BYTES:
            words = f'the value for "{key}" has more than {MAX_BYTES} bytes, the limit of Secrets Manager; split it'
            raise ProviderError(ErrorReason.PAYLOAD_TOO_LARGE, words)
        return self.value

    def _with(self, raw: bytes, key: str, name: str) -> bytes:
        value = b"{}" if self.value is None else self.value
        if _document(value) is None:
            raise invalid_request(
                f'the value of "{key}" is no JSON object, so it can have no property "{name}"; remove'
                " remoteRef.property, or choose another remoteKey"
            )
        text = _text(raw, key, name).encode()
        return _edited(name, lambda: sjson.set_text(value, path_in(value, name), text))


def _document(value: bytes) -> dict[str, Any] | list[Any] | None:
    """The value as a JSON object or array; None if it is neither."""
    try:
        found = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None


def _is_blank(document: Any) -> bool:
    """Tell whether nothing is left: no members, or only objects that nested properties were removed from."""
    return isinstance(document, dict) and all(_is_blank(value) for value in document.values())


def _whole(secret: Mapping[str, SecretBytes], key: str) -> bytes:
    """All keys of a Secret as one JSON object."""
    texts = {name: _text(value.reveal(), key, name) for name, value in secret.items()}
    return msgspec.json.encode(texts, order="sorted")


def _text(raw: bytes, key: str, name: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        # The decoder's own message quotes the value.
        raise invalid_request(
            f'the value for "{name}" of "{key}" is binary, and JSON keeps text; encode it first, for example with'
            " b64enc in spec.template of the PushSecret"
        ) from None


def _edited(name: str, edit: Callable[[], bytes]) -> bytes:
    try:
        return edit()
    except sjson.SjsonError as exc:
        raise invalid_request(f'property "{name}" cannot be written: {exc}') from None
