"""Akeyless: items of Akeyless, for one namespace."""

from __future__ import annotations

import msgspec

from eso_api.stores.akeyless import AkeylessProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, namespaced_config
from eso_api.v2.policy import Policy
from kubebase.meta import Object


class AkeylessSpec(AkeylessProvider, frozen=True, kw_only=True):
    """The fields of `spec.provider.akeyless` of a v1 store, and who may use them."""

    common: Policy | None = None
    """Behaviour when this object is named directly, without a store."""


class Akeyless(Object, kw_only=True):
    """Items of Akeyless, for one namespace."""

    spec: AkeylessSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


AKEYLESS = namespaced_config(Akeyless, STORE_CONFIG_GROUP, "akeylesses")
