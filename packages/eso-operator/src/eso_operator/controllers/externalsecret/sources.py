"""The references of an ExternalSecret: stores, generators, templates, a target that is not a Secret. Pure.

They follow from the object alone, before anything is resolved. A change of any of them wakes the object.
"""

from __future__ import annotations

from collections.abc import Iterator

from eso_api.externalsecret import ExternalSecret
from eso_operator.dependencies.dependencies import Dependency, OnObject
from eso_operator.sources.entries import references_of
from eso_operator.sources.templates import template_sources
from eso_operator.stores.reference import normalise, parse_kind
from eso_operator.stores.resolved import ResolutionError
from eso_operator.targets.marks import target_name
from eso_wire.values import KindId, ObjectRef
from kubebase.meta import ObjectKey


def sources_of(es: ExternalSecret) -> frozenset[Dependency]:
    """Return the objects whose changes wake the ExternalSecret."""
    templates = template_sources(es.spec.target.template, es.metadata.namespace)
    return frozenset((*_of_references(es), *templates, *_of_target(es)))


def manifest_kind(es: ExternalSecret) -> KindId | None:
    """Return the kind of a target that is not a plain Secret."""
    manifest = es.spec.target.manifest
    return None if manifest is None else parse_kind(manifest.api_version, manifest.kind)


def _of_references(es: ExternalSecret) -> Iterator[Dependency]:
    """Yield each reference under both scopes: the scope of a kind is unknown here, and only one of the two exists."""
    namespace = es.metadata.namespace
    for ref in references_of(es.spec):
        try:
            kind = normalise(ref, ObjectRef(namespace=namespace)).kind
        except ResolutionError:
            continue
        yield OnObject(kind.group, kind.kind, ObjectKey(namespace, ref.name))
        yield OnObject(kind.group, kind.kind, ObjectKey("", ref.name))


def _of_target(es: ExternalSecret) -> Iterator[Dependency]:
    """Yield the target if it is not a Secret. The writers of a Secret are found through an index."""
    if (kind := manifest_kind(es)) is not None:
        yield OnObject(kind.group, kind.kind, ObjectKey(es.metadata.namespace, target_name(es)))
