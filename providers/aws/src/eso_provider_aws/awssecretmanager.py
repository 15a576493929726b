"""AWSSecretManager: AWS Secrets Manager, under the name and in the group that the v2 store proposal uses."""

from __future__ import annotations

import msgspec

from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, namespaced_config
from eso_provider_aws.specs import SecretsManagerSpec
from kubebase.meta import Object


class AWSSecretManager(Object, kw_only=True):
    """AWS Secrets Manager, for v2 stores that name it without apiVersion."""

    spec: SecretsManagerSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


AWS_SECRET_MANAGER = namespaced_config(AWSSecretManager, STORE_CONFIG_GROUP, "awssecretmanagers")
