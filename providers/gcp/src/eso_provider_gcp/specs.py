"""The configuration of a store: a v1 block, or the spec of a kind."""

from __future__ import annotations

from typing import Annotated, Final

from eso_api.shapes import Fragment, shaped
from eso_api.stores.gcpsm import GcpProvider

SUBSCRIPTION: Final = r"^(projects/[a-z0-9.:-]+/subscriptions/)?[A-Za-z][A-Za-z0-9._~+%-]{2,254}$"


class GcpChanges(Fragment, frozen=True, kw_only=True):
    """Settings of the change detection."""

    subscription: Annotated[str, shaped(pattern=SUBSCRIPTION)]
    """Pub/Sub subscription to the topics of the secrets: a name in the project, or projects/P/subscriptions/NAME."""


class SecretManagerConfig(GcpProvider, frozen=True, kw_only=True):
    """Google Cloud Secret Manager, and where it announces changes."""

    changes: GcpChanges | None = None
    """Settings of the change detection; absent means none: the service has no cheap check of many secrets."""
