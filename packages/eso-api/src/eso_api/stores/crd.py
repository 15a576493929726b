"""`spec.provider.crd`: objects of one kind of this or another cluster, read only."""

from __future__ import annotations

import msgspec

from eso_api.shapes import Fragment, KindName, NonEmpty
from eso_api.stores.kubernetes import KubernetesConnection


class CrdResource(Fragment, frozen=True, kw_only=True):
    """The kind of the objects."""

    group: str = ""
    """API group; empty for the core group."""
    version: NonEmpty
    """API version, without the group."""
    kind: KindName
    """Kind. Secrets of the core group are read with the provider kubernetes instead."""


class CrdRule(Fragment, frozen=True, kw_only=True):
    """A rule for the objects and properties that may be read. All fields that are set must match."""

    name: str = ""
    """Regular expression (RE2) that must match anywhere in the object's name; add ^ and $ to match the whole name."""
    namespace: str = ""
    """Regular expression that must match anywhere in the object's namespace."""
    properties: list[str] = []
    """Regular expressions, one of which must match in the property; reads without property are then refused."""


class CrdWhitelist(Fragment, frozen=True, kw_only=True):
    """Limits what may be read."""

    rules: list[CrdRule] = []
    """A read is allowed if one of these rules matches it. No rules allow everything."""


class CrdProvider(KubernetesConnection, frozen=True, kw_only=True):
    """Objects of one kind of this or another cluster, read only."""

    resource: CrdResource
    """The kind of the objects."""
    whitelist: CrdWhitelist = msgspec.field(default_factory=CrdWhitelist)
    """Limits what may be read; absent allows every object of the kind."""
