"""A parent and its child as a value: everything in which one fan-out differs from another. The two pairs.

ClusterExternalSecret -> ExternalSecret
ClusterPushSecret     -> PushSecret; children of a deleted parent are left to garbage collection
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from eso_api.common import FailedNamespace
from eso_api.externalsecret import (
    CLUSTER_EXTERNAL_SECRET,
    DEFAULT_INTERVAL,
    EXTERNAL_SECRET,
    ChildMetadata,
    ChildSources,
    ClusterExternalSecretSpec,
    ClusterExternalSecretStatus,
    ExternalSecretSpec,
    SyncWindows,
)
from eso_api.pushsecret import (
    CLUSTER_PUSH_SECRET,
    PUSH_SECRET,
    ClusterPushSecretSpec,
    ClusterPushSecretStatus,
    PushSecretSpec,
)
from eso_api.references import LabelSelector
from eso_api.shapes import JsonMap
from eso_operator.controllers.fanout.snapshot import Choice
from eso_operator.sources.entries import source_names
from eso_operator.telemetry.subsystems import Subsystem
from kubebase import durations
from kubebase.meta import Condition, JsonObject, Kind, Object


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of every child of a parent.

    Labels and annotations are complete; `spec` is as the parent stores it.
    """

    labels: dict[str, str]
    annotations: dict[str, str]
    spec: JsonObject


@dataclass(frozen=True, slots=True)
class FanOut:
    """One pair of parent and child. The functions are pure and read the parent's spec; `status` builds its status."""

    parent: Kind[Any]
    child: Kind[Any]
    subsystem: Subsystem
    name_taken: str
    """The failure text for a namespace in which a foreign object has the name."""
    field_manager: str
    choice: Callable[[Any], Choice]
    name: Callable[[Any], str]
    contents: Callable[[Any], Contents]
    comparable: Callable[[JsonObject | Any], Any]
    """The spec of a child, stored or decoded, in the one form in which two that mean the same are equal."""
    status: Callable[[Any, str, Sequence[FailedNamespace], Sequence[str], Sequence[Condition]], Any]
    """Builds the status from the parent, the child's name, failed and provisioned namespaces, and the conditions."""
    component: str = "external-secrets"
    """The source of events about parents."""
    finalizer: str = ""
    """On the parent, so that it stays until its children are deleted; empty leaves that to garbage collection."""
    left_on_namespaces: str = ""
    """Prefix of the finalizers that the existing operator leaves on namespaces; the parent's name follows."""


# --- ClusterExternalSecret --------------------------------------------------------------------------------------------

FORCE_SYNC: Final = "external-secrets.io/force-sync"


class StoredExternalSecretSpec(ClusterExternalSecretSpec, frozen=True, kw_only=True):
    """The spec with its ExternalSecret as it is stored.

    Children contain the parent's fields without further defaults.
    """

    external_secret_spec: JsonMap  # type: ignore[assignment]  # the same field, not decoded


class StoredClusterExternalSecret(Object, kw_only=True):
    spec: StoredExternalSecretSpec
    status: ClusterExternalSecretStatus = msgspec.field(default_factory=ClusterExternalSecretStatus)


def external_secret_choice(parent: StoredClusterExternalSecret) -> Choice:
    spec = parent.spec
    return Choice(frozenset(spec.namespaces), selectors_in(spec.namespace_selector, spec.namespace_selectors))


def selectors_in(
    single: LabelSelector | None, several: Sequence[LabelSelector]
) -> tuple[tuple[str, LabelSelector], ...]:
    """Return all selectors with their fields."""
    numbered = [(f"spec.namespaceSelectors[{index}]", selector) for index, selector in enumerate(several)]
    return (*([] if single is None else [("spec.namespaceSelector", single)]), *numbered)


def external_secret_contents(parent: StoredClusterExternalSecret) -> Contents:
    """Return the contents of the children. The force-sync annotation is copied from the parent only."""
    metadata = parent.spec.external_secret_metadata or ChildMetadata()
    annotations = {key: text for key, text in metadata.annotations.items() if key != FORCE_SYNC}
    if FORCE_SYNC in parent.metadata.annotations:
        annotations[FORCE_SYNC] = parent.metadata.annotations[FORCE_SYNC]
    return Contents(dict(metadata.labels), annotations, parent.spec.external_secret_spec)


