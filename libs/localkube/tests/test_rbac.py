"""Authorization by stored roles and bindings."""

from __future__ import annotations

from typing import Any

import pytest

from kubebase.meta import JsonObject
from localkube.access import roles
from localkube.access.rbac import MASTERS, Policy, PolicyRule, denial, missing
from localkube.model import User
from localkube.wire.routes import PathTarget, ResourceTarget, Target, query_of, target_of

BOB = User("bob", ("devs", "system:authenticated"))
ACCOUNT = User(
    "system:serviceaccount:ns:sa", ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated")
)


def role(name: str, *rules: JsonObject, namespace: str = "", **extra: Any) -> JsonObject:
    return {
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "rules": list(rules),
        **extra,
    }


def rule(verbs: str, resources: str, groups: str = "", names: str = "") -> JsonObject:
    found: JsonObject = {"verbs": verbs.split(), "resources": resources.split(), "apiGroups": groups.split() or [""]}
    return {**found, "resourceNames": names.split()} if names else found


def binding(name: str, subject: JsonObject, *, namespace: str = "", kind: str = "ClusterRole") -> JsonObject:
    metadata = {"name": f"{name}-binding", **({"namespace": namespace} if namespace else {})}
    return {"metadata": metadata, "roleRef": {"kind": kind, "name": name}, "subjects": [subject]}


def request(text: str) -> Target:
    method, path = text.split(" ")
    raw, _, query = path.partition("?")
    return target_of(method, raw, query_of(query))


BOB_SUBJECT = {"kind": "User", "name": "bob"}
READER = role("reader", rule("get list watch", "secrets"))
NAMED = role("named", rule("get list", "secrets", names="db"))


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        pytest.param("GET /api/v1/namespaces/a/secrets/x", True, id="a cluster binding reaches every namespace"),
        pytest.param("GET /api/v1/secrets", True, id="and the list across them"),
        pytest.param("GET /api/v1/secrets?watch=1", True, id="watch is a verb of its own"),
        pytest.param("DELETE /api/v1/namespaces/a/secrets/x", False, id="a verb that is not named"),
        pytest.param("GET /api/v1/namespaces/a/configmaps/x", False, id="a resource that is not named"),
        pytest.param("GET /apis/g.io/v1/namespaces/a/secrets/x", False, id="the same name in another group"),
        pytest.param("GET /api/v1/namespaces/a/secrets/x/status", False, id="a subresource is another resource"),
        pytest.param("GET /api", False, id="a path"),
    ],
)
def test_a_cluster_role_bound_everywhere(text: str, allowed: bool) -> None:
    policy = Policy.compile([READER], [], [binding("reader", BOB_SUBJECT)], [])

    assert policy.decide(BOB, request(text)).allowed is allowed


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("GET /api/v1/namespaces/a/secrets/x", True),
        ("GET /api/v1/namespaces/b/secrets/x", False),
        ("GET /api/v1/secrets", False),
    ],
    ids=["inside its namespace", "in another namespace", "across namespaces"],
)
@pytest.mark.parametrize("kind", ["Role", "ClusterRole"])
def test_a_role_binding_holds_in_its_namespace_only(text: str, allowed: bool, kind: str) -> None:
    local = {**READER, "metadata": {"name": "reader", "namespace": "a"}}
    policy = Policy.compile([READER], [local], [], [binding("reader", BOB_SUBJECT, namespace="a", kind=kind)])

    assert policy.decide(BOB, request(text)).allowed is allowed


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("GET /api/v1/namespaces/a/secrets/db", True),
        ("GET /api/v1/namespaces/a/secrets/other", False),
        ("GET /api/v1/namespaces/a/secrets", False),
        ("GET /api/v1/namespaces/a/secrets?fieldSelector=metadata.name=db", True),
    ],
    ids=["the named object", "another one", "the whole list", "the list pinned to the name"],
)
def test_rules_limited_to_names(text: str, allowed: bool) -> None:
    policy = Policy.compile([NAMED], [], [binding("named", BOB_SUBJECT)], [])

    assert policy.decide(BOB, request(text)).allowed is allowed


@pytest.mark.parametrize(
    "subject",
    [
        {"kind": "ServiceAccount", "name": "sa", "namespace": "ns"},
        {"kind": "User", "name": "system:serviceaccount:ns:sa"},
        {"kind": "Group", "name": "system:serviceaccounts:ns"},
        {"kind": "Group", "name": "system:authenticated"},
    ],
    ids=lambda subject: f"{subject['kind']} {subject['name']}",
)
def test_the_ways_to_name_a_service_account(subject: JsonObject) -> None:
    policy = Policy.compile([READER], [], [binding("reader", subject)], [])

    assert policy.decide(ACCOUNT, request("GET /api/v1/secrets")).allowed


@pytest.mark.parametrize(
    ("resources", "path", "allowed"),
    [
        ("*", "/apis/g.io/v1/foos/x/status", True),
        ("foos/*", "/apis/g.io/v1/foos/x/status", False),
        ("*/status", "/apis/g.io/v1/foos/x/status", True),
        ("foos/status", "/apis/g.io/v1/foos/x", False),
    ],
)
def test_wildcards_for_resources(resources: str, path: str, allowed: bool) -> None:
    policy = Policy.compile([role("r", rule("*", resources, "*"))], [], [binding("r", BOB_SUBJECT)], [])

    assert policy.decide(BOB, request(f"GET {path}")).allowed is allowed


