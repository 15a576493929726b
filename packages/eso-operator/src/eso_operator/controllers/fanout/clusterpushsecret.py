"""The pair ClusterPushSecret, PushSecret. Children of a deleted parent are left to garbage collection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from eso_api.common import FailedNamespace
from eso_api.externalsecret import ChildMetadata
from eso_api.pushsecret import (
    CLUSTER_PUSH_SECRET,
    PUSH_SECRET,
    ClusterPushSecretSpec,
    ClusterPushSecretStatus,
    PushSecretSpec,
)
from eso_api.shapes import JsonMap
from eso_operator.controllers.fanout.clusterexternalsecret import selectors_in, spelled_out
from eso_operator.controllers.fanout.kinds import Contents, FanOut, Texts
from eso_operator.controllers.fanout.snapshot import Choice
from eso_operator.telemetry.subsystems import Subsystem
from kubebase.meta import Condition, JsonObject, Kind, Object


class StoredSpec(ClusterPushSecretSpec, frozen=True, kw_only=True):
    """The spec with its PushSecret as it is stored."""

    push_secret_spec: JsonMap  # type: ignore[assignment]  # the same field, not decoded


class StoredClusterPushSecret(Object, kw_only=True):
    spec: StoredSpec
    status: ClusterPushSecretStatus = msgspec.field(default_factory=ClusterPushSecretStatus)


def contents_of(parent: StoredClusterPushSecret) -> Contents:
    metadata = parent.spec.push_secret_metadata or ChildMetadata()
    return Contents(dict(metadata.labels), dict(metadata.annotations), parent.spec.push_secret_spec)


def comparable(spec: JsonObject | Any) -> PushSecretSpec:
    """Return the decoded spec, with defaults filled in and the interval normalised, for comparison."""
    decoded = msgspec.convert(spec, PushSecretSpec)
    return msgspec.structs.replace(decoded, refresh_interval=spelled_out(decoded.refresh_interval))


def _choice_of(parent: StoredClusterPushSecret) -> Choice:
    return Choice(selectors=selectors_in(None, parent.spec.namespace_selectors))


def _name_of(parent: StoredClusterPushSecret) -> str:
    return parent.spec.push_secret_name or parent.metadata.name


def _status(
    _: StoredClusterPushSecret,
    name: str,
    failed: Sequence[FailedNamespace],
    provisioned: Sequence[str],
    conditions: Sequence[Condition],
) -> ClusterPushSecretStatus:
    return ClusterPushSecretStatus(
        push_secret_name=name,
        failed_namespaces=list(failed),
        provisioned_namespaces=list(provisioned),
        conditions=list(conditions),
    )


CLUSTER_PUSH_SECRETS: Final = FanOut(
    parent=Kind(CLUSTER_PUSH_SECRET.resource(), StoredClusterPushSecret),
    child=PUSH_SECRET.kind(),
    subsystem=Subsystem.CLUSTER_PUSH_SECRET,
    texts=Texts(taken="push secret already exists in namespace"),
    field_manager="clusterpushsecrets.external-secrets.io",
    choice=_choice_of,
    name=_name_of,
    contents=contents_of,
    comparable=comparable,
    status=_status,
    component="external-secrets-controller",
)