def comparable_external_secret(spec: JsonObject | Any) -> ExternalSecretSpec:
    """Return the decoded spec, with defaults filled in and durations normalised, for comparison.

    The existing operator writes durations in full (`1h0m0s`); a takeover must not rewrite its children.
    """
    decoded = msgspec.convert(spec, ExternalSecretSpec)
    return msgspec.structs.replace(
        decoded,
        refresh_interval=spelled_out(decoded.refresh_interval),
        sync_windows=None if decoded.sync_windows is None else _spelled_out(decoded.sync_windows),
    )


def spelled_out(interval: int | str) -> str:
    """Return a duration as Go formats it; an invalid one stays unchanged."""
    try:
        nanoseconds = interval * durations.SECOND if isinstance(interval, int) else durations.parse(interval)
    except durations.DurationError:
        return str(interval)
    return durations.render(nanoseconds)


def _spelled_out(windows: SyncWindows) -> SyncWindows:
    same = [msgspec.structs.replace(window, duration=spelled_out(window.duration)) for window in windows.windows]
    return msgspec.structs.replace(windows, windows=same)


def _external_secret_name(parent: StoredClusterExternalSecret) -> str:
    return parent.spec.external_secret_name or parent.metadata.name


def _external_secret_status(
    parent: StoredClusterExternalSecret,
    name: str,
    failed: Sequence[FailedNamespace],
    provisioned: Sequence[str],
    conditions: Sequence[Condition],
) -> ClusterExternalSecretStatus:
    sources = source_names(msgspec.convert(parent.spec.external_secret_spec, ExternalSecretSpec))
    return ClusterExternalSecretStatus(
        external_secret_name=name,
        failed_namespaces=list(failed),
        provisioned_namespaces=list(provisioned),
        conditions=list(conditions),
        external_secret_spec=ChildSources(secret_store_ref=sources) if sources is not None and sources.name else None,
        refresh_time=DEFAULT_INTERVAL if parent.spec.refresh_time == DEFAULT_INTERVAL else "",
    )


CLUSTER_EXTERNAL_SECRETS: Final = FanOut(
    parent=Kind(CLUSTER_EXTERNAL_SECRET.resource(), StoredClusterExternalSecret),
    child=EXTERNAL_SECRET.kind(),
    subsystem=Subsystem.CLUSTER_EXTERNAL_SECRET,
    name_taken="external secret already exists in namespace",
    field_manager="clusterexternalsecrets.external-secrets.io",
    choice=external_secret_choice,
    name=_external_secret_name,
    contents=external_secret_contents,
    comparable=comparable_external_secret,
    status=_external_secret_status,
    finalizer="externalsecrets.external-secrets.io/clusterexternalsecret-cleanup",
    left_on_namespaces="externalsecrets.external-secrets.io/ces-",
)


# --- ClusterPushSecret ------------------------------------------------------------------------------------------------


class StoredPushSecretSpec(ClusterPushSecretSpec, frozen=True, kw_only=True):
    """The spec with its PushSecret as it is stored."""

    push_secret_spec: JsonMap  # type: ignore[assignment]  # the same field, not decoded


class StoredClusterPushSecret(Object, kw_only=True):
    spec: StoredPushSecretSpec
    status: ClusterPushSecretStatus = msgspec.field(default_factory=ClusterPushSecretStatus)


def push_secret_contents(parent: StoredClusterPushSecret) -> Contents:
    metadata = parent.spec.push_secret_metadata or ChildMetadata()
    return Contents(dict(metadata.labels), dict(metadata.annotations), parent.spec.push_secret_spec)


def comparable_push_secret(spec: JsonObject | Any) -> PushSecretSpec:
    """Return the decoded spec, with defaults filled in and the interval normalised, for comparison."""
    decoded = msgspec.convert(spec, PushSecretSpec)
    return msgspec.structs.replace(decoded, refresh_interval=spelled_out(decoded.refresh_interval))


def _push_secret_choice(parent: StoredClusterPushSecret) -> Choice:
    return Choice(selectors=selectors_in(None, parent.spec.namespace_selectors))


def _push_secret_name(parent: StoredClusterPushSecret) -> str:
    return parent.spec.push_secret_name or parent.metadata.name


def _push_secret_status(
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
    name_taken="push secret already exists in namespace",
    field_manager="clusterpushsecrets.external-secrets.io",
    choice=_push_secret_choice,
    name=_push_secret_name,
    contents=push_secret_contents,
    comparable=comparable_push_secret,
    status=_push_secret_status,
    component="external-secrets-controller",
)

Parent = StoredClusterExternalSecret | StoredClusterPushSecret
