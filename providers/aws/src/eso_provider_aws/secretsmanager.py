"""SecretsManager: AWS Secrets Manager, for one namespace."""

from __future__ import annotations

import msgspec

from eso_api.v2.owned import OwnedStatus, namespaced_config
from eso_provider_aws.specs import AWS_GROUP, SecretsManagerSpec
from kubebase.meta import Object


class SecretsManager(Object, kw_only=True):
    """AWS Secrets Manager, for one namespace."""

    spec: SecretsManagerSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


SECRETS_MANAGER = namespaced_config(SecretsManager, AWS_GROUP, "secretsmanagers")
