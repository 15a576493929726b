"""The AWS provider as a whole."""

from __future__ import annotations

from typing import Final

from eso_provider_aws import kinds
from eso_provider_aws.certificates import OFFERED, CertificatesStore
from eso_provider_aws.generators import ECRAuthorizationTokenGenerator, STSSessionTokenGenerator
from eso_provider_aws.parameters import ParametersStore
from eso_provider_aws.secrets.writing import PushMetadata, SecretsStore
from eso_provider_aws.store import CONCURRENCY
from eso_sdk.main import run
from eso_sdk.provider import Maturity, Provider, store_kind, when
from eso_wire.values import SpecCondition

NAME: Final = "aws"
VERSION: Final = "0.1.0"
TAGGED: Final = when("/sessionTagsPolicy", unless=("", "None"))
"""Sessions that are tagged with the namespace of their user are not shared between namespaces."""

OTHER_SERVICES: Final = {"secretsManager": ""}
"""Members of a v1 block that mean nothing to the service."""

SecretsManager = store_kind(
    objects=(*kinds.SECRETS_MANAGER, *kinds.AWS_SECRET_MANAGER),
    v1_key="aws",
    v1_when=SpecCondition("/service", ("SecretsManager",)),
    v1_renames={"secretsManager": "deletion"},
    caller_namespace=TAGGED,
    push_metadata=PushMetadata,
    concurrency=CONCURRENCY,
)(SecretsStore)

ParameterStore = store_kind(
    objects=kinds.PARAMETER_STORE,
    v1_key="aws",
    v1_when=SpecCondition("/service", ("ParameterStore",)),
    v1_renames=OTHER_SERVICES,
    caller_namespace=TAGGED,
    concurrency=CONCURRENCY,
)(ParametersStore)

CertificateManager = store_kind(
    objects=kinds.CERTIFICATE_MANAGER,
    v1_key="aws",
    v1_when=SpecCondition("/service", ("CertificateManager",)),
    v1_renames=OTHER_SERVICES,
    caller_namespace=TAGGED,
    concurrency=CONCURRENCY,
    operations=OFFERED,
)(CertificatesStore)

PROVIDER: Final = Provider(
    name=NAME,
    version=VERSION,
    maturity=Maturity.STABLE,
    kinds=(
        SecretsManager,
        ParameterStore,
        CertificateManager,
        ECRAuthorizationTokenGenerator,
        STSSessionTokenGenerator,
    ),
    api_name="AWS",
)


def main() -> None:
    """Run the console script `eso-provider-aws`."""
    raise SystemExit(run(PROVIDER))
