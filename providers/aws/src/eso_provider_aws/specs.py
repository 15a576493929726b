"""The specs behind the AWS kinds: what a namespaced kind and its cluster-scoped twin have in common."""

from __future__ import annotations

from typing import ClassVar

from eso_api.shapes import Rule
from eso_api.stores.aws import AwsConnection, SecretsManagerDeletion
from eso_api.v2.policy import ClusterPolicy, Policy

AWS_GROUP = "aws.provider.external-secrets.io"

_RECOVERY_WINDOW = Rule(
    "!has(self.deletion) || !has(self.deletion.recoveryWindowInDays) || self.deletion.recoveryWindowInDays == 0"
    " || (self.deletion.recoveryWindowInDays >= 7 && self.deletion.recoveryWindowInDays <= 30)",
    "deletion.recoveryWindowInDays must be 0 or between 7 and 30",
)


class SecretsManagerSpec(AwsConnection, frozen=True, kw_only=True):
    """Which account and region, as whom."""

    RULES: ClassVar = (_RECOVERY_WINDOW,)

    deletion: SecretsManagerDeletion | None = None
    """How secrets are deleted."""
    common: Policy | None = None
    """Behaviour when this object is named directly, without a store."""


class ClusterSecretsManagerSpec(AwsConnection, frozen=True, kw_only=True):
    """Which account and region, as whom, and who may use it."""

    RULES: ClassVar = (_RECOVERY_WINDOW,)

    deletion: SecretsManagerDeletion | None = None
    """How secrets are deleted."""
    common: ClusterPolicy | None = None
    """Behaviour when this object is named directly, without a store."""


class ParameterStoreSpec(AwsConnection, frozen=True, kw_only=True):
    """Which account and region, as whom."""

    common: Policy | None = None
    """Behaviour when this object is named directly, without a store."""


class ClusterParameterStoreSpec(AwsConnection, frozen=True, kw_only=True):
    """Which account and region, as whom, and who may use it."""

    common: ClusterPolicy | None = None
    """Behaviour when this object is named directly, without a store."""
