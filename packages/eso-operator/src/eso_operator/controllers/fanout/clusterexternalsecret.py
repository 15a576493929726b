"""The pair ClusterExternalSecret, ExternalSecret."""

from __future__ import annotations

from collections.abc import Sequence
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
from eso_api.references import LabelSelector
from eso_api.shapes import JsonMap
from eso_operator.controllers.fanout.kinds import Contents, FanOut, Texts
from eso_operator.controllers.fanout.snapshot import Choice
from eso_operator.sources.entries import source_names
from eso_operator.telemetry.subsystems import Subsystem
from kubebase import durations
from kubebase.meta import Condition, JsonObject, Kind, Object

FORCE_SYNC: Final = "external-secrets.io/force-sync"


class StoredSpec(ClusterExternalSecretSpec, frozen=True, kw_only=True):
    """The spec with its ExternalSecret as it is stored.

    Children contain the parent's fields without further defaults.
    """

    external_secret_spec: JsonMap  # type: ignore[assignment]  # the same field, not decoded


class StoredClusterExternalSecret(Object, kw_only=True):
    spec: StoredSpec
    status: ClusterExternalSecretStatus = msgspec.field(default_factory=ClusterExternalSecretStatus)


def choice_of(parent: StoredClusterExternalSecret) -> Choice:
    spec = parent.spec
    return Choice(frozenset(spec.namespaces), selectors_in(spec.namespace_selector, spec.namespace_selectors))


def selectors_in(
    single: LabelSelector | None, several: Sequence[LabelSelector]
) -> tuple[tuple[str, LabelSelector], ...]:
    """Return all selectors with their fields."""
    numbered = [(f"spec.namespaceSelectors[{index}]", selector) for index, selector in enumerate(several)]
    return (*([] if single is None else [("spec.namespaceSelector", single)]), *numbered)


def contents_of(parent: StoredClusterExternalSecret) -> Contents:
    """Return the contents of the children. The force-sync annotation is copied from the parent only."""
    metadata = parent.spec.external_secret_metadata or ChildMetadata()
    annotations = {key: text for key, text in metadata.annotations.items() if key != FORCE_SYNC}
    if FORCE_SYNC in parent.metadata.annotations:
        annotations[FORCE_SYNC] = parent.metadata.annotations[FORCE_SYNC]
    return Contents(dict(metadata.labels), annotations, parent.spec.external_secret_spec)


def comparable(spec: JsonObject | Any) -> ExternalSecretSpec:
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


def _name_of(parent: StoredClusterExternalSecret) -> str:
    return parent.spec.external_secret_name or parent.metadata.name


def _status(
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
    texts=Texts(taken="external secret already exists in namespace"),
    field_manager="clusterexternalsecrets.external-secrets.io",
    choice=choice_of,
    name=_name_of,
    contents=contents_of,
    comparable=comparable,
    status=_status,
    finalizer="externalsecrets.external-secrets.io/clusterexternalsecret-cleanup",
    left_on_namespaces="externalsecrets.external-secrets.io/ces-",
)
