"""The policy in force: compiled from the stored RBAC objects whenever one of them has changed."""

from __future__ import annotations

from typing import Final

from kubebase.meta import JsonObject
from localkube.access.rbac import GROUP, Policy, PolicyRule, aggregated, rules_of
from localkube.storage.records import Change, Key
from localkube.storage.store import ObjectStorage

_RESOURCES: Final = tuple(
    f"{kind}.{GROUP}" for kind in ("clusterroles", "roles", "clusterrolebindings", "rolebindings")
)


class Policies:
    def __init__(self, store: ObjectStorage) -> None:
        self._store = store
        self._policy: Policy | None = None
        store.listen(self._on_change)

    def current(self) -> Policy:
        if self._policy is None:
            self._policy = Policy.compile(*(self._objects(resource) for resource in _RESOURCES))
        return self._policy

    def rules_of_role(self, reference: JsonObject, namespace: str) -> tuple[PolicyRule, ...]:
        """Return the rules of the role that a binding names; empty while the role does not exist."""
        name = str(reference.get("name", ""))
        if reference.get("kind") == "ClusterRole":
            roles = {role["metadata"]["name"]: role for role in self._objects(_RESOURCES[0])}
            return aggregated(roles).get(name, ())
        record = self._store.get(Key(_RESOURCES[1], namespace, name))
        return rules_of(record.decode()) if record else ()

    def aggregates(self, name: str) -> bool:
        """Return whether a ClusterRole of that name exists and aggregates others."""
        record = self._store.get(Key(_RESOURCES[0], "", name))
        return record is not None and bool(record.decode().get("aggregationRule"))

    def _objects(self, resource: str) -> list[JsonObject]:
        return [record.decode() for _, record in self._store.scan(resource)]

    def _on_change(self, change: Change) -> None:
        if change.key.resource in _RESOURCES:
            self._policy = None
