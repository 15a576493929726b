"""The configurations of the stores, and the kinds this provider owns: the entry point of `eso.kinds` names them."""

from __future__ import annotations

from typing import Final

import msgspec

from eso_api.generators.aws import ECRAuthorizationTokenSpec, STSSessionTokenSpec
from eso_api.shapes import Fragment
from eso_api.stores.aws import AwsConnection, SecretsManagerDeletion
from eso_api.v2.owned import generator_config, store_kinds

AWS_GROUP: Final = "aws.provider.external-secrets.io"
SPEC: Final = "Which account and region, as whom."
SHARED_SPEC: Final = "Which account and region, as whom, and who may use it."


class AwsChanges(Fragment, frozen=True, kw_only=True):
    """Settings of the change detection."""

    queue_url: str = msgspec.field(default="", name="queueURL")
    """URL of an SQS queue that receives the EventBridge events of the service; absent means to look for changes."""


class SecretsManagerSpec(AwsConnection, frozen=True, kw_only=True):
    """The fields of the kinds of Secrets Manager."""

    deletion: SecretsManagerDeletion | None = None
    """How secrets are deleted."""
    changes: AwsChanges | None = None
    """Settings of the change detection."""


class SecretsManagerConfig(SecretsManagerSpec, frozen=True, kw_only=True):
    """The configuration of a Secrets Manager store: a v1 block, or the spec of a kind."""

    secrets_manager: SecretsManagerDeletion | None = None
    """What v1 blocks call `deletion`."""

    @property
    def deletes(self) -> SecretsManagerDeletion:
        """Return how secrets are deleted."""
        return self.deletion or self.secrets_manager or SecretsManagerDeletion()


class ParameterStoreConfig(AwsConnection, frozen=True, kw_only=True):
    """The configuration of a Parameter Store store: a v1 block, or the spec of a kind."""

    changes: AwsChanges | None = None
    """Settings of the change detection."""


class CertificateManagerConfig(AwsConnection, frozen=True, kw_only=True):
    """The configuration of a Certificate Manager store: a v1 block, or the spec of a kind."""


SECRETS_MANAGER: Final = store_kinds(
    SecretsManagerSpec,
    module=__name__,
    kind="SecretsManager",
    plural="secretsmanagers",
    cluster="ClusterSecretsManager",
    about="AWS Secrets Manager",
    spec=SPEC,
    group=AWS_GROUP,
    cluster_spec=SHARED_SPEC,
)
PARAMETER_STORE: Final = store_kinds(
    ParameterStoreConfig,
    module=__name__,
    kind="ParameterStore",
    plural="parameterstores",
    cluster="ClusterParameterStore",
    about="AWS Parameter Store",
    spec=SPEC,
    group=AWS_GROUP,
    cluster_spec=SHARED_SPEC,
)
CERTIFICATE_MANAGER: Final = store_kinds(
    CertificateManagerConfig,
    module=__name__,
    kind="CertificateManager",
    plural="certificatemanagers",
    cluster="ClusterCertificateManager",
    about="Certificates of AWS Certificate Manager",
    spec=SPEC,
    group=AWS_GROUP,
    cluster_spec=SHARED_SPEC,
)
AWS_SECRET_MANAGER: Final = store_kinds(
    SecretsManagerSpec,
    module=__name__,
    kind="AWSSecretManager",
    plural="awssecretmanagers",
    about="AWS Secrets Manager",
    spec=SPEC,
    scope="for v2 stores that name it without apiVersion",
)
ECR_AUTHORIZATION_TOKEN: Final = generator_config(
    ECRAuthorizationTokenSpec,
    module=__name__,
    kind="ECRAuthorizationToken",
    plural="ecrauthorizationtokens",
    about="Logins for Amazon's container registry",
)
STS_SESSION_TOKEN: Final = generator_config(
    STSSessionTokenSpec,
    module=__name__,
    kind="STSSessionToken",
    plural="stssessiontokens",
    about="Temporary AWS keys",
)

KINDS: Final = (
    *SECRETS_MANAGER,
    *PARAMETER_STORE,
    *CERTIFICATE_MANAGER,
    *AWS_SECRET_MANAGER,
    ECR_AUTHORIZATION_TOKEN,
    STS_SESSION_TOKEN,
)
