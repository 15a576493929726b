"""The server of the tests behaves like GitLab: python-gitlab works against it, unmodified."""

from __future__ import annotations

import gitlab as python_gitlab
import pytest
from gitlab.exceptions import GitlabAuthenticationError, GitlabCreateError, GitlabGetError

from eso_provider_gitlab.testing.server import GUEST, READER, TOKEN, GitLabServer
from eso_sdk.testing.standin import StandinResponse


@pytest.fixture
def client(gitlab: GitLabServer) -> python_gitlab.Gitlab:
    return python_gitlab.Gitlab(gitlab.url, private_token=TOKEN)


def test_variables_are_created_listed_changed_and_deleted(client: python_gitlab.Gitlab, gitlab: GitLabServer) -> None:
    project = client.projects.get("shop/app")
    for number in range(250):
        project.variables.create({"key": f"KEY_{number}", "value": str(number)})
    project.variables.update("KEY_7", {"value": "changed"})
    project.variables.delete("KEY_8")
    gitlab.calls.clear()

    found = {each.key: each.value for each in project.variables.list(get_all=True, per_page=100)}

    assert len(found) == 249
    assert found["KEY_7"] == "changed"
    assert len(gitlab.requests("GET */variables")) == 3


def test_a_variable_is_read_in_its_environment_scope(client: python_gitlab.Gitlab) -> None:
    project = client.projects.get("shop/app")
    for scope in ("*", "production"):
        project.variables.create({"key": "DB", "value": f"of {scope}", "environment_scope": scope})

    found = project.variables.get("DB", filter={"environment_scope": "production"})

    assert found.value == "of production"
    with pytest.raises(GitlabGetError, match="409"):
        project.variables.get("DB")
    with pytest.raises(GitlabCreateError, match="already been taken"):
        project.variables.create({"key": "DB", "value": "again"})


def test_groups_of_a_project_and_their_variables_are_listed(client: python_gitlab.Gitlab, gitlab: GitLabServer) -> None:
    gitlab.project("shop/web/site", "shop", "shop/web")
    gitlab.group("shop/web").put("REGION", "eu")

    groups = client.projects.get("shop/web/site").groups.list(get_all=True)

    assert [each.full_path for each in groups] == ["shop", "shop/web"]
    assert client.groups.get("shop/web").variables.get("REGION").value == "eu"


@pytest.mark.parametrize("collection", ["projects", "groups"])
def test_deploy_tokens_are_created_and_deleted(
    collection: str, client: python_gitlab.Gitlab, gitlab: GitLabServer
) -> None:
    gitlab.group("shop/app")
    place = getattr(client, collection).get("shop/app")

    made = place.deploytokens.create({"name": "pull", "scopes": ["read_registry"], "expires_at": "2027-01-31"})

    assert made.token
    assert made.username.startswith("gitlab+deploy-token-")
    (listed,) = place.deploytokens.list(get_all=True)
    assert not hasattr(listed, "token")
    place.deploytokens.delete(made.id)
    assert place.deploytokens.list(get_all=True) == []


def test_tokens_are_refused_as_gitlab_does(gitlab: GitLabServer) -> None:
    gitlab.access = {"reader": {"shop/app": READER}, "guest": {"shop/app": GUEST}, "stranger": {}}

    def variables(token: str) -> object:
        made = python_gitlab.Gitlab(gitlab.url, private_token=token).projects.get("shop/app", lazy=True)
        return made.variables.list(get_all=True)

    assert variables("reader") == []
    with pytest.raises(GitlabAuthenticationError, match="401"):
        variables("wrong")
    with pytest.raises(python_gitlab.exceptions.GitlabListError, match="403"):
        variables("guest")
    with pytest.raises(python_gitlab.exceptions.GitlabListError, match="404 Project Not Found"):
        variables("stranger")


def test_a_limited_client_waits_as_long_as_the_server_says(client: python_gitlab.Gitlab, gitlab: GitLabServer) -> None:
    gitlab.script(
        "GET */variables", StandinResponse(429, b"Retry later\n", {"Retry-After": "0", "Content-Type": "text/plain"})
    )

    assert client.projects.get("shop/app", lazy=True).variables.list(get_all=True) == []
    assert len(gitlab.requests("GET */variables")) == 2
