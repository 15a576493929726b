"""What author code answers with, beyond plain bytes: a value with its metadata, an existence check, a push."""

from __future__ import annotations

from dataclasses import dataclass, field

from eso_api.values import SecretBytes
from eso_wire.values import PushOutcome, ValueMetadata


@dataclass(frozen=True, slots=True)
class Value:
    """One remote value and what the backend says about it.

    With a version in its metadata, readers that have that version already are not sent the value again.
    """

    raw: SecretBytes
    metadata: ValueMetadata = field(default_factory=ValueMetadata)

    @classmethod
    def of(cls, raw: bytes | SecretBytes, *, version: str = "") -> Value:
        """A value with nothing but its version."""
        return cls(secret(raw), ValueMetadata(provider_version=version))


@dataclass(frozen=True, slots=True)
class Check:
    """Whether a key is there, and in which version."""

    exists: bool
    version: str = ""


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push did, and the version it made."""

    outcome: PushOutcome
    version: str = ""


def secret(raw: bytes | SecretBytes) -> SecretBytes:
    """Bytes that can no longer print."""
    return raw if isinstance(raw, SecretBytes) else SecretBytes(raw)


def value(answer: bytes | SecretBytes | Value) -> Value:
    """Whatever form an author answered in, as a `Value`."""
    return answer if isinstance(answer, Value) else Value(secret(answer))