def test_paths_with_a_star_match_what_lies_below() -> None:
    paths = role("paths", {"verbs": ["get"], "nonResourceURLs": ["/apis/*", "/version"]})
    policy = Policy.compile([paths], [], [binding("paths", BOB_SUBJECT)], [])

    answers = {
        path: policy.decide(BOB, request(f"GET {path}")).allowed
        for path in ("/apis/x", "/apis", "/version", "/version/")
    }

    assert answers == {"/apis/x": True, "/apis": False, "/version": True, "/version/": False}


def test_aggregated_roles_take_in_what_their_selectors_find() -> None:
    label = {"rbac.example.com/to-viewer": "true"}
    viewer = role("viewer", aggregationRule={"clusterRoleSelectors": [{"matchLabels": label}]})
    part = {**role("part", rule("get", "secrets")), "metadata": {"name": "part", "labels": label}}
    policy = Policy.compile([viewer, part], [], [binding("viewer", BOB_SUBJECT)], [])

    assert policy.decide(BOB, request("GET /api/v1/namespaces/a/secrets/x")).allowed


def test_roles_that_aggregate_each_other_come_to_an_end() -> None:
    selector = {"clusterRoleSelectors": [{"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}]}
    first = role("first", rule("get", "secrets"), aggregationRule=selector)
    second = role("second", rule("get", "configmaps"), aggregationRule=selector)
    policy = Policy.compile([first, second], [], [binding("second", BOB_SUBJECT)], [])

    assert policy.decide(BOB, request("GET /api/v1/namespaces/a/secrets/x")).allowed


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("view", "GET /api/v1/namespaces/a/configmaps", True),
        ("view", "GET /api/v1/namespaces/a/secrets", False),
        ("edit", "GET /api/v1/namespaces/a/secrets", True),
        ("edit", "GET /api/v1/namespaces/a/configmaps", True),
        ("edit", "POST /apis/rbac.authorization.k8s.io/v1/namespaces/a/roles", False),
        ("admin", "POST /apis/rbac.authorization.k8s.io/v1/namespaces/a/roles", True),
        ("admin", "PUT /api/v1/namespaces/a/secrets/x", True),
        ("admin", "DELETE /api/v1/namespaces/a", False),
        ("cluster-admin", "DELETE /api/v1/namespaces/a", True),
    ],
)
def test_the_built_in_roles(name: str, text: str, allowed: bool) -> None:
    policy = Policy.compile(roles.cluster_roles(), [], [binding(name, BOB_SUBJECT)], [])

    assert policy.decide(BOB, request(text)).allowed is allowed


def test_every_authenticated_user_may_discover() -> None:
    policy = Policy.compile(roles.cluster_roles(), [], roles.cluster_role_bindings(), [])

    assert policy.decide(BOB, request("GET /apis/apps/v1")).reason == (
        'RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" '
        'to Group "system:authenticated"'
    )


def test_masters_need_no_binding() -> None:
    assert (
        Policy.compile([], [], [], []).decide(User("root", (MASTERS,)), request("DELETE /api/v1/namespaces/a")).allowed
    )


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            request("GET /api/v1/namespaces/ns/secrets/x"),
            'secrets "x" is forbidden: User "bob" cannot get resource "secrets" in API group "" in the namespace "ns"',
        ),
        (
            request("POST /apis/rbac.authorization.k8s.io/v1/clusterroles"),
            (
                'clusterroles.rbac.authorization.k8s.io is forbidden: User "bob" cannot create resource "clusterroles" '
                'in API group "rbac.authorization.k8s.io" at the cluster scope'
            ),
        ),
        (
            request("GET /api/v1/namespaces/default/serviceaccounts/x/token"),
            (
                'serviceaccounts "x" is forbidden: User "bob" cannot get resource "serviceaccounts/token" '
                'in API group "" in the namespace "default"'
            ),
        ),
        (PathTarget("get", "GET", "/nope"), 'forbidden: User "bob" cannot get path "/nope"'),
    ],
    ids=["an object", "the cluster scope", "a subresource", "a path"],
)
def test_denials_read_like_those_of_the_real_server(target: ResourceTarget | PathTarget, message: str) -> None:
    error = denial(BOB, target)

    assert (error.code, error.reason, error.message) == (403, "Forbidden", message)


def test_rules_beyond_those_held_would_escalate() -> None:
    held = [PolicyRule(("get", "list"), ("",), ("secrets",)), PolicyRule(("*",), ("apps",), ("*",))]
    wanted = [PolicyRule(("get", "update"), ("",), ("secrets",)), PolicyRule(("delete",), ("apps",), ("deployments",))]

    assert missing(held, wanted) == [PolicyRule(("update",), ("",), ("secrets",))]


def test_a_rule_on_names_does_not_cover_all_names() -> None:
    assert missing([PolicyRule(("get",), ("",), ("secrets",), ("a",))], [PolicyRule(("get",), ("",), ("secrets",))])
