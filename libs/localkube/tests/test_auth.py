"""From credentials to a user."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from localkube.access.auth import (
    ADMIN,
    Authenticator,
    certificate_user,
    impersonated,
    impersonation_targets,
    is_public,
)
from localkube.access.rbac import ANONYMOUS
from localkube.errors import StatusError
from localkube.model import User
from localkube.wire.http import Request
from localkube.wire.routes import target_of

ACCOUNT = User("system:serviceaccount:ns:sa", ("system:serviceaccounts",), "uid-1")


def asked(*headers: tuple[str, str]) -> Request:
    return Request("GET", "/", "", CIMultiDictProxy(CIMultiDict(headers)))


def authenticator() -> Authenticator:
    return Authenticator("admin-token", lambda token: ACCOUNT if token == "account-token" else None)


def test_the_admin_token_is_the_administrator() -> None:
    assert authenticator().user_of(asked(("Authorization", "Bearer admin-token"))) == ADMIN


def test_an_account_token_is_the_account_and_authenticated() -> None:
    user = authenticator().user_of(asked(("authorization", "bearer account-token")))

    assert user == User(ACCOUNT.name, ("system:serviceaccounts", "system:authenticated"), "uid-1")


@pytest.mark.parametrize(
    "header", ["Bearer wrong", "Bearer ", "Basic YTpi", "admin-token", "Bearer admin-token extra", "Bearer \xff"]
)
def test_wrong_credentials_are_never_anonymous(header: str) -> None:
    with pytest.raises(StatusError) as caught:
        authenticator().user_of(asked(("Authorization", header)))

    assert (caught.value.code, caught.value.message) == (401, "Unauthorized")


def test_no_credentials_are_anonymous() -> None:
    assert authenticator().user_of(asked()) is ANONYMOUS


def test_a_client_certificate_names_user_and_groups() -> None:
    peer = {"subject": ((("organizationName", "devs"),), (("organizationName", "ops"),), (("commonName", "eve"),))}

    assert certificate_user(peer) == User("eve", ("devs", "ops", "system:authenticated"))


@pytest.mark.parametrize(
    ("path", "public"),
    [
        ("/healthz", True),
        ("/readyz/ping", True),
        ("/version", True),
        ("/version/", True),
        ("/api", False),
        ("/metrics", False),
        ("/api/v1/secrets", False),
    ],
)
def test_only_public_paths_need_no_credentials(path: str, public: bool) -> None:
    assert is_public(target_of("GET", path, {})) is public


def test_acting_as_a_service_account_brings_its_groups() -> None:
    wanted = impersonated(asked(("Impersonate-User", "system:serviceaccount:ns:sa")))

    assert wanted == User(
        "system:serviceaccount:ns:sa", ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated")
    )


def test_impersonation_must_be_allowed_for_the_user_and_each_group() -> None:
    request = asked(("Impersonate-User", "bob"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b"))

    targets = impersonation_targets(impersonated(request) or ANONYMOUS, request)

    assert [(target.verb, target.resource, target.name) for target in targets] == [
        ("impersonate", "users", "bob"),
        ("impersonate", "groups", "a"),
        ("impersonate", "groups", "b"),
    ]


def test_acting_as_a_group_without_a_user_is_a_bad_request() -> None:
    with pytest.raises(StatusError, match="needs a user"):
        impersonated(asked(("Impersonate-Group", "a")))
