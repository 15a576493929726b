"""Marks on reference fields: how to resolve a reference if its type alone does not say it.

service_account_ref: Annotated[ServiceAccountSelector, audiences("sts.amazonaws.com"), lifetime(900)]

A provider's handshake sends them to the operator (`eso_sdk.credentials`), which resolves the references.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from msgspec import Meta

from eso_api.references import SecretKeySelector

AUDIENCES: Final = "audiences"
LIFETIME: Final = "lifetime"
DEFAULT_KEY: Final = "default_key"
CONFIG_MAP: Final = "config_map"
WHOLE: Final = "whole"


class Audiences(NamedTuple):
    """One rule for the audiences of a token. The protocol's `AudienceRule` explains each source."""

    source: str
    names: tuple[str, ...] = ()
    suffix: str = ""
    otherwise: tuple[str, ...] = ()


class Lifetime(NamedTuple):
    """The lifetime of tokens: seconds, or the seconds at a relative pointer in the configuration."""

    seconds: int
    sibling: str = ""


REFERENCE: Final = Audiences("REFERENCE")
"""The list `audiences` of the reference itself."""
STORE: Final = Audiences("STORE")
"""The store: `secretStore:NAMESPACE:NAME` or `clusterSecretStore:NAME`."""


def annotation(*names: str, otherwise: str = "", suffix: str = "") -> Audiences:
    """Take the audience from the first of these annotations of the service account that has a value."""
    return Audiences("ANNOTATION", names, suffix, (otherwise,) if otherwise else ())


def sibling(*pointers: str, otherwise: str = "", suffix: str = "") -> Audiences:
    """Take audiences from the configuration, at the first relative pointer ("1/audiences") where it has some."""
    return Audiences("SPEC", pointers, suffix, (otherwise,) if otherwise else ())


def audiences(*rules: str | Audiences) -> Meta:
    """Mark a service account with the audiences of its tokens, in this order.

    The reference's own audiences come last unless `REFERENCE` places them.
    """
    return Meta(
        extra={AUDIENCES: tuple(Audiences("TEXT", (rule,)) if isinstance(rule, str) else rule for rule in rules)}
    )


def lifetime(seconds: int, *, sibling: str = "") -> Meta:
    """Mark a service account with the lifetime of its tokens; `sibling` points at seconds in the configuration."""
    return Meta(extra={LIFETIME: Lifetime(seconds, sibling)})


def default_key(key: str) -> Meta:
    """Mark a key of a Secret with the default key of references."""
    return Meta(extra={DEFAULT_KEY: key})


WholeSecret = Annotated[SecretKeySelector, Meta(extra={WHOLE: True})]
"""A reference with a key for historical reasons: all keys of the Secret are used, whatever it says."""
CONFIG_MAP_KEY: Final = Meta(extra={CONFIG_MAP: True})
"""On a key of a Secret: the reference names a ConfigMap instead."""
ConfigMapKey = Annotated[SecretKeySelector, CONFIG_MAP_KEY]
"""One key of a ConfigMap, written like a reference to a key of a Secret."""
