"""The stand-in server keeps to the API: Infisical's own client, unmodified, works with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

from eso_provider_infisical.testing.server import CLIENT_ID, CLIENT_SECRET, MAIN, Identity, InfisicalServer

SDK: Any = import_module("infisical_sdk")
ERROR: Any = import_module("infisical_sdk.infisical_requests").APIError


@pytest.fixture
def client(server: InfisicalServer) -> Iterator[Any]:
    """Infisical's client, logged in; without its cache, so that each call reaches the server."""
    with SDK.InfisicalSDKClient(host=server.url, cache_ttl=None) as made:
        made.auth.universal_auth.login(CLIENT_ID, CLIENT_SECRET)
        yield made


def scope(**more: Any) -> dict[str, Any]:
    return {"project_slug": MAIN, "environment_slug": "dev", "secret_path": "/", **more}


def test_a_login_grants_a_token_with_its_life(server: InfisicalServer) -> None:
    with SDK.InfisicalSDKClient(host=server.url, cache_ttl=None) as made:
        granted = made.auth.universal_auth.login(CLIENT_ID, CLIENT_SECRET)

    assert (granted.tokenType, granted.expiresIn) == ("Bearer", server.token_seconds)


def test_a_login_by_ldap(server: InfisicalServer) -> None:
    server.logins["ldap-auth:id-1"] = Identity("machine", frozenset({MAIN}))
    with SDK.InfisicalSDKClient(host=server.url, cache_ttl=None) as made:
        assert made.auth.ldap_auth.login("id-1", "anna", "password").accessToken


@pytest.mark.parametrize("what", ["login", "secret", "project"])
def test_errors_have_status_and_message(server: InfisicalServer, client: Any, what: str) -> None:
    calls: dict[str, tuple[int, Callable[[], Any]]] = {
        "login": (401, lambda: client.auth.universal_auth.login(CLIENT_ID, "wrong")),
        "secret": (404, lambda: client.secrets.get_secret_by_name("GONE", **scope())),
        "project": (404, lambda: client.secrets.list_secrets(**scope(project_slug="gone"))),
    }
    status, call = calls[what]

    with pytest.raises(ERROR) as failed:
        call()

    assert failed.value.status_code == status
    assert failed.value.response["message"]
    assert server.calls


def test_secrets_are_created_read_updated_listed_and_deleted(server: InfisicalServer, client: Any) -> None:
    secrets = client.secrets
    identifier = {"project_id": server.project().id, "environment_slug": "dev", "secret_path": "/"}

    made = secrets.create_secret_by_name("A", secret_value="one", **identifier)
    changed = secrets.update_secret_by_name("A", secret_value="two", **identifier)
    read = secrets.get_secret_by_name("A", **scope())
    first = secrets.get_secret_by_name("A", version="1", **scope())
    listed = secrets.list_secrets(**scope())
    secrets.delete_secret_by_name("A", **identifier)

    assert (made.secretValue, changed.version, read.secretValue, first.secretValue) == ("one", 2, "two", "one")
    assert [each.secretKey for each in listed.secrets] == ["A"]
    assert server.project().find("/A") is None


def test_lists_are_recursive_and_have_imports_on_request(server: InfisicalServer, client: Any) -> None:
    for path in ("/A", "/sub/B", "/shared/C"):
        server.project().put(path, path)
    server.project().folder("dev", "/").imports.append("/shared")

    flat = client.secrets.list_secrets(**scope(include_imports=False))
    deep = client.secrets.list_secrets(**scope(recursive=True))

    assert [each.secretKey for each in flat.secrets] == ["A"]
    assert sorted(each.secretKey for each in deep.secrets) == ["A", "B", "C"]
    assert [each.secretPath for each in deep.imports] == ["/shared"]
