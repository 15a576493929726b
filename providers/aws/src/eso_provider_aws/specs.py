"""The specs of the AWS kinds, shared by each namespaced kind and its cluster-scoped twin."""

from __future__ import annotations

import msgspec

from eso_api.shapes import Fragment
from eso_api.stores.aws import AwsConnection, SecretsManagerDeletion
from eso_api.v2.policy import ClusterPolicy, Policy

AWS_GROUP = "aws.provider.external-secrets.io"


class AwsChanges(Fragment, frozen=True, kw_only=True):
    """Settings of the change detection."""

    queue_url: str = msgspec.field(default="", name="queueURL")
    """URL of an SQS queue that receives the EventBridge events of the service; absent means to look for changes."""


class SecretsManagerConfig(AwsConnection, frozen=True, kw_only=True):
    """The configuration of a Secrets Manager store: a v1 block, or the spec of a kind."""

    secrets_manager: SecretsManagerDeletion | None = None
    """How v1 blocks say it."""
    deletion: SecretsManagerDeletion | None = None
    changes: AwsChanges | None = None

    @property
    def deletes(self) -> SecretsManagerDeletion:
        """Return how secrets are deleted."""
        return self.deletion or self.secrets_manager or SecretsManagerDeletion()


class ParameterStoreConfig(AwsConnection, frozen=True, kw_only=True):
    """The configuration of a Parameter Store store: a v1 block, or the spec of a kind."""

    changes: AwsChanges | None = None


class CertificateManagerConfig(AwsConnection, frozen=True, kw_only=True):
    """The configuration of a Certificate Manager store: a v1 block, or the spec of a kind."""


class SecretsManagerSpec(AwsConnection, frozen=True, kw_only=True):
    """Which account and region, as whom."""

    deletion: SecretsManagerDeletion | None = None
    """How secrets are deleted."""
    changes: AwsChanges | None = None
    """Settings of the change detection."""
    common: Policy | None = None
    """Behaviour when this object is named directly, without a store."""


class ClusterSecretsManagerSpec(AwsConnection, frozen=True, kw_only=True):
    """Which account and region, as whom, and who may use it."""

    deletion: SecretsManagerDeletion | None = None
    """How secrets are deleted."""
    changes: AwsChanges | None = None
    """Settings of the change detection."""
    common: ClusterPolicy | None = None
    """Behaviour when this object is named directly, without a store."""


class ParameterStoreSpec(AwsConnection, frozen=True, kw_only=True):
    """Which account and region, as whom."""

    changes: AwsChanges | None = None
    """Settings of the change detection."""
    common: Policy | None = None
    """Behaviour when this object is named directly, without a store."""


class ClusterParameterStoreSpec(AwsConnection, frozen=True, kw_only=True):
    """Which account and region, as whom, and who may use it."""

    changes: AwsChanges | None = None
    """Settings of the change detection."""
    common: ClusterPolicy | None = None
    """Behaviour when this object is named directly, without a store."""


class CertificateManagerSpec(AwsConnection, frozen=True, kw_only=True):
    """Which account and region, as whom."""

    common: Policy | None = None
    """Behaviour when this object is named directly, without a store."""


class ClusterCertificateManagerSpec(AwsConnection, frozen=True, kw_only=True):
    """Which account and region, as whom, and who may use it."""

    common: ClusterPolicy | None = None
    """Behaviour when this object is named directly, without a store."""
