"""Password: random passwords."""

from __future__ import annotations

from typing import Annotated

import msgspec

from eso_api.generators.definition import generator_kind
from eso_api.shapes import Fragment, NonEmpty, one_of, shaped
from kubebase.meta import Object


class PasswordSpec(Fragment, frozen=True, kw_only=True):
    """The format of the passwords."""

    length: int = 24
    """Number of characters; absent means 24."""
    digits: int | None = None
    """Number of digits; absent means a quarter of the length."""
    symbols: int | None = None
    """Number of symbols; absent means a quarter of the length."""
    symbol_characters: str | None = None
    """Symbols to choose from."""
    no_upper: bool = False
    """Leave out upper case letters."""
    allow_repeat: bool = False
    """Let characters repeat."""
    secret_keys: Annotated[list[NonEmpty], shaped(minItems=1)] = msgspec.field(default_factory=lambda: ["password"])
    """Keys, each with a password of its own; absent means password."""
    encoding: Annotated[str, one_of("base64", "base64url", "base32", "hex", "raw")] = "raw"
    """How the password is encoded; absent means raw."""


class Password(Object, kw_only=True):
    """Random passwords."""

    spec: PasswordSpec = msgspec.field(default_factory=PasswordSpec)


PASSWORD = generator_kind(Password, "passwords")
