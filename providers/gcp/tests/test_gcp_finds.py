"""Finding secrets: by name, path and labels, in all pages and in the right place."""

from __future__ import annotations

import pytest

from eso_provider_gcp import reading
from eso_provider_gcp.testing.sessions import Google, context
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import FindQuery


@pytest.fixture
def stem(google: Google, name: str) -> str:
    """The beginning of the ids of three secrets, with labels."""
    google.store(f"{name}-db", b"1", labels={"team": name, "tier": "back"})
    google.store(f"{name}-web", b"2", labels={"team": name, "tier": "front"})
    google.store(f"x-{name}-db", b"3", labels={"team": name})
    google.store(f"{name}-empty", labels={"team": name, "tier": "back"})
    return name


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param({"name_regexp": "{stem}-db$"}, {"{stem}-db", "x-{stem}-db"}, id="name, anywhere in the id"),
        pytest.param({"name_regexp": "db$", "path": "{stem}"}, {"{stem}-db"}, id="path is a prefix"),
        pytest.param({"tags": {"team": "{stem}", "tier": "back"}}, {"{stem}-db"}, id="labels, all of them"),
        pytest.param(
            {"name_regexp": "{stem}-(db|web)", "tags": {"tier": "none"}},
            {"{stem}-db", "{stem}-web", "x-{stem}-db"},
            id="a name wins over labels",
        ),
        pytest.param({"name_regexp": "^{stem}-none"}, set(), id="nothing"),
    ],
)
async def test_a_query_gives_the_secrets_that_match(
    google: Google, provider: InMemory, stem: str, query: dict[str, object], expected: set[str]
) -> None:
    def filled(value: object) -> object:
        if isinstance(value, dict):
            return {key: filled(each) for key, each in value.items()}
        return str(value).replace("{stem}", stem)

    request = FindQuery(**{key: filled(value) for key, value in query.items()})  # type: ignore[arg-type] # a table
    found = await provider.find(context(google), request)
    assert {each.key for each in found} == {key.replace("{stem}", stem) for key in expected}
    assert google.secrets.calls["ListSecrets"] == 1


async def test_a_find_reads_the_value_and_version_of_every_match(google: Google, provider: InMemory, stem: str) -> None:
    found = await provider.find(context(google), FindQuery(name_regexp=f"^{stem}-"))
    values = {each.key: (each.value.reveal(), each.metadata.provider_version) for each in found}
    assert values == {f"{stem}-db": (b"1", "1"), f"{stem}-web": (b"2", "1")}


async def test_all_pages_are_searched(
    google: Google, provider: InMemory, stem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PAGE", 1)
    found = await provider.find(context(google), FindQuery(tags={"team": stem}))
    assert {each.key for each in found} == {f"{stem}-db", f"{stem}-web", f"x-{stem}-db"}
    assert google.secrets.calls["ListSecrets"] == 4


async def test_a_regional_store_finds_by_labels_in_its_location(google: Google, provider: InMemory, stem: str) -> None:
    google.store(f"{stem}-eu", b"eu", location="europe-west3", labels={"team": stem})
    found = await provider.find(context(google, location="europe-west3"), FindQuery(tags={"team": stem}))
    assert [(each.key, each.value.reveal()) for each in found] == [(f"{stem}-eu", b"eu")]


@pytest.mark.parametrize("query", [FindQuery(), FindQuery(path="db")], ids=["nothing", "a path alone"])
async def test_a_find_without_name_and_tags_is_refused(google: Google, provider: InMemory, query: FindQuery) -> None:
    with pytest.raises(ProviderError) as caught:
        await provider.find(context(google), query)

    assert caught.value.reason is ErrorReason.INVALID_REQUEST
    assert "needs name.regexp or tags" in caught.value.message
    assert not google.secrets.calls


async def test_an_invalid_regular_expression_is_an_error(google: Google, provider: InMemory) -> None:
    with pytest.raises(ProviderError) as caught:
        await provider.find(context(google), FindQuery(name_regexp="(["))
    assert caught.value.reason is ErrorReason.INVALID_REQUEST
    assert not google.secrets.calls


async def test_a_disabled_match_fails_the_find_and_is_named(google: Google, provider: InMemory, stem: str) -> None:
    version = f"projects/my-project-1/secrets/{stem}-db/versions/1"
    google.admin.disable_secret_version(request={"name": version}, metadata=google.metadata)
    with pytest.raises(ProviderError) as caught:
        await provider.find(context(google), FindQuery(name_regexp=f"^{stem}"))
    assert f'secret "{stem}-db"' in caught.value.message
    assert "is disabled" in caught.value.message
