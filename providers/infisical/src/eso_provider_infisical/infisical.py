"""Infisical: Infisical, for one namespace."""

from __future__ import annotations

import msgspec

from eso_api.stores.infisical import InfisicalProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, namespaced_config
from eso_api.v2.policy import Policy
from kubebase.meta import Object


class InfisicalSpec(InfisicalProvider, frozen=True, kw_only=True):
    """The fields of `spec.provider.infisical` of a v1 store, and who may use them."""

    common: Policy | None = None
    """Behaviour when this object is named directly, without a store."""


class Infisical(Object, kw_only=True):
    """Infisical, for one namespace."""

    spec: InfisicalSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


INFISICAL = namespaced_config(Infisical, STORE_CONFIG_GROUP, "infisicals")
