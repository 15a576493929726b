"""What an ExternalSecret refers to: stores, generators, templates, a target that is no Secret. Pure.

Known from the object alone, before anything is resolved; a change of any of them is a reason to look at it again.
"""

from __future__ import annotations

from collections.abc import Iterator

from eso_api.externalsecret import ExternalSecret, ExternalSecretSpec
from eso_api.references import GeneratorRef, StoreRef
from eso_operator.stores.reference import normalise, parse_kind
from eso_operator.stores.target import ResolutionError
from eso_operator.sync.dependencies import Dependency, OnObject
from eso_operator.sync.templates import template_sources
from eso_operator.targets.marks import target_name
from eso_wire.values import KindId, ObjectRef
from kuberun.meta import ObjectKey


def references_of(spec: ExternalSecretSpec) -> tuple[StoreRef | GeneratorRef, ...]:
    """Every store and generator that is named, the default store first; each once."""
    default = spec.secret_store_ref
    found: dict[StoreRef | GeneratorRef, None] = {default: None} if default is not None and default.name else {}
    for source in (*(entry.source_ref for entry in spec.data), *(entry.source_ref for entry in spec.data_from)):
        if source is not None:
            found |= {ref: None for ref in (source.store_ref, source.generator_ref) if ref is not None}
    return tuple(found)


def sources_of(es: ExternalSecret) -> frozenset[Dependency]:
    """The objects whose change should be looked at."""
    templates = template_sources(es.spec.target.template, es.metadata.namespace)
    return frozenset((*_of_references(es), *templates, *_of_target(es)))


def manifest_kind(es: ExternalSecret) -> KindId | None:
    """The kind of a target that is no plain Secret."""
    manifest = es.spec.target.manifest
    return None if manifest is None else parse_kind(manifest.api_version, manifest.kind)


def _of_references(es: ExternalSecret) -> Iterator[Dependency]:
    """Under both scopes: which one a kind has does not matter for a change that can only come from one of them."""
    namespace = es.metadata.namespace
    for ref in references_of(es.spec):
        try:
            kind = normalise(ref, ObjectRef(namespace=namespace)).kind
        except ResolutionError:
            continue
        yield OnObject(kind.group, kind.kind, ObjectKey(namespace, ref.name))
        yield OnObject(kind.group, kind.kind, ObjectKey("", ref.name))


def _of_target(es: ExternalSecret) -> Iterator[Dependency]:
    """A Secret is found through an index of its own, by everybody who writes to it."""
    if (kind := manifest_kind(es)) is not None:
        yield OnObject(kind.group, kind.kind, ObjectKey(es.metadata.namespace, target_name(es)))
