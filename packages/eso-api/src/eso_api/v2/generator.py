"""Generator v2: values made by a provider process, for the namespace it lives in."""

from __future__ import annotations

import msgspec

from eso_api.crd import CATEGORY, GENERATOR_CATEGORY, CustomKind, age_column, ready_reason, ready_status
from eso_api.v2.connection import ProviderConfig
from eso_api.v2.policy import Policy, ProviderStatus
from kubebase.meta import Object

GENERATOR_GROUP = "generator.external-secrets.io"
GENERATOR_COLUMNS = (age_column("AGE"), ready_reason("Status"), ready_status("Ready"))
GENERATOR_CATEGORIES = (CATEGORY, GENERATOR_CATEGORY)


class GeneratorSpec(Policy, frozen=True, kw_only=True):
    """Which provider, and how to reach it."""

    provider_config: ProviderConfig
    """How the provider is reached, and its configuration."""


class Generator(Object, kw_only=True):
    """Values made by a provider process, for the namespace it lives in."""

    spec: GeneratorSpec
    status: ProviderStatus = msgspec.field(default_factory=ProviderStatus)


GENERATOR = CustomKind(
    Generator,
    group=GENERATOR_GROUP,
    plural="generators",
    versions=("v2alpha1",),
    short_names=("genv2",),
    categories=GENERATOR_CATEGORIES,
    columns=GENERATOR_COLUMNS,
)
