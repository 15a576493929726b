"""ParameterStore: AWS Parameter Store, for one namespace."""

from __future__ import annotations

import msgspec

from eso_api.v2.owned import OwnedStatus, namespaced_config
from eso_provider_aws.specs import AWS_GROUP, ParameterStoreSpec
from kubebase.meta import Object


class ParameterStore(Object, kw_only=True):
    """AWS Parameter Store, for one namespace."""

    spec: ParameterStoreSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


PARAMETER_STORE = namespaced_config(ParameterStore, AWS_GROUP, "parameterstores")
