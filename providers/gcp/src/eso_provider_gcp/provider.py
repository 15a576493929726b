"""The Google provider as a whole."""

from __future__ import annotations

from typing import Final

from eso_provider_gcp.clustergcpsecretmanager import CLUSTER_GCP_SECRET_MANAGER
from eso_provider_gcp.gcpsecretmanager import GCP_SECRET_MANAGER
from eso_provider_gcp.generator import GCRAccessTokenGenerator
from eso_provider_gcp.store import CONCURRENCY, SecretManagerStore
from eso_sdk.provider import Maturity, Provider, store_kind

NAME: Final = "gcp"
VERSION: Final = "0.1.0"

SecretManager = store_kind(
    objects=(GCP_SECRET_MANAGER, CLUSTER_GCP_SECRET_MANAGER), v1_key="gcpsm", concurrency=CONCURRENCY
)(SecretManagerStore)

PROVIDER: Final = Provider(
    name=NAME,
    version=VERSION,
    maturity=Maturity.BETA,
    kinds=(SecretManager, GCRAccessTokenGenerator),
    api_name="GCP/SecretManager",
)
