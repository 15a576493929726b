"""Objects of both generations for tests of `eso migrate`: a test shows only the fields it is about."""

from __future__ import annotations

from functools import cache
from typing import Any

from eso_tools.migrate.bridges import Bridges, installed_bridges
from eso_tools.migrate.inventory import Inventory
from eso_tools.migrate.plan import MigrationPlan, plan_forth
from kubebase.meta import JsonObject

V1, V2 = "external-secrets.io/v1", "secretstore.external-secrets.io/v2alpha1"
GENERATORS = "generators.external-secrets.io/v1alpha1"
TO_S = {"apiVersion": V2, "kind": "SecretStore", "name": "s"}
TO_C = {"apiVersion": V2, "kind": "ClusterSecretStore", "name": "c"}
C = {"kind": "ClusterSecretStore", "name": "c"}
FAKE: JsonObject = {"fake": {"data": []}}


def _fail(problem: str) -> None:
    raise AssertionError(problem)


@cache
def bridges() -> Bridges:
    return installed_bridges(_fail)


def obj(api_version: str, kind: str, name: str, namespace: str = "", **fields: Any) -> JsonObject:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **fields.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def store(name: str = "s", namespace: str = "a", provider: Any = None, **fields: Any) -> JsonObject:
    kind = "SecretStore" if namespace else "ClusterSecretStore"
    spec = {"provider": FAKE if provider is None else provider, **fields.pop("spec", {})}
    return obj(V1, kind, name, namespace, spec=spec, **fields)


def reader(name: str = "es", namespace: str = "a", **spec: Any) -> JsonObject:
    return obj(V1, "ExternalSecret", name, namespace, spec={"secretStoreRef": {"name": "s"}, **spec})


def pusher(*refs: JsonObject, namespace: str = "a", **spec: Any) -> JsonObject:
    selector = {"selector": {"secret": {"name": "x"}}}
    return obj(
        "external-secrets.io/v1alpha1",
        "PushSecret",
        "ps",
        namespace,
        spec={"secretStoreRefs": list(refs), **selector, **spec},
    )


def password(name: str = "g", namespace: str = "a", kind: str = "Password", **spec: Any) -> JsonObject:
    return obj(GENERATORS, kind, name, namespace, spec=spec)


def from_generator(name: str = "g", kind: str = "Password", **spec: Any) -> JsonObject:
    entry = {"sourceRef": {"generatorRef": {"apiVersion": GENERATORS, "kind": kind, "name": name}}}
    return obj(V1, "ExternalSecret", f"from-{kind.lower()}", "a", spec={"dataFrom": [entry], **spec})


def forth(*objects: JsonObject, regenerate: bool = False) -> MigrationPlan:
    return plan_forth(Inventory(objects), bridges(), regenerate=regenerate)


def why(plan: MigrationPlan) -> str:
    return "\n".join(map(str, plan.left))


def refs(plan: MigrationPlan) -> dict[str, Any]:
    return {str(site): ref for switch in plan.switches for site, ref in switch.changes}


def template(kind: str, field: str, user: JsonObject) -> JsonObject:
    return obj(V1, kind, "fan-out", spec={field: user["spec"]})
