"""MFA: time-based one-time passwords."""

from __future__ import annotations

from eso_api.generators.definition import generator_kind
from eso_api.references import SecretKeySelector
from eso_api.shapes import Fragment, Timestamp
from kubebase.meta import Object


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
