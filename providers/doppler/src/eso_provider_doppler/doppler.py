"""Doppler: one config of Doppler, for one namespace."""

from __future__ import annotations

import msgspec

from eso_api.stores.doppler import DopplerProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, namespaced_config
from eso_api.v2.policy import Policy
from kubebase.meta import Object


class DopplerSpec(DopplerProvider, frozen=True, kw_only=True):
    """The fields of `spec.provider.doppler` of a v1 store, and who may use them."""

    common: Policy | None = None
    """Behaviour when this object is named directly, without a store."""


class Doppler(Object, kw_only=True):
    """One config of Doppler, for one namespace."""

    spec: DopplerSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


DOPPLER = namespaced_config(Doppler, STORE_CONFIG_GROUP, "dopplers")
