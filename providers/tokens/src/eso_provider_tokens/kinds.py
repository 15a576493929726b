"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from __future__ import annotations

from typing import Final

from eso_api.generators.tokens import (
    BeyondtrustWorkloadCredentialsDynamicSecretSpec,
    CloudsmithAccessTokenSpec,
    GrafanaSpec,
    QuayAccessTokenSpec,
)
from eso_api.v2.owned import generator_config

QUAY: Final = generator_config(
    QuayAccessTokenSpec,
    module=__name__,
    kind="QuayAccessToken",
    plural="quayaccesstokens",
    about="Logins of a Quay robot account",
)
CLOUDSMITH: Final = generator_config(
    CloudsmithAccessTokenSpec,
    module=__name__,
    kind="CloudsmithAccessToken",
    plural="cloudsmithaccesstokens",
    about="Logins for Cloudsmith registries",
)
GRAFANA: Final = generator_config(
    GrafanaSpec,
    module=__name__,
    kind="Grafana",
    plural="grafanas",
    about="Tokens of Grafana service accounts",
)
BEYONDTRUST: Final = generator_config(
    BeyondtrustWorkloadCredentialsDynamicSecretSpec,
    module=__name__,
    kind="BeyondtrustWorkloadCredentialsDynamicSecret",
    plural="beyondtrustworkloadcredentialsdynamicsecrets",
    about="Short-lived credentials of BeyondTrust",
)

KINDS: Final = (QUAY, CLOUDSMITH, GRAFANA, BEYONDTRUST)
