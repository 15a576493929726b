"""From method, path and query to the target of a request."""

from __future__ import annotations

import pytest

from localkube.errors import StatusError
from localkube.wire.routes import PathTarget, ResourceTarget, flag, number, query_of, target_of


def target(method: str, path: str) -> ResourceTarget:
    raw, _, query = path.partition("?")
    found = target_of(method, raw, query_of(query))
    assert isinstance(found, ResourceTarget)
    return found


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/api/v1/secrets", ("list", "", "v1", "secrets", "", "", "")),
        ("GET", "/api/v1/namespaces/a/secrets", ("list", "", "v1", "secrets", "a", "", "")),
        ("GET", "/api/v1/namespaces/a/secrets/", ("list", "", "v1", "secrets", "a", "", "")),
        ("GET", "/api/v1/namespaces/a/secrets/b", ("get", "", "v1", "secrets", "a", "b", "")),
        ("POST", "/api/v1/namespaces/a/secrets", ("create", "", "v1", "secrets", "a", "", "")),
        ("PUT", "/apis/g.io/v2/namespaces/a/foos/b/status", ("update", "g.io", "v2", "foos", "a", "b", "status")),
        ("PATCH", "/apis/g.io/v2/foos/b", ("patch", "g.io", "v2", "foos", "", "b", "")),
        ("DELETE", "/apis/g.io/v2/foos/b", ("delete", "g.io", "v2", "foos", "", "b", "")),
        ("DELETE", "/apis/g.io/v2/foos", ("deletecollection", "g.io", "v2", "foos", "", "", "")),
        ("GET", "/apis/g.io/v2/foos?watch=true", ("watch", "g.io", "v2", "foos", "", "", "")),
        ("GET", "/apis/g.io/v2/foos?watch=0", ("list", "g.io", "v2", "foos", "", "", "")),
        ("GET", "/api/v1/watch/namespaces/a/pods", ("watch", "", "v1", "pods", "a", "", "")),
        ("GET", "/api/v1/watch/namespaces/a/pods/b", ("watch", "", "v1", "pods", "a", "b", "")),
        ("GET", "/api/v1/namespaces/a/pods/b?watch=1", ("get", "", "v1", "pods", "a", "b", "")),
        ("GET", "/api/v1/namespaces", ("list", "", "v1", "namespaces", "", "", "")),
        ("GET", "/api/v1/namespaces/a", ("get", "", "v1", "namespaces", "a", "a", "")),
        ("PUT", "/api/v1/namespaces/a/finalize", ("update", "", "v1", "namespaces", "a", "a", "finalize")),
        ("POST", "/api/v1/namespaces/a/serviceaccounts/b/token",
         ("create", "", "v1", "serviceaccounts", "a", "b", "token")),
        ("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Abasic-user",
         ("get", "rbac.authorization.k8s.io", "v1", "clusterroles", "", "system:basic-user", "")),
    ],
)  # fmt: skip
def test_resource_targets(method: str, path: str, expected: tuple[str, ...]) -> None:
    found = target(method, path)

    parts = (found.verb, found.group, found.version, found.resource, found.namespace, found.name, found.subresource)
    assert parts == expected


@pytest.mark.parametrize(
    "path", ["/", "/version", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1/", "//api/v1/x"]
)
def test_everything_else_is_a_plain_path(path: str) -> None:
    assert isinstance(target_of("GET", path, {}), PathTarget)


def test_a_field_selector_on_the_name_is_what_rules_about_names_see() -> None:
    found = target("GET", "/api/v1/secrets?fieldSelector=metadata.name%3Dx,type%3Dy")

    assert (found.name, found.selected_name) == ("", "x")


def test_a_blank_flag_is_on() -> None:
    assert flag(query_of("watch"), "watch")


def test_a_number_that_is_none_is_a_bad_request() -> None:
    with pytest.raises(StatusError) as caught:
        number(query_of("limit=abc"), "limit")

    assert (caught.value.code, caught.value.message) == (400, 'strconv.ParseInt: parsing "abc": invalid syntax')


def test_too_many_query_fields_are_a_bad_request() -> None:
    with pytest.raises(StatusError):
        query_of("&".join(f"f{n}=1" for n in range(1000)))
