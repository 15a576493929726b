"""The value that a push is about to write. Properties are set and removed in memory; nothing is sent yet."""

from __future__ import annotations

from typing import Any

import msgspec

from eso_provider_azure.properties import path_in
from eso_sdk import sjson
from eso_sdk.errors import invalid_request
from eso_sdk.extract import property_of


class Draft:
    """A secret's value in preparation; None if there is none."""

    def __init__(self, key: str, value: bytes | None) -> None:
        self.value = value
        self._key = key

    def put(self, name: str, raw: bytes) -> None:
        """Set a property, or the whole value if there is no name."""
        text = self._text(raw)
        if not name:
            self.value = text
            return
        value = b"{}" if self.value is None else self.value
        if not isinstance(_document(value), dict):
            raise invalid_request(
                f'the value of "{self._key}" is not a JSON object, so property "{name}" cannot be set in it; remove'
                " remoteRef.property, or choose another remoteKey"
            )
        try:
            self.value = sjson.set_text(value, path_in(value, name), text)
        except sjson.SjsonError as exc:
            raise invalid_request(f'property "{name}" of "{self._key}" cannot be written: {exc}') from None

    def remove(self, name: str) -> bool:
        """Remove a property, or the whole value if there is no name; return whether it existed."""
        value = self.value
        if value is None or not name:
            self.value = None
            return value is not None
        path = path_in(value, name)
        if not isinstance(_document(value), dict) or property_of(value, path) is None:
            return False
        try:
            rest = sjson.delete(value, path)
        except sjson.SjsonError as exc:
            raise invalid_request(f'property "{name}" of "{self._key}" cannot be removed: {exc}') from None
        self.value = None if _document(rest) == {} else rest
        return True

    def _text(self, raw: bytes) -> bytes:
        try:
            raw.decode()
        except UnicodeDecodeError:
            raise invalid_request(  # the decoder's own message quotes the value
                f'the value for "{self._key}" is binary, and a secret of Key Vault is text; encode it first, for'
                " example with b64enc in spec.template of the PushSecret"
            ) from None
        return raw


def _document(value: bytes) -> Any:
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
