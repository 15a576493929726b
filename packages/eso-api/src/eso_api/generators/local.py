"""Generators without a backend: Fake, MFA, Password, SSHKey and UUID."""

from __future__ import annotations

from typing import Annotated

import msgspec

from eso_api.crd import generator_kind
from eso_api.references import SecretKeySelector
from eso_api.shapes import Fragment, NonEmpty, Timestamp, one_of, shaped
from kubebase.meta import Object


class FakeSpec(Fragment, frozen=True, kw_only=True):
    """The values."""

    data: dict[str, str] = {}
    """Keys and values."""
    controller: str = ""
    """Class of the operator that handles this generator."""


class Fake(Object, kw_only=True):
    """Fixed values, for tests and demonstrations."""

    spec: FakeSpec = msgspec.field(default_factory=FakeSpec)


FAKE = generator_kind(Fake, "fakes")


class MFASpec(Fragment, frozen=True, kw_only=True):
    """The seed, and how tokens are made from it."""

    secret: SecretKeySelector
    """The seed, in base32."""
    length: int = 6
    """Digits of the token; absent means 6."""
    time_period: int = 30
    """Seconds that a token is valid; absent means 30."""
    algorithm: str = ""
    """Accepted for compatibility; tokens are made with SHA-1."""
    when: Timestamp = None
    """Time to make the token for; absent means now."""


class MFA(Object, kw_only=True):
    """Time-based one-time passwords."""

    spec: MFASpec


MFA_KIND = generator_kind(MFA, "mfas")


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


class SSHKeySpec(Fragment, frozen=True, kw_only=True):
    """The type of the keys."""

    key_type: Annotated[str, one_of("rsa", "ecdsa", "ed25519")] = "rsa"
    """Algorithm; absent means rsa."""
    key_size: Annotated[int | None, shaped(minimum=256, maximum=8192)] = None
    """Bits: 2048 by default for rsa; 256, 384 or 521 for ecdsa; ignored for ed25519."""
    comment: str = ""
    """Comment of the public key."""


class SSHKey(Object, kw_only=True):
    """Pairs of SSH keys."""

    spec: SSHKeySpec = msgspec.field(default_factory=SSHKeySpec)


SSH_KEY = generator_kind(SSHKey, "sshkeys")


class UUIDSpec(Fragment, frozen=True, kw_only=True):
    """This generator has no settings."""


class UUID(Object, kw_only=True):
    """Random identifiers, version 4."""

    spec: UUIDSpec = msgspec.field(default_factory=UUIDSpec)


UUID_KIND = generator_kind(UUID, "uuids")
