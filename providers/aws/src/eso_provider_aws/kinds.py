"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from eso_provider_aws.awssecretmanager import AWS_SECRET_MANAGER
from eso_provider_aws.certificatemanager import CERTIFICATE_MANAGER
from eso_provider_aws.clustercertificatemanager import CLUSTER_CERTIFICATE_MANAGER
from eso_provider_aws.clusterparameterstore import CLUSTER_PARAMETER_STORE
from eso_provider_aws.clustersecretsmanager import CLUSTER_SECRETS_MANAGER
from eso_provider_aws.ecrauthorizationtoken import ECR_AUTHORIZATION_TOKEN
from eso_provider_aws.parameterstore import PARAMETER_STORE
from eso_provider_aws.secretsmanager import SECRETS_MANAGER
from eso_provider_aws.stssessiontoken import STS_SESSION_TOKEN

KINDS = (
    SECRETS_MANAGER,
    CLUSTER_SECRETS_MANAGER,
    PARAMETER_STORE,
    CLUSTER_PARAMETER_STORE,
    CERTIFICATE_MANAGER,
    CLUSTER_CERTIFICATE_MANAGER,
    AWS_SECRET_MANAGER,
    ECR_AUTHORIZATION_TOKEN,
    STS_SESSION_TOKEN,
)
