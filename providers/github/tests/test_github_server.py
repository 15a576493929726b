"""The server of the tests behaves like GitHub: PyGithub, a client in wide use, works against it unmodified."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import github as pygithub
import pytest
from github import Auth

from eso_provider_github.testing.server import (
    APP,
    ENVIRONMENT,
    INSTALLATION,
    KEY,
    ORGANIZATION,
    REPOSITORY,
    GitHubServer,
)

AT_ONCE: dict[str, Any] = {"seconds_between_requests": None, "seconds_between_writes": None}


@pytest.fixture
def real(github: GitHubServer) -> GitHubServer:
    """The server on the clock of the system, as PyGithub has it."""
    github.clock = None
    return github


@pytest.fixture
def client(real: GitHubServer) -> Iterator[pygithub.Github]:
    auth = Auth.AppInstallationAuth(Auth.AppAuth(APP, KEY), INSTALLATION)
    with pygithub.Github(base_url=f"{real.url}/api/v3", auth=auth, retry=None, **AT_ONCE) as made:
        yield made


def test_secrets_of_every_place_are_sealed_written_listed_and_deleted(
    client: pygithub.Github, real: GitHubServer
) -> None:
    organization = client.get_organization(ORGANIZATION)
    repository = client.get_repo(f"{ORGANIZATION}/{REPOSITORY}")
    environment = repository.get_environment(ENVIRONMENT)

    organization.create_secret("db_password", "of the organization", visibility="private")
    repository.create_secret("DB_PASSWORD", "of the repository")
    environment.create_secret("DB_PASSWORD", "of the environment")

    assert real.values() == {"DB_PASSWORD": b"of the organization"}
    assert real.values(REPOSITORY) == {"DB_PASSWORD": b"of the repository"}
    assert real.values(REPOSITORY, ENVIRONMENT) == {"DB_PASSWORD": b"of the environment"}
    assert organization.get_secret("DB_PASSWORD").visibility == "private"
    assert [each.name for each in repository.get_secrets()] == ["DB_PASSWORD"]
    repository.delete_secret("DB_PASSWORD")
    assert list(repository.get_secrets()) == []


def test_a_token_is_issued_for_permissions_of_the_installation(real: GitHubServer) -> None:
    with pygithub.GithubIntegration(auth=Auth.AppAuth(APP, KEY), base_url=f"{real.url}/api/v3", **AT_ONCE) as app:
        issued = app.get_access_token(INSTALLATION, permissions={"contents": "read"})

        assert issued.token in real.tokens
        assert issued.permissions == {"contents": "read"}
        with pytest.raises(pygithub.GithubException, match="422"):
            app.get_access_token(INSTALLATION, permissions={"contents": "write"})
        with pytest.raises(pygithub.UnknownObjectException):
            app.get_access_token(1)


def test_another_app_gets_no_token(real: GitHubServer) -> None:
    with (
        pygithub.GithubIntegration(auth=Auth.AppAuth(APP + 1, KEY), base_url=f"{real.url}/api/v3") as app,
        pytest.raises(pygithub.GithubException, match="could not be decoded"),
    ):
        app.get_access_token(INSTALLATION)


def test_an_app_without_the_permission_is_denied(client: pygithub.Github, real: GitHubServer) -> None:
    del real.rights["secrets"]

    with pytest.raises(pygithub.GithubException, match="not accessible by integration"):
        client.get_repo(f"{ORGANIZATION}/{REPOSITORY}").create_secret("DB", "value")
