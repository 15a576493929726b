"""Whose a pushed value is."""

from __future__ import annotations

from eso_api.pushsecret import PushSecret
from eso_operator.targets.hashes import digest


def owner_token(push: PushSecret) -> str:
    """The same for an object that is deleted and created again; fits where backends keep labels and tags."""
    return f"ps-{digest(f'PushSecret/{push.metadata.namespace}/{push.metadata.name}')}"
