"""Which changes wake which parents."""

from typing import Any

import msgspec
import pytest

from eso_api.externalsecret import ExternalSecret
from eso_operator.controllers.fanout.controller import (
    CHILD_NAME_INDEX,
    ParentRecord,
    Parents,
    by_child_name,
    by_parent,
    child_changes,
    namespace_changes,
    own_changes,
)
from eso_operator.controllers.fanout.kinds import CLUSTER_EXTERNAL_SECRETS, StoredClusterExternalSecret
from eso_operator.memory import Memory
from kubebase.meta import Object, ObjectKey
from kuberun.cache import Cache, Change
from kuberun.watch import Applied, Deleted, Listed

OWNER = {"apiVersion": "external-secrets.io/v1", "kind": "ClusterExternalSecret", "name": "everywhere", "uid": "u"}
LEFT = "externalsecrets.external-secrets.io/ces-"


def parent(name: str, spec: dict[str, Any] | None = None, **metadata: Any) -> StoredClusterExternalSecret:
    document = {"metadata": {"name": name, **metadata}, "spec": {"externalSecretSpec": {}, **(spec or {})}}
    return msgspec.convert(document, StoredClusterExternalSecret)


def parents(*objects: StoredClusterExternalSecret) -> Cache[StoredClusterExternalSecret]:
    store: Cache[StoredClusterExternalSecret] = Cache({CHILD_NAME_INDEX: by_child_name(CLUSTER_EXTERNAL_SECRETS)})
    store.apply(Listed(objects))
    return store


def secret(name: str = "db", status: dict[str, Any] | None = None, **metadata: Any) -> ExternalSecret:
    document = {"metadata": {"name": name, "namespace": "team-a", "uid": "e", **metadata}, "status": status or {}}
    return msgspec.convert(document, ExternalSecret)


def namespace(name: str = "team-a", **metadata: Any) -> Object:
    return msgspec.convert({"metadata": {"name": name, "uid": "n", **metadata}}, Object)


def owned(**metadata: Any) -> ExternalSecret:
    return secret(ownerReferences=[{**OWNER, "controller": True}], **metadata)


def says(ready: str, message: str = "", **status: Any) -> dict[str, Any]:
    return {"conditions": [{"type": "Ready", "status": ready, "message": message}], **status}


@pytest.mark.parametrize(
    ("old", "new", "woken"),
    [
        pytest.param(None, owned(), ["everywhere"], id="a child appears"),
        pytest.param(owned(), None, ["everywhere"], id="a child is deleted, C11"),
        pytest.param(owned(generation=1), owned(generation=2), ["everywhere"], id="a child is edited, C11"),
        pytest.param(owned(), owned(labels={"a": "b"}), ["everywhere"], id="a child is labelled"),
        pytest.param(owned(), owned(annotations={"a": "b"}), ["everywhere"], id="a child is annotated"),
        pytest.param(owned(), secret(), ["everywhere"], id="a child is given away"),
        pytest.param(secret(), owned(), ["everywhere"], id="an object becomes a child"),
        pytest.param(owned(), owned(status={"refreshTime": "2026-01-01T00:00:00Z"}), [], id="a child reports"),
        pytest.param(owned(), owned(status=says("False")), ["everywhere"], id="a child is not ready"),
        pytest.param(owned(status=says("False")), owned(status=says("True")), ["everywhere"], id="a child gets ready"),
        pytest.param(
            owned(status=says("False", message="one")),
            owned(status=says("False", message="two", refreshTime="2026-01-01T00:00:00Z")),
            [],
            id="a child that is not ready says so again",
        ),
        pytest.param(
            secret("wanted"), secret("wanted", says("True")), [], id="an object that has a wanted name gets ready"
        ),
        pytest.param(secret("wanted"), None, ["named"], id="an object that had a wanted name goes, C7"),
        pytest.param(None, secret("wanted"), ["named"], id="an object takes a wanted name"),
        pytest.param(None, secret("named"), [], id="the name of a parent that names its children otherwise"),
        pytest.param(None, secret("other"), [], id="an object of no parent"),
        pytest.param(
            None,
            secret(ownerReferences=[{**OWNER, "kind": "Other", "controller": True}]),
            [],
            id="another kind's child",
        ),
    ],
)
def test_objects_of_the_childs_kind(old: ExternalSecret | None, new: ExternalSecret | None, woken: list[str]) -> None:
    known = parents(parent("everywhere"), parent("named", {"externalSecretName": "wanted"}))
    last = new or old
    assert last is not None

    requests = child_changes(CLUSTER_EXTERNAL_SECRETS, known)(Change(last.key, old, new))

    assert [str(request.key) for request in requests] == woken


