"""The first start of a cluster: store the built-in roles and bindings that are missing."""

from __future__ import annotations

from localkube.access import roles
from localkube.access.rbac import GROUP, MASTERS, aggregated, rule_json
from localkube.cluster import Cluster
from localkube.errors import StatusError
from localkube.model import User, WriteOptions

_SERVER = User("system:apiserver", (MASTERS,))


async def create_default_roles(cluster: Cluster) -> None:
    """Create the missing objects; existing ones, changed by a user or not, stay untouched."""
    built_in = roles.cluster_roles()
    rules = aggregated({role["metadata"]["name"]: role for role in built_in})
    for role in built_in:
        role["rules"] = [rule_json(rule) for rule in rules[role["metadata"]["name"]]]
    for plural, objects in (("clusterroles", built_in), ("clusterrolebindings", roles.cluster_role_bindings())):
        kind = cluster.catalog.find(GROUP, "v1", plural)
        if kind is None:
            raise LookupError(f"{plural}.{GROUP} is not served")
        for obj in objects:
            try:
                await cluster.create(kind, "", obj, WriteOptions(_SERVER, field_manager="kube-apiserver"))
            except StatusError as error:
                if error.reason != "AlreadyExists":
                    raise
