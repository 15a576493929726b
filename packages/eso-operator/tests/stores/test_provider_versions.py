"""A provider's API has versions of its own, and the core knows none of them (R195)."""

from __future__ import annotations

import pytest

from eso_api.references import StoreRef
from eso_operator.stores.resolve import resolve
from eso_operator.stores.resolved import Reason, ResolutionError, ResolvedStore
from eso_testkit.operator.clusters import ANYTHING, SETTINGS, EveryConnection, caller, cluster, obj, serving
from eso_wire.values import KindId
from kubebase.meta import JsonObject

GROUP = "notes.example.com"
OLD, NEW = KindId(GROUP, "v1alpha1", "Notes"), KindId(GROUP, "v7", "Notes")
CONFIG = obj(f"{GROUP}/v7", "Notes", "config", "team-a", spec={"folder": "a"})


def release(name: str, *kinds: KindId) -> JsonObject:
    """One release of the provider, with the versions that it serves."""
    serves = [{"group": kind.group, "version": kind.version, "kind": kind.kind} for kind in kinds]
    spec = {"address": f"{name}.eso.svc:8080", "serves": serves}
    return obj("external-secrets.io/v1alpha1", "ClusterProviderClass", name, spec=spec)


def resolved(version: str, *releases: JsonObject) -> ResolvedStore:
    """A direct reference to the configuration, by one version of its API."""
    ref = StoreRef(api_version=f"{GROUP}/{version}", kind="Notes", name="config")
    view = cluster(CONFIG, *releases, handshakes=EveryConnection(serving(OLD, NEW)))
    return resolve(ref, caller(), need=ANYTHING, view=view, settings=SETTINGS)


@pytest.mark.parametrize("version", ["v1alpha1", "v7"])
def test_one_release_may_serve_several_versions_of_its_api(version: str) -> None:
    target = resolved(version, release("notes", OLD, NEW))

    assert (target.endpoint.label, target.config.kind.version) == ("notes", version)


@pytest.mark.parametrize(("version", "label"), [("v1alpha1", "notes-1"), ("v7", "notes-2")])
def test_two_releases_each_get_the_version_that_they_serve(version: str, label: str) -> None:
    """R65: they run side by side."""
    target = resolved(version, release("notes-1", OLD), release("notes-2", NEW))

    assert (target.endpoint.label, target.config.kind.version) == (label, version)


def test_a_version_that_no_release_serves_is_refused() -> None:
    with pytest.raises(ResolutionError) as raised:
        resolved("v7", release("notes-1", OLD))

    assert raised.value.reason is Reason.NOT_INSTALLED
