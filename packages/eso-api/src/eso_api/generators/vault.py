"""VaultDynamicSecret: what any path of Vault answers."""

from __future__ import annotations

from typing import Annotated

from eso_api.common import RetrySettings
from eso_api.crd import generator_kind
from eso_api.shapes import Fragment, Json, one_of
from eso_api.stores.vault import VaultProvider
from kubebase.meta import Object


class VaultDynamicSecretSpec(Fragment, frozen=True, kw_only=True):
    """Which path, and what to take from the answer."""

    path: str
    """Path to call."""
    provider: VaultProvider
    """Which Vault, and how to log in."""
    method: str = ""
    """GET (default), LIST, DELETE, or anything else to write."""
    parameters: Json = None
    """Parameters of a write."""
    get_parameters: dict[str, list[str]] = {}
    """Query parameters of a read."""
    result_type: Annotated[str, one_of("Data", "Auth", "Raw")] = "Data"
    """Part of the answer to take; absent means Data."""
    allow_empty_response: bool = False
    """Accept an empty answer."""
    retry_settings: RetrySettings | None = None
    """How calls are retried."""
    controller: str = ""
    """Class of the operator that handles this generator."""


class VaultDynamicSecret(Object, kw_only=True):
    """Generates values from the response of any path of Vault."""

    spec: VaultDynamicSecretSpec


VAULT_DYNAMIC_SECRET = generator_kind(VaultDynamicSecret, "vaultdynamicsecrets")
