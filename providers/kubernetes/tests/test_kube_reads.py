"""Reading Secrets of a cluster: values, maps, metadata, searches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eso_wire.errors import ProviderError
from eso_wire.values import GetItem, MetadataPolicy, RemoteRef

pytestmark = pytest.mark.live

ANNOTATIONS = {"example.com/contact": '{"mail":{"work":"a@example.com"}}', "plain": "note"}


@pytest.fixture
async def filled(remote: Any, store: Any) -> Any:
    values = {
        "password": "s3cret<&>",
        "login": '{"user":"anna","ports":[1,2],"none":null,"deep":{"x":"y"}}',
        "tls.crt": "certificate",
        "text": "no json",
    }
    labels = {"app": "shop", "example.com/owner": "x"}
    await remote.put("db", values, metadata={"labels": labels, "annotations": ANNOTATIONS})
    return store


@pytest.mark.parametrize(
    ("prop", "expected"),
    [
        pytest.param("password", "s3cret<&>", id="a data key is read as it is"),
        pytest.param("tls.crt", "certificate", id="a data key with a dot is found by its literal name"),
        pytest.param("login.user", "anna", id="what follows the first dot is a path inside the value"),
        pytest.param("login.deep", '{"x":"y"}', id="an object inside the value stays JSON"),
        pytest.param("login.ports.1", "2", id="array elements are found by index"),
        pytest.param("login.none", "", id="null is found and empty"),
    ],
)
async def test_property(filled: Any, prop: str, expected: str) -> None:
    assert await filled.read("db", property=prop) == expected


@pytest.mark.parametrize(
    "prop",
    [
        pytest.param("absent", id="a missing data key"),
        pytest.param("login.absent", id="a missing path"),
        pytest.param("absent.path", id="a path in a missing data key"),
        pytest.param("text.path", id="a path in a value that is no JSON"),
    ],
)
async def test_a_missing_property_is_not_a_missing_secret(filled: Any, prop: str) -> None:
    error = await filled.read("db", property=prop)

    assert error.reason.value == "PROPERTY_NOT_FOUND"
    assert "no json" not in error.message


async def test_without_property_the_whole_data_is_one_json_object(filled: Any) -> None:
    text = await filled.read("db")

    assert list(json.loads(text)) == ["login", "password", "text", "tls.crt"]
    assert '"password":"s3cret<&>"' in text


async def test_a_version_is_ignored(filled: Any) -> None:
    assert await filled.read("db", property="password", version="7") == "s3cret<&>"


async def test_a_missing_secret_is_not_found_as_a_value_and_as_a_map(store: Any) -> None:
    assert (await store.read("absent", property="x")).reason.value == "SECRET_NOT_FOUND"
    assert (await store.read_map("absent")).reason.value == "SECRET_NOT_FOUND"


async def test_a_map_holds_all_data(filled: Any) -> None:
    found = await filled.read_map("db")

    assert (found["password"], found["tls.crt"], len(found)) == ("s3cret<&>", "certificate", 4)


async def test_a_map_of_a_property_holds_its_members_without_quotes(filled: Any) -> None:
    found = await filled.read_map("db", property="login")

    assert found == {"user": "anna", "ports": "[1,2]", "none": "", "deep": '{"x":"y"}'}


async def test_a_map_of_a_property_that_is_no_object_fails_without_quoting_it(filled: Any) -> None:
    error = await filled.read_map("db", property="text")

    assert error.reason.value == "BACKEND_ERROR"
    assert "no json" not in error.message


@pytest.mark.parametrize(
    ("prop", "expected"),
    [
        pytest.param("labels", '{"app":"shop","example.com/owner":"x"}', id="all labels"),
        pytest.param("labels.app", "shop", id="one label"),
        pytest.param("labels.example.com/owner", "x", id="a label whose key has dots"),
        pytest.param("annotations.plain", "note", id="one annotation"),
        pytest.param("annotations.example.com/contact.mail.work", "a@example.com", id="a path inside an annotation"),
    ],
)
async def test_metadata(filled: Any, prop: str, expected: str) -> None:
    assert await filled.read("db", property=prop, metadata_policy=MetadataPolicy.FETCH) == expected


async def test_metadata_without_property_is_labels_and_annotations(filled: Any) -> None:
    text = await filled.read("db", metadata_policy=MetadataPolicy.FETCH)
    members = await filled.read_map("db", metadata_policy=MetadataPolicy.FETCH)

    assert json.loads(text) == {"labels": {"app": "shop", "example.com/owner": "x"}, "annotations": ANNOTATIONS}
    assert json.loads(members["annotations"]) == ANNOTATIONS


async def test_a_missing_label_is_a_missing_property(filled: Any) -> None:
    error = await filled.read("db", property="labels.absent", metadata_policy=MetadataPolicy.FETCH)

    assert error.reason.value == "PROPERTY_NOT_FOUND"


async def test_find_by_name_gives_the_matching_secrets_of_the_namespace(remote: Any, store: Any) -> None:
    for at in range(60):
        await remote.put(f"app-{at:02}", {"n": str(at)})
    await remote.put("other", {"n": "x"})

    found = await store.find(name_regexp="^app-")

    assert len(found) == 60
    assert found["app-07"] == '{"n":"7"}'


async def test_find_by_labels_needs_all_of_them_and_beats_the_name(remote: Any, store: Any) -> None:
    await remote.put("a", {"k": "1"}, metadata={"labels": {"team": "red", "tier": "db"}})
    await remote.put("b", {"k": "2"}, metadata={"labels": {"team": "red"}})

    assert await store.find(tags={"team": "red", "tier": "db"}, name_regexp="^b$") == {"a": '{"k":"1"}'}
    assert set(await store.find(tags={"team": "red"})) == {"a", "b"}


async def test_find_ignores_a_path_since_secrets_have_none(remote: Any, store: Any) -> None:
    await remote.put("a", {"k": "1"})

    assert set(await store.find(name_regexp="^a$", path="somewhere/")) == {"a"}


async def test_a_find_without_criteria_is_refused_and_one_without_matches_is_empty(store: Any) -> None:
    assert await store.find(name_regexp="^no-such-secret$") == {}
    with pytest.raises(ProviderError, match="or tags"):
        await store.find()


async def test_check_tells_secrets_and_keys_apart(filled: Any) -> None:
    refs = [RemoteRef("db"), RemoteRef("db", property="password"), RemoteRef("db", property="absent"), RemoteRef("x")]
    items = [GetItem(str(at), ref) for at, ref in enumerate(refs)]

    results = await filled.client.check(filled.context, items)

    assert [one.exists for one in results] == [True, True, False, False]
    assert results[0].provider_version


async def test_many_properties_of_one_secret_are_one_read(filled: Any) -> None:
    items = [GetItem(prop, RemoteRef("db", property=prop)) for prop in ("password", "login", "text", "tls.crt")]

    results = await filled.client.get(filled.context, items)

    assert len({one.metadata.provider_version for one in results}) == 1
    text = filled.client.metrics.exposition().decode()
    assert 'api_calls_count{call="GetSecret",provider="Kubernetes",status="success"} 1.0' in text


@pytest.mark.parametrize("key", ["a/b", "..", "%2e", "a b", ""])
async def test_a_key_that_no_secret_can_have_never_reaches_another_path(store: Any, key: str) -> None:
    assert (await store.read(key or "a/", property="x")).reason.value == "INVALID_REQUEST"
