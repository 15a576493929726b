"""MFA: time-based one-time passwords."""

from __future__ import annotations

import msgspec

from eso_api.generators.mfa import MFASpec
from eso_api.v2.generator import GENERATOR_CATEGORIES
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, OwnedStatus, namespaced_config
from kuberun.meta import Object


class MFA(Object, kw_only=True):
    """Time-based one-time passwords, for v2 generators."""

    spec: MFASpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


MFA_KIND = namespaced_config(MFA, GENERATOR_CONFIG_GROUP, "mfas", GENERATOR_CATEGORIES)
