"""The mark of values that this operator pushes."""

from __future__ import annotations

from typing import Final

OWNER_TOKEN: Final = "external-secrets"  # noqa: S105 - a mark, not a credential
"""Backends keep it as `managed-by`. All PushSecrets share it, so that several of them may write one remote key."""
