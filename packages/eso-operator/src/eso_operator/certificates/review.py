"""The question whether the certificates of one Service are in order, and its answer: the new content of Secrets.

Both are values that can be sent to another process. They contain private keys, so no repr shows them.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct, field

from eso_operator.certificates.bundle import Identity, Lifetimes, Phase


class Content(Struct, frozen=True):
    """The content of one Secret, and the time of its last change as it is written there."""

    data: dict[str, bytes]
    written_at: str

    def __repr__(self) -> str:
        return "Content(<secret>)"


class Question(Struct, frozen=True):
    """The existing Secrets by part, and what their certificates must be like."""

    stored: dict[str, Content]
    now: datetime
    lifetimes: Lifetimes
    identity: Identity


class Review(Struct, frozen=True):
    """The answer. Without steps, nothing changed, and nothing will before `due` unless a Secret changes.

    `steps` are pairs of a name and a reason. `changed` are the Secrets to write, by part.
    """

    steps: tuple[tuple[str, str], ...]
    due: datetime
    changed: dict[str, Content] = field(default_factory=dict)
    phase: Phase | None = None
    expires_at: datetime | None = None
    """When the leaf that expires first does."""


class Answer(Struct, frozen=True):
    """A review, or the type of the error that prevented it."""

    review: Review | None = None
    error: str = ""
