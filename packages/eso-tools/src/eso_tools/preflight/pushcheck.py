"""Which PushSecrets choose a namespace that their Kubernetes store does not allow. Pure.

The operator in Go writes wherever the user of the store may. Here a ClusterSecretStore names the namespaces that a
PushSecret may choose (`allowedRemoteNamespaces`). It is a warning, because the CRDs of the operator in Go have no such
field to set before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from eso_api.stores.kubernetes import ANY_NAMESPACE
from eso_tools.preflight.findings import Detail, Finding, Findings, Level, counted
from eso_tools.preflight.snapshot import Snapshot, Stored

_MARK: Final = "reconcile.external-secrets.io/managed-by=external-secrets"


class Choice(NamedTuple):
    """A namespace that one entry of a PushSecret chooses."""

    field: str
    namespace: str
    stores: tuple[Mapping[str, Any], ...]
    """References to the stores that the entry is pushed to."""


def chosen_namespaces(snapshot: Snapshot) -> Findings:
    """Report the namespaces that must be allowed for pushes to work as they do with the operator in Go."""
    choices = [(each, choice) for each in snapshot.objects for choice in _choices(each)]
    for store in snapshot.objects:
        provider = _map(_map(store.obj, "spec"), "provider")
        if store.custom.name != "ClusterSecretStore" or "kubernetes" not in provider:
            continue
        block = _map(provider, "kubernetes")
        allowed = {block.get("remoteNamespace") or "default", *_list(block, "allowedRemoteNamespaces")}
        refused = [
            (stored, choice)
            for stored, choice in choices
            if choice.namespace not in allowed and any(_names(reference, store) for reference in choice.stores)
        ]
        if not refused or ANY_NAMESPACE in allowed:
            continue
        namespaces = ", ".join(sorted({choice.namespace for _, choice in refused}))
        yield Finding(
            Level.WARNING,
            f"{counted(len(refused), 'entry', 'entries')} of PushSecrets would be refused: {store} does not allow the"
            " namespaces that they write to",
            tuple(Detail(str(stored), choice.field, choice.namespace) for stored, choice in refused),
            f"with the CRDs of this operator, set spec.provider.kubernetes.allowedRemoteNamespaces=[{namespaces}] in"
            f" {store} if PushSecrets may write there, and hand over each Secret that was pushed there: kubectl label"
            f" secret NAME -n NAMESPACE {_MARK}",
        )


def _choices(stored: Stored) -> Iterator[Choice]:
    spec, place = _map(stored.obj, "spec"), "spec"
    if stored.custom.name == "ClusterPushSecret":
        spec, place = _map(spec, "pushSecretSpec"), "spec.pushSecretSpec"
    elif stored.custom.name != "PushSecret":
        return
    for part in ("data", "dataTo"):
        for at, entry in enumerate(_list(spec, part)):
            namespace = _map(_map(entry, "metadata"), "spec").get("remoteNamespace")
            if isinstance(namespace, str) and namespace:
                references = [_map(entry, "storeRef")] if part == "dataTo" else _list(spec, "secretStoreRefs")
                field = f"{place}.{part}[{at}].metadata.spec.remoteNamespace"
                yield Choice(field, namespace, tuple(each for each in references if isinstance(each, Mapping)))


def _names(reference: Mapping[str, Any], store: Stored) -> bool:
    """Return whether a reference names the store; one by labels may, so it counts."""
    if reference.get("kind") != "ClusterSecretStore":
        return False
    return bool(reference.get("labelSelector")) or reference.get("name") == store.key.name


def _map(block: object, name: str) -> Mapping[str, Any]:
    found = block.get(name) if isinstance(block, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _list(block: Mapping[str, Any], name: str) -> list[Any]:
    found = block.get(name)
    return found if isinstance(found, list) else []
