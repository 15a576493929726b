"""A migrated object resolves to the same provider, configuration and credentials as its v1 original. Pure.

Two tables: every reference that the v1 blocks and generators of installed providers can contain, and every v1 store and
generator in the examples and pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from eso_api.generators.clustergenerator import SPEC_FIELDS
from eso_api.references import GeneratorRef, StoreRef
from eso_api.values import SecretBytes
from eso_operator.stores.credentials import bind
from eso_operator.stores.resolve import resolve
from eso_operator.stores.resolved import BoundStore, ResolutionError, same_backend
from eso_sdk.installed import installed, load
from eso_testkit.operator.clusters import (
    ANYTHING,
    CORE,
    SETTINGS,
    NotedReads,
    caller,
    cluster,
    namespace_object,
    provider_service,
    ready,
)
from eso_testkit.tools.migrations import bridges
from eso_tools.migrate.bridges import Bridge
from eso_tools.migrate.convert import Converted, convert_generator, convert_store
from eso_tools.migrate.inventory import V1_GENERATORS, V1_STORES, id_of
from eso_wire.values import CredentialKind, Handshake
from eso_wire.versions import CURRENT, SUPPORTED
from kubebase.meta import JsonObject

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^```ya?ml\n(.*?)^```", re.MULTILINE | re.DOTALL)
HOME, OTHER = "team-a", "team-b"


class Handshakes(dict[str, Handshake | str]):
    """Every installed provider answers at the address of its Service."""

    def __missing__(self, key: str) -> Handshake:
        found = re.search(r"provider-([a-z]+)\.", key)
        assert found is not None
        return handshake(found[1])

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if default is None else default


@cache
def handshake(name: str) -> Handshake:
    return Handshake(CURRENT, SUPPORTED, name, "1", "i", load(name).kind_infos)


@cache
def services() -> tuple[JsonObject, ...]:
    return tuple(service(name) for name in installed())


def service(name: str) -> JsonObject:
    infos = handshake(name).kinds
    keys = ",".join(sorted({info.v1_provider_key for info in infos if info.v1_provider_key}))
    kinds = ",".join(str(info.kind) for info in infos)
    return provider_service(f"provider-{name}", CORE, kinds=kinds, v1_keys=keys)


async def bound(obj: JsonObject, *around: JsonObject, namespace: str) -> BoundStore | str:
    """Bind what a reference to the object resolves to; the reason if it does not."""
    namespaces = [namespace_object(name, env="production", team="blue") for name in (HOME, OTHER, "platform")]
    view = cluster(obj, *around, *services(), *namespaces, handshakes=Handshakes())
    one = id_of(obj)
    ref: StoreRef | GeneratorRef = StoreRef(api_version=obj["apiVersion"], kind=one.kind, name=one.name)
    if "generator" in one.group:
        ref = GeneratorRef(api_version=obj["apiVersion"], kind=one.kind, name=one.name)
    settings = replace(SETTINGS, controller_class=controller(obj) or SETTINGS.controller_class)
    try:
        found = resolve(ref, caller(namespace), need=ANYTHING, view=view, settings=settings)
        return await bind(found, NotedReads())
    except ResolutionError as error:
        return error.reason.value


def controller(obj: JsonObject) -> str:
    spec = obj.get("spec") or {}
    embedded: JsonObject = next(iter((spec.get("generator") or {}).values()), {})
    return str(spec.get("controller") or embedded.get("controller") or "")


def served(obj: JsonObject) -> JsonObject:
    """The object as an API server has it."""
    metadata = {**obj["metadata"], "uid": f"uid-{obj['apiVersion']}-{obj['kind']}", "generation": 1}
    status = {"status": ready()} if obj["apiVersion"].startswith("external-secrets.io/") else {}
    return {**obj, "metadata": metadata, **status}


def converted(obj: JsonObject) -> Converted:
    generator = any((kind.group, kind.name) == id_of(obj)[:2] for kind in V1_GENERATORS)
    return convert_generator(obj, bridges()) if generator else convert_store(obj, bridges())


def facts(found: BoundStore | str) -> Any:
    """Everything that a call depends on; nothing that merely names the object."""
    if isinstance(found, str):
        return found
    resolved = found.resolved
    policy = replace(resolved.policy, gated=False)
    credentials = [(each.pointer, _revealed(each.value)) for each in found.config.credentials]
    return (
        resolved.connection.key,
        resolved.config.kind,
        resolved.config.delivery,
        resolved.auth_namespace,
        resolved.caller_namespace,
        resolved.pinned,
        policy,
        resolved.operations,
        sorted(credentials, key=lambda each: each[0]),
        set(found.sources),
    )


def _revealed(value: Any) -> Any:
    match value:
        case Mapping():
            return {key: each.reveal() for key, each in value.items()}
        case SecretBytes():
            return value.reveal()
        case _:
            return replace(value, token=value.token.reveal())


async def check(obj: JsonObject) -> None:
    """Compare both generations for a user at home and, if the object is cluster-scoped, for one elsewhere."""
    home = obj["metadata"].get("namespace", "")
    made = converted(obj)
    for namespace in [home] if home else [HOME, OTHER]:
        before = await bound(served(obj), namespace=namespace)
        after = await bound(*map(served, reversed(made.objects)), namespace=namespace)

        assert _as_v2(facts(after)) == _as_v2(facts(before))
        if isinstance(before, BoundStore) and isinstance(after, BoundStore) and "generator" not in id_of(obj).group:
            assert same_backend(before, after)


def _as_v2(found: Any) -> Any:
    """Compare a v1alpha1 generator under the name of the kind that took it over."""
    if isinstance(found, tuple) and found[1].group == "generators.external-secrets.io":
        kind = found[1]._replace(group="provider.generator.external-secrets.io", version="v2alpha1")
        return (found[0], kind, *found[2:])
    return found


# --- every reference of every form ------------------------------------------------------------------------------------


def referring(pattern: str, reference: JsonObject) -> JsonObject:
    """A configuration with one reference at this place."""
    value: Any = reference
    for step in reversed(pattern.split("/")[1:]):
        value = [value] if step == "*" else {step: value}
    return dict(value)


def references() -> Iterator[tuple[str, Bridge, JsonObject]]:
    """Every place of a reference in every kind, with and without a namespace."""
    for bridge in every_bridge():
        for path in bridge.credentials:
            named = {"name": "cred", "key": "key"}
            if path.kind is CredentialKind.CA_PROVIDER:
                named["type"] = "Secret"
            if path.kind is CredentialKind.OBJECT_KEY:
                named["kind"] = "Secret"
            if path.kind in (CredentialKind.SERVICE_ACCOUNT, CredentialKind.WHOLE_SECRET):
                named.pop("key")
            for namespace in ("", "platform"):
                ref = {**named, **({"namespace": namespace} if namespace else {})}
                yield f"{path.pattern} {namespace or 'without a namespace'}", bridge, referring(path.pattern, ref)
        yield "without a reference", bridge, {}


def every_bridge() -> Iterator[Bridge]:
    for name in installed():
        provider = load(name)
        for info in provider.kind_infos:
            kind = provider.served[info.kind]
            is_own = (info.kind.group, info.kind.kind) == (kind.owned[0].group, kind.owned[0].name)
            if is_own and (kind.v1_key or kind.bridged):
                yield Bridge(kind)


def block(bridge: Bridge, spec: JsonObject) -> JsonObject:
    """The v1 block for this kind."""
    condition = bridge.served.v1_when
    return {**({condition.pointer.removeprefix("/"): condition.values[0]} if condition else {}), **spec}


def forms() -> Iterator[Any]:
    for words, bridge, spec in references():
        name = bridge.kind.name
        meta: JsonObject = {"name": "one"}
        if bridge.served.v1_key:
            provider = {"provider": {bridge.served.v1_key: block(bridge, spec)}, "retrySettings": {"maxRetries": 2}}
            store = {"apiVersion": "external-secrets.io/v1", "spec": {**provider, "refreshInterval": 30}}
            for kind, metadata in (("SecretStore", {**meta, "namespace": HOME}), ("ClusterSecretStore", meta)):
                yield pytest.param({**store, "kind": kind, "metadata": metadata}, id=f"{kind} {name} {words}")
        else:
            v1 = {"apiVersion": "generators.external-secrets.io/v1alpha1", "kind": bridge.served.bridged[0].name}
            yield pytest.param(
                {**v1, "metadata": {**meta, "namespace": HOME}, "spec": spec}, id=f"generator {name} {words}"
            )
            if "caProvider" not in words:
                embedded = {"kind": v1["kind"], "generator": {SPEC_FIELDS[v1["kind"]]: spec}}
                cluster_wide = {**v1, "kind": "ClusterGenerator", "metadata": meta, "spec": embedded}
                yield pytest.param(cluster_wide, id=f"ClusterGenerator {name} {words}")


@pytest.mark.parametrize("obj", list(forms()))
async def test_every_reference_of_every_form_is_resolved_as_before(obj: JsonObject) -> None:
    """R134, R167: in stores of both scopes, with and without a namespace in the reference."""
    await check(obj)


# --- every manifest of the repository ---------------------------------------------------------------------------------


def manifests() -> Iterator[Any]:
    kinds = {(kind.group, kind.name) for kind in (*V1_STORES, *V1_GENERATORS)}
    seen: list[JsonObject] = []
    texts = [(file, file.read_text()) for file in sorted((ROOT / "examples").rglob("*.yaml"))]
    for page in sorted((ROOT / "docs").rglob("*.md")):
        texts += [(page, found) for found in BLOCK.findall(page.read_text())]
    for file, text in texts:
        for document in yaml.load_all(text, Loader=yaml.CSafeLoader):
            match document:
                case {"apiVersion": str(), "kind": str(), "metadata": {"name": str(name)}} if (
                    id_of(document)[:2] in kinds and document not in seen
                ):
                    seen.append(document)
                    yield pytest.param(document, id=f"{file.relative_to(ROOT)} {document['kind']} {name}")


@pytest.mark.parametrize("obj", list(manifests()))
async def test_every_v1_manifest_of_the_repository_is_resolved_as_before(obj: JsonObject) -> None:
    """R148, R167."""
    obj = {**obj, "metadata": dict(obj["metadata"])}
    if id_of(obj).kind not in ("ClusterSecretStore", "ClusterGenerator"):
        obj["metadata"].setdefault("namespace", HOME)

    await check(obj)
