"""Every kind of the API: those of the core, and those of installed providers.

A provider distribution lists its kinds under the entry point group `eso.kinds`; each entry point names a tuple of
`CustomKind`. The core imports no provider; it finds installed ones through these entry points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from eso_api.crd import CustomKind
from eso_api.externalsecret import CLUSTER_EXTERNAL_SECRET, EXTERNAL_SECRET
from eso_api.generators.aws import ECR_AUTHORIZATION_TOKEN, STS_SESSION_TOKEN
from eso_api.generators.azure import ACR_ACCESS_TOKEN
from eso_api.generators.clustergenerator import CLUSTER_GENERATOR
from eso_api.generators.gcp import GCR_ACCESS_TOKEN
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.generators.github import GITHUB_ACCESS_TOKEN
from eso_api.generators.gitlab import GITLAB_DEPLOY_TOKEN
from eso_api.generators.local import FAKE, MFA_KIND, PASSWORD, SSH_KEY, UUID_KIND
from eso_api.generators.tokens import (
    BEYONDTRUST_WORKLOAD_CREDENTIALS_DYNAMIC_SECRET,
    CLOUDSMITH_ACCESS_TOKEN,
    GRAFANA,
    QUAY_ACCESS_TOKEN,
)
from eso_api.generators.vault import VAULT_DYNAMIC_SECRET
from eso_api.generators.webhook import WEBHOOK
from eso_api.pushsecret import CLUSTER_PUSH_SECRET, PUSH_SECRET
from eso_api.secretstore import CLUSTER_SECRET_STORE, SECRET_STORE
from eso_api.v2.generator import CLUSTER_GENERATOR_V2, GENERATOR
from eso_api.v2.provider import CLUSTER_PROVIDER, PROVIDER
from eso_api.v2.providerclass import CLUSTER_PROVIDER_CLASS, PROVIDER_CLASS
from eso_api.v2.secretstore import CLUSTER_SECRET_STORE_V2, SECRET_STORE_V2

AnyKind = CustomKind[Any]

ENTRY_POINTS = "eso.kinds"

GENERATOR_KINDS: tuple[AnyKind, ...] = (
    ACR_ACCESS_TOKEN,
    BEYONDTRUST_WORKLOAD_CREDENTIALS_DYNAMIC_SECRET,
    CLOUDSMITH_ACCESS_TOKEN,
    ECR_AUTHORIZATION_TOKEN,
    FAKE,
    GCR_ACCESS_TOKEN,
    GITHUB_ACCESS_TOKEN,
    GITLAB_DEPLOY_TOKEN,
    GRAFANA,
    MFA_KIND,
    PASSWORD,
    QUAY_ACCESS_TOKEN,
    SSH_KEY,
    STS_SESSION_TOKEN,
    UUID_KIND,
    VAULT_DYNAMIC_SECRET,
    WEBHOOK,
)

V2_KINDS: tuple[AnyKind, ...] = (
    SECRET_STORE_V2,
    CLUSTER_SECRET_STORE_V2,
    GENERATOR,
    CLUSTER_GENERATOR_V2,
    PROVIDER,
    CLUSTER_PROVIDER,
    PROVIDER_CLASS,
    CLUSTER_PROVIDER_CLASS,
)

KINDS: tuple[AnyKind, ...] = (
    EXTERNAL_SECRET,
    CLUSTER_EXTERNAL_SECRET,
    PUSH_SECRET,
    CLUSTER_PUSH_SECRET,
    SECRET_STORE,
    CLUSTER_SECRET_STORE,
    *GENERATOR_KINDS,
    CLUSTER_GENERATOR,
    GENERATOR_STATE,
    *V2_KINDS,
)


class KindClashError(ValueError):
    """Two distributions define the same CRD, so that one would replace the other in the cluster."""


def installed_kinds(broken: Callable[[str, Exception], None] | None = None) -> tuple[AnyKind, ...]:
    """Return the kinds of the core and of every installed provider, by CRD name; `provider_kinds` explains `broken`."""
    kinds = kinds_by_name({}, KINDS)
    for added in provider_kinds(broken).values():
        kinds = kinds_by_name(kinds, added)
    return tuple(kinds[name] for name in sorted(kinds))


def provider_kinds(broken: Callable[[str, Exception], None] | None = None) -> dict[str, tuple[AnyKind, ...]]:
    """Return the kinds that each installed provider defines, by its name; `KINDS` has those of the core.

    The CRDs of the core are in every cluster, those of a provider only in clusters that use the provider.

    A provider that cannot be imported, or whose kinds clash with others, is reported to `broken` and left out. Without
    `broken`, its error is raised.
    """
    from importlib.metadata import entry_points  # most processes never look for installed providers

    known_kinds = kinds_by_name({}, KINDS)
    found: dict[str, tuple[AnyKind, ...]] = {}
    for entry_point in sorted(entry_points(group=ENTRY_POINTS), key=lambda each: each.name):
        try:
            added = entry_point.load()
            known_kinds = kinds_by_name(known_kinds, added)
        except Exception as problem:  # the provider's own code, which may raise anything
            if broken is None:
                raise
            broken(entry_point.name, problem)
        else:
            own = tuple(kind for kind in added if kind not in KINDS)
            found[entry_point.name] = (*found.get(entry_point.name, ()), *own)
    return found


def kinds_by_name(known_kinds: Mapping[str, AnyKind], added: Iterable[AnyKind]) -> dict[str, AnyKind]:
    """Add kinds to a map from CRD name to kind. Raise KindClashError if one is defined twice."""
    by_name = dict(known_kinds)
    for kind in added:
        known = by_name.setdefault(kind.crd_name, kind)
        if known is not kind:
            raise KindClashError(
                f"{kind.crd_name} is defined by {known.type.__module__} and by {kind.type.__module__};"
                " uninstall one of the two providers"
            )
    return by_name
