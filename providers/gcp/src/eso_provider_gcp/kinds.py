"""The configuration of a store, and the kinds this provider owns; found through the entry point group `eso.kinds`."""

from __future__ import annotations

from typing import Annotated, Final

from eso_api.generators.gcp import GCRAccessTokenSpec
from eso_api.shapes import Fragment, shaped
from eso_api.stores.gcp import GcpProvider
from eso_api.v2.owned import generator_config, store_kinds

SUBSCRIPTION: Final = r"^(projects/[a-z0-9.:-]+/subscriptions/)?[A-Za-z][A-Za-z0-9._~+%-]{2,254}$"


class GcpChanges(Fragment, frozen=True, kw_only=True):
    """Settings of the change detection."""

    subscription: Annotated[str, shaped(pattern=SUBSCRIPTION)]
    """Pub/Sub subscription to the topics of the secrets: a name in the project, or projects/P/subscriptions/NAME."""


class SecretManagerConfig(GcpProvider, frozen=True, kw_only=True):
    """Google Cloud Secret Manager, and where it announces changes."""

    changes: GcpChanges | None = None
    """Settings of the change detection; absent means none: the service has no cheap check of many secrets."""


STORES: Final = store_kinds(
    SecretManagerConfig,
    module=__name__,
    kind="GCPSecretManager",
    plural="gcpsecretmanagers",
    cluster="ClusterGCPSecretManager",
    about="Google Secret Manager",
    spec="The fields of `spec.provider.gcpsm` of a v1 store, where changes are announced, and who may use them.",
)
ACCESS_TOKEN: Final = generator_config(
    GCRAccessTokenSpec,
    module=__name__,
    kind="GCRAccessToken",
    plural="gcraccesstokens",
    about="Logins for Google's container registries",
)

KINDS: Final = (*STORES, ACCESS_TOKEN)
