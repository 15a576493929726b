"""OpenBao: Key/value engines of OpenBao, for one namespace."""

from __future__ import annotations

import msgspec

from eso_api.stores.openbao import OpenBaoProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, namespaced_config
from eso_api.v2.policy import Policy
from kubebase.meta import Object


class OpenBaoSpec(OpenBaoProvider, frozen=True, kw_only=True):
    """The fields of `spec.provider.openBao` of a v1 store, and who may use them."""

    common: Policy | None = None
    """Behaviour when this object is named directly, without a store."""


class OpenBao(Object, kw_only=True):
    """Key/value engines of OpenBao, for one namespace."""

    spec: OpenBaoSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


OPEN_BAO = namespaced_config(OpenBao, STORE_CONFIG_GROUP, "openbaos")
