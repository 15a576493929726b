"""The target of a request: one object, or a subresource of it, in one served version."""

from __future__ import annotations

from dataclasses import dataclass

from kubebase.meta import JsonObject, Resource
from localkube.errors import bad_request
from localkube.model import ServedKind
from localkube.storage import Key


@dataclass(frozen=True, slots=True)
class Target:
    kind: ServedKind
    namespace: str
    name: str
    subresource: str = ""

    @property
    def resource(self) -> Resource:
        return self.kind.resource

    @property
    def key(self) -> Key:
        return Key(self.kind.storage_key, self.namespace if self.resource.namespaced else "", self.name)

    @property
    def namespace_key(self) -> Key:
        return Key("namespaces", "", self.namespace)

    def named(self, name: str) -> Target:
        return Target(self.kind, self.namespace, name, self.subresource)

    def set_namespace(self, metadata: JsonObject) -> None:
        """Check that the body names the namespace of the URL, or none."""
        given = metadata.get("namespace") or ""
        if not self.resource.namespaced:
            if given:
                metadata.pop("namespace")
            return
        if given and given != self.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        metadata["namespace"] = self.namespace

    def check_name(self, metadata: JsonObject) -> None:
        """Check that the body has the name of the URL."""
        given = metadata.get("name") or ""
        if not given:
            why = "was undeterminable: name must be provided"
            raise bad_request(f"the name of the object ({self.name} based on URL) {why}")
        if given != self.name:
            raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({self.name})")
