"""A configured login of any form: whom it proves, and its body."""

from __future__ import annotations

from dataclasses import dataclass, field

from eso_api.stores.akeyless import AkeylessProvider
from eso_sdk.backend import Backend
from eso_sdk.loginbodies import MakeBody

Opened = Backend[AkeylessProvider]


@dataclass(frozen=True, slots=True)
class Form:
    """One configured login."""

    name: str
    """The form, for messages."""
    proof: tuple[str, ...] = field(repr=False)
    """Everything that determines the identity. Equal for all sessions that may share a token."""
    body: MakeBody = field(repr=False)
    advice: str
    """What to check when Akeyless rejects the login."""
