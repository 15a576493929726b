"""References that cluster-scoped stores must spell out."""

from __future__ import annotations

from collections.abc import Mapping

from eso_api.references import RequiredSecretKeySelector, SecretKeySelector, SecretSelector, ServiceAccountSelector
from eso_sdk.errors import invalid_config
from eso_wire.values import ObjectRef

Reference = SecretKeySelector | RequiredSecretKeySelector | SecretSelector | ServiceAccountSelector


def require_namespaces(holder: ObjectRef, references: Mapping[str, Reference | None]) -> None:
    """Require the namespace of each reference in a cluster-scoped store: its caller's Secrets are not meant.

    `references` are by the path of their field. Absent ones pass.
    """
    if holder.namespace:
        return
    for path, reference in references.items():
        if reference is not None and not reference.namespace:
            raise invalid_config(f"{path}/namespace", "must be set in a cluster-scoped store")
