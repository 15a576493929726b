"""The live objects that an object refers to, so that a plan can read them from the cluster. Pure.

    ExternalSecret   stores, generators, the target, objects with templates
    PushSecret       stores, generators, the source, objects with templates
    others           provider configurations and classes that their spec names

Credentials of stores are not listed here: the operator itself reads them when it needs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from eso_api import references as api
from eso_api.externalsecret import CLUSTER_EXTERNAL_SECRET, EXTERNAL_SECRET, ExternalSecret, ExternalSecretSpec
from eso_api.pushsecret import CLUSTER_PUSH_SECRET, PUSH_SECRET, PushSecret, PushSecretSpec
from eso_api.references import GeneratorRef, SelectorError, StoreRef
from eso_api.template import Template, template_references
from eso_api.v2.connection import GENERATOR_CONFIG_API_VERSION, STORE_CONFIG_API_VERSION
from eso_api.v2.generator import GENERATOR
from eso_api.v2.providerclass import PROVIDER_CLASS
from eso_operator.sources.entries import Generate, entries_of
from eso_operator.stores.loading import normalise
from eso_operator.stores.resolved import ResolutionError
from eso_operator.targets.metadata import target_name
from eso_wire.values import ObjectRef
from kubebase.meta import JsonObject

SYNCED: Final = frozenset(
    (kind.group, kind.name) for kind in (EXTERNAL_SECRET, PUSH_SECRET, CLUSTER_EXTERNAL_SECRET, CLUSTER_PUSH_SECRET)
)
"""The kinds that are planned; all others are what they need."""
FANS_OUT: Final = frozenset((kind.group, kind.name) for kind in (CLUSTER_EXTERNAL_SECRET, CLUSTER_PUSH_SECRET))


class Need(NamedTuple):
    """An object by name, or objects by label. The version is that of the API; the namespace may be superfluous."""

    group: str
    kind: str
    namespace: str
    name: str = ""
    labels: str = ""

    def __str__(self) -> str:
        return f"{self.kind}.{self.group or 'core'} {self.namespace}/{self.name or self.labels}"


def identity(obj: JsonObject) -> tuple[str, str]:
    """Return group and kind of an object."""
    return str(obj.get("apiVersion", "")).rpartition("/")[0], str(obj.get("kind", ""))


def needs_of(obj: JsonObject, namespace: str) -> Iterator[Need]:
    """Yield the objects that an object in this namespace refers to. An object that does not decode needs none."""
    try:
        match identity(obj):
            case (api.CORE_GROUP, "ExternalSecret"):
                es = msgspec.convert(obj, ExternalSecret)
                yield from _read_by(es.spec, namespace)
                yield from _targets(es, namespace)
            case (api.CORE_GROUP, "PushSecret"):
                yield from _pushed_by(msgspec.convert(obj, PushSecret).spec, namespace)
            case (api.CORE_GROUP, "ClusterExternalSecret"):
                spec = msgspec.convert(obj["spec"].get("externalSecretSpec", {}), ExternalSecretSpec)
                yield from _read_by(spec, "")
            case (api.CORE_GROUP, "ClusterPushSecret"):
                yield from _pushed_by(msgspec.convert(obj["spec"].get("pushSecretSpec", {}), PushSecretSpec), "")
            case (group, _):
                yield from _configured(obj.get("spec"), group, namespace)
    except (msgspec.ValidationError, KeyError, AttributeError, TypeError):
        return


def _read_by(spec: ExternalSecretSpec, namespace: str) -> Iterator[Need]:
    for want in entries_of(spec):
        yield from _named(want.generator if isinstance(want, Generate) else want.store, namespace)
    yield from _templates(spec.target.template, namespace)


def _targets(es: ExternalSecret, namespace: str) -> Iterator[Need]:
    manifest = es.spec.target.manifest
    if manifest is None:
        yield Need("", "Secret", namespace, target_name(es))
    else:
        yield Need(manifest.api_version.rpartition("/")[0], manifest.kind, namespace, target_name(es))


def _pushed_by(spec: PushSecretSpec, namespace: str) -> Iterator[Need]:
    selector = spec.selector
    if selector.generator_ref is not None:
        yield from _named(selector.generator_ref, namespace)
    if selector.secret is not None and selector.secret.name:
        yield Need("", "Secret", namespace, selector.secret.name)
    elif selector.secret is not None and selector.secret.selector is not None:
        yield from _labelled("", "Secret", namespace, selector.secret.selector)
    for ref in spec.secret_store_refs:
        if ref.label_selector is None:
            yield from _named(StoreRef(api_version=ref.api_version, kind=ref.kind, name=ref.name), namespace)
        else:
            group = ref.api_version.rpartition("/")[0] or api.CORE_GROUP
            yield from _labelled(group, ref.kind, namespace, ref.label_selector)
    yield from _templates(spec.template, namespace)


def _labelled(group: str, kind: str, namespace: str, selector: Any) -> Iterator[Need]:
    try:
        yield Need(group, kind, namespace, labels=selector.query())
    except SelectorError:
        return


def _named(ref: StoreRef | GeneratorRef, namespace: str) -> Iterator[Need]:
    try:
        kind = normalise(ref, ObjectRef()).kind
    except ResolutionError:
        return
    yield Need(kind.group, kind.kind, namespace, ref.name)


def _templates(template: Template | None, namespace: str) -> Iterator[Need]:
    named = template_references(template)
    for name in sorted(named.config_maps):
        yield Need("", "ConfigMap", namespace, name)
    for name in sorted(named.secrets):
        yield Need("", "Secret", namespace, name)


def _configured(node: Any, group: str, namespace: str) -> Iterator[Need]:
    """Yield the configurations and classes that a store, a provider or a generator names at any depth."""
    match node:
        case dict():
            for field, member in node.items():
                match field, member:
                    case "providerRef", {"kind": str(kind), "name": str(name)}:
                        usual = GENERATOR_CONFIG_API_VERSION if group == GENERATOR.group else STORE_CONFIG_API_VERSION
                        version = str(member.get("apiVersion") or usual)
                        home = str(member.get("namespace") or namespace)
                        yield Need(version.rpartition("/")[0], kind, home, name)
                    case "classRef", {"name": str(name)}:
                        kind = str(member.get("kind") or "ClusterProviderClass")
                        yield Need(PROVIDER_CLASS.group, kind, namespace, name)
                    case _:
                        yield from _configured(member, group, namespace)
        case list():
            for member in node:
                yield from _configured(member, group, namespace)
