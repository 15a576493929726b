"""The bytes that a push writes, and references that cluster-scoped stores must spell out."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from eso_api.references import RequiredSecretKeySelector, SecretKeySelector, SecretSelector, ServiceAccountSelector
from eso_api.values import SecretBytes
from eso_sdk.drafts import text_of
from eso_sdk.errors import invalid_config
from eso_wire.values import ObjectRef, PushItem

Reference = SecretKeySelector | RequiredSecretKeySelector | SecretSelector | ServiceAccountSelector


def payload_of(item: PushItem) -> bytes:
    """Return the value of a push: one key of the Secret, or all keys as a JSON object of texts, sorted by name."""
    if isinstance(item.payload, SecretBytes):
        return item.payload.reveal()
    texts = {name: text_of(value.reveal(), item.remote.key, name) for name, value in sorted(item.payload.items())}
    return msgspec.json.encode(texts)


def require_namespaces(holder: ObjectRef, references: Mapping[str, Reference | None]) -> None:
    """Require the namespace of each reference in a cluster-scoped store: its caller's Secrets are not meant.

    `references` are by the path of their field. Absent ones pass.
    """
    if holder.namespace:
        return
    for path, reference in references.items():
        if reference is not None and not reference.namespace:
            raise invalid_config(f"{path}/namespace", "must be set in a cluster-scoped store")
