"""The controllers, by the first word of their metrics."""

from __future__ import annotations

from enum import StrEnum


class Subsystem(StrEnum):
    """One for each reconciled kind."""

    EXTERNAL_SECRET = "externalsecret"  # noqa: S105 - a kind, not a credential
    PUSH_SECRET = "pushsecret"  # noqa: S105 - a kind, not a credential
    SECRET_STORE = "secretstore"  # noqa: S105 - a kind, not a credential
    CLUSTER_SECRET_STORE = "clustersecretstore"  # noqa: S105 - a kind, not a credential
    CLUSTER_EXTERNAL_SECRET = "clusterexternalsecret"  # noqa: S105 - a kind, not a credential
    CLUSTER_PUSH_SECRET = "clusterpushsecret"  # noqa: S105 - a kind, not a credential
    # Kinds the existing operator does not have. A v1 and a v2 store may share a name, so they never share a metric.
    SECRET_STORE_V2 = "secretstore_v2"  # noqa: S105 - a kind, not a credential
    CLUSTER_SECRET_STORE_V2 = "clustersecretstore_v2"  # noqa: S105 - a kind, not a credential
    PROVIDER = "provider"
    CLUSTER_PROVIDER = "clusterprovider"
    GENERATOR_STATE = "generatorstate"
    GENERATOR = "generator"
    CLUSTER_GENERATOR = "clustergenerator"
    PROVIDER_CLASS = "providerclass"
    CLUSTER_PROVIDER_CLASS = "clusterproviderclass"