BROKEN = {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}


@pytest.mark.parametrize(
    ("old", "new", "woken"),
    [
        pytest.param(namespace(), namespace(labels={"env": "dev"}), ["dev"], id="a label is added, R28"),
        pytest.param(namespace(labels={"env": "dev"}), namespace(), ["dev"], id="a label is taken away, R29"),
        pytest.param(
            namespace(labels={"env": "dev"}), namespace(labels={"env": "prod"}), ["dev", "prod"], id="a label changes"
        ),
        pytest.param(None, namespace(labels={"env": "dev"}), ["dev"], id="a namespace is created"),
        pytest.param(None, namespace("listed"), ["names"], id="a namespace is created that is meant by name"),
        pytest.param(namespace(labels={"env": "dev"}), None, ["dev"], id="a namespace is deleted"),
        pytest.param(
            namespace(labels={"env": "dev"}),
            namespace(labels={"env": "dev"}, deletionTimestamp="2026-01-01T00:00:00Z"),
            ["dev"],
            id="a namespace is being deleted",
        ),
        pytest.param(
            namespace(labels={"env": "dev"}),
            namespace(labels={"env": "dev"}, annotations={"a": "b"}),
            [],
            id="annotated",
        ),
        pytest.param(namespace(), namespace(labels={"other": "x"}), [], id="a label that no selector names"),
        pytest.param(
            namespace(),
            namespace(finalizers=[f"{LEFT}long.gone", "kubernetes"]),
            ["long.gone"],
            id="a leaked finalizer",
        ),
    ],
)
def test_namespaces(old: Object | None, new: Object | None, woken: list[str]) -> None:
    known = parents(
        parent("dev", {"namespaceSelector": {"matchLabels": {"env": "dev"}}}),
        parent("prod", {"namespaceSelectors": [{"matchLabels": {"env": "prod"}}]}),
        parent("names", {"namespaces": ["listed"]}),
        parent("broken", BROKEN),
    )
    last = new or old
    assert last is not None

    requests = namespace_changes(CLUSTER_EXTERNAL_SECRETS, known)(Change(last.key, old, new))

    assert [str(request.key) for request in requests] == woken


FINALIZER = CLUSTER_EXTERNAL_SECRETS.finalizer


def held(resource_version: str = "1", **metadata: Any) -> StoredClusterExternalSecret:
    return parent("a", resourceVersion=resource_version, finalizers=[FINALIZER], **metadata)


@pytest.mark.parametrize(
    ("old", "new", "looked"),
    [
        pytest.param(None, parent("a"), True, id="created"),
        pytest.param(held(), None, True, id="deleted"),
        pytest.param(held(generation=1), held(generation=2), True, id="its spec"),
        pytest.param(held(), held(annotations={"b": "c"}), True, id="force-sync, C10"),
        pytest.param(held(), held(deletionTimestamp="2026-01-01T00:00:00Z"), True, id="its deletion"),
        pytest.param(held(), parent("a"), True, id="its finalizer was taken off"),
        pytest.param(parent("a"), held("2"), False, id="its finalizer was put on"),
        pytest.param(held("1"), held("2"), False, id="its status"),
    ],
)
def test_the_parent_itself(
    old: StoredClusterExternalSecret | None, new: StoredClusterExternalSecret | None, looked: bool
) -> None:
    last = new or old
    assert last is not None

    requests = own_changes(CLUSTER_EXTERNAL_SECRETS)(Change(last.key, old, new))

    assert bool([*requests]) is looked


def test_children_are_found_by_the_owner_that_controls_them() -> None:
    assert list(by_parent(owned())) == [("external-secrets.io", "ClusterExternalSecret", "everywhere")]
    assert list(by_parent(secret(ownerReferences=[OWNER]))) == []


def test_a_parent_is_known_as_we_wrote_it_until_the_watch_says_more() -> None:
    store = parents(held("1"))
    known = Parents(store, Memory(ParentRecord))
    key = ObjectKey("", "a")
    two, three, four = held("2"), held("3"), held("4")

    known.wrote(held("1"), two)
    known.wrote(two, three)

    assert known.get(key) is three
    store.apply(Applied(held("2")))
    assert known.get(key) is three
    store.apply(Applied(four))
    assert known.get(key) is four
    store.apply(Deleted(four))
    assert known.get(key) is None
