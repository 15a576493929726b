"""Reading secrets: which calls a read costs, and what becomes of each item."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eso_provider_gcp.store import SecretManagerStore
from eso_provider_gcp.testing.sessions import AUTH, KEY, PROJECT, Google, context
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.server import failure, read
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import GetItem, MetadataPolicy, RemoteRef, Shape


async def test_a_reference_gives_the_latest_version_or_the_one_that_it_names(
    google: Google, provider: InMemory, name: str
) -> None:
    made = google.store(name, b"first", b"second")
    aliased: dict[str, Any] = {"name": made, "version_aliases": {"stable": 1}}
    request: dict[str, Any] = {"secret": aliased, "update_mask": {"paths": ["version_aliases"]}}
    google.admin.update_secret(request=request, metadata=google.metadata)
    refs = [RemoteRef(name, version=version) for version in ("", "latest", "1", "stable")]
    assert await read(provider, context(google), *refs) == [b"second", b"second", b"first", b"first"]


async def test_the_version_of_a_value_is_its_number(google: Google, provider: InMemory, name: str) -> None:
    google.store(name, b"first", b"second")
    result = await provider.get_one(context(google), name)
    assert result.metadata.provider_version == "2"


async def test_properties_of_one_secret_share_a_read(google: Google, provider: InMemory, name: str) -> None:
    google.store(name, json.dumps({"user": "ann", "a.b": "literal", "n": [1, 2]}).encode())
    refs = [RemoteRef(name, property=part) for part in ("user", "a.b", "n.1", "none")]
    *values, missing = await read(provider, context(google), *refs)
    assert values == [b"ann", b"literal", b"2"]
    assert isinstance(missing, ProviderError)
    assert missing.reason is ErrorReason.PROPERTY_NOT_FOUND
    assert google.secrets.calls == {"AccessSecretVersion": 1}


async def test_a_map_has_the_members_of_the_value(google: Google, provider: InMemory, name: str) -> None:
    google.store(name, b'{"user":"ann","port":5432,"none":null}')
    result = await provider.get_one(context(google), name, shape=Shape.MAP)
    assert isinstance(result.outcome, dict)
    assert {key: value.reveal() for key, value in result.outcome.items()} == {
        "user": b"ann",
        "port": b"5432",
        "none": b"",
    }


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("", b'{"annotations":{"note":"a.b"},"labels":{"team":"x"}}', id="all"),
        pytest.param("labels", b'{"team":"x"}', id="one map"),
        pytest.param("annotations.note", b"a.b", id="one value"),
        pytest.param("labels.none", ErrorReason.PROPERTY_NOT_FOUND, id="a label that is not there"),
        pytest.param("etag", ErrorReason.PROPERTY_NOT_FOUND, id="something else"),
    ],
)
async def test_metadata_is_read_without_the_value(
    google: Google, provider: InMemory, name: str, path: str, expected: bytes | ErrorReason
) -> None:
    google.store(name, labels={"team": "x"}, annotations={"note": "a.b"})
    ref = RemoteRef(name, property=path, metadata_policy=MetadataPolicy.FETCH)
    (found,) = await read(provider, context(google), ref)
    assert (found.reason if isinstance(found, ProviderError) else found) == expected
    assert google.secrets.calls == {"GetSecret": 1}


@pytest.mark.parametrize("stored", [pytest.param((), id="no version"), pytest.param(None, id="no secret")])
async def test_what_is_not_there_is_not_found(
    google: Google, provider: InMemory, name: str, stored: tuple[bytes, ...] | None
) -> None:
    if stored is not None:
        google.store(name, *stored)
    missing = await failure(provider, context(google), name)
    assert missing.reason is ErrorReason.SECRET_NOT_FOUND
    assert missing.message == f'secret "{name}" of project "my-project-1" does not exist, or has no version'


async def test_a_version_that_is_not_there_is_not_found(google: Google, provider: InMemory, name: str) -> None:
    google.store(name, b"first")
    missing = await failure(provider, context(google), RemoteRef(name, version="7"))
    assert missing.reason is ErrorReason.VERSION_NOT_FOUND
    assert 'version "7"' in missing.message


def disable(google: Google, made: str, version: int, *, how: str = "disable") -> None:
    """Disable or destroy a version."""
    method = getattr(google.admin, f"{how}_secret_version")
    method(request={"name": f"{made}/versions/{version}"}, metadata=google.metadata)
    google.secrets.reset()


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        pytest.param("disable", ErrorReason.BACKEND_ERROR, id="disabled"),
        pytest.param("destroy", ErrorReason.VERSION_NOT_FOUND, id="destroyed"),
    ],
)
async def test_a_version_that_cannot_be_read_is_said_to_be_so(
    google: Google, provider: InMemory, name: str, how: str, reason: ErrorReason
) -> None:
    disable(google, google.store(name, b"first", b"second"), 2, how=how)
    failed = await failure(provider, context(google), name)
    assert failed.reason is reason
    assert f"the latest version is {how.rstrip('e')}" in failed.message
    assert "LatestOrFetch" in failed.message


async def test_latest_or_fetch_reads_the_newest_enabled_version(google: Google, provider: InMemory, name: str) -> None:
    made = google.store(name, b"first", b"second", b"third", b"fourth")
    disable(google, made, 4)
    disable(google, made, 3, how="destroy")
    call = context(google, secretVersionSelectionPolicy="LatestOrFetch")
    assert await read(provider, call, name) == [b"second"]
    assert google.secrets.calls == {"AccessSecretVersion": 2, "ListSecretVersions": 1}


async def test_latest_or_fetch_without_an_enabled_version_says_why(
    google: Google, provider: InMemory, name: str
) -> None:
    disable(google, google.store(name, b"first"), 1)
    call = context(google, secretVersionSelectionPolicy="LatestOrFetch")
    assert "is disabled" in (await failure(provider, call, name)).message


async def test_a_regional_store_reads_the_secrets_of_its_location(
    google: Google, provider: InMemory, name: str
) -> None:
    google.store(name, b"global")
    google.store(name, b"regional", location="europe-west3")
    assert await read(provider, context(google, location="europe-west3"), name) == [b"regional"]
    assert google.secrets.recorded == [
        ("AccessSecretVersion", f"projects/my-project-1/locations/europe-west3/secrets/{name}/versions/latest")
    ]
    missing = await failure(provider, context(google, location="europe-west1"), name)
    assert 'project "my-project-1" in europe-west1' in missing.message


@pytest.mark.parametrize(
    ("key", "version"), [pytest.param("a/b", "", id="a slash"), pytest.param("db", "1/../2", id="a path as version")]
)
async def test_names_that_google_cannot_have_are_refused_without_a_call(
    google: Google, provider: InMemory, key: str, version: str
) -> None:
    refused = await failure(provider, context(google), RemoteRef(key, version=version))
    assert refused.reason is ErrorReason.INVALID_REQUEST
    assert not google.secrets.calls


@pytest.mark.parametrize(
    ("version", "enabled"),
    [
        pytest.param("", True, id="a value"),
        pytest.param("1", True, id="a version"),
        pytest.param("1", False, id="a disabled version"),
        pytest.param("", False, id="no enabled version"),
    ],
)
async def test_a_check_reads_no_value(
    google: Google, provider: InMemory, name: str, version: str, enabled: bool
) -> None:
    made = google.store(name, b"first")
    if not enabled:
        disable(google, made, 1)
    (result,) = await provider.check(context(google), [GetItem("one", RemoteRef(name, version=version))])
    assert result.exists is enabled
    assert "AccessSecretVersion" not in google.secrets.calls


async def test_a_check_of_a_secret_that_is_not_there_says_so(google: Google, provider: InMemory, name: str) -> None:
    (result,) = await provider.check(context(google), [GetItem("one", RemoteRef(name))])
    assert (result.exists, result.error) == (False, None)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        pytest.param({"projectID": "a/b"}, "/projectID", id="project"),
        pytest.param({"projectID": ""}, "/projectID", id="a key without a project"),
        pytest.param({"location": "eu/../x"}, "/location", id="location"),
        pytest.param({"secretVersionSelectionPolicy": "x"}, "/secretVersionSelectionPolicy", id="policy"),
        pytest.param({"auth": {"secretRef": {}}}, KEY, id="no key"),
        pytest.param({"auth": {"workloadIdentityFederation": {}}}, "/auth/workloadIdentityFederation", id="no form"),
    ],
)
async def test_an_unusable_configuration_names_the_field(provider: InMemory, spec: dict[str, Any], path: str) -> None:
    call = call_context(SecretManagerStore, {"projectID": PROJECT, "auth": AUTH} | spec, {KEY: "{}"})
    validation = await provider.validate(call)
    assert validation.error is not None
    assert validation.error.reason is ErrorReason.CONFIG_INVALID
    assert validation.error.message.startswith(f"{path}:")
