"""Listing: pages of one snapshot, resource versions, selectors."""

from __future__ import annotations

from typing import Any

import pytest

from localkube.testing.verbs import Verbs, config_map, refusal


@pytest.fixture
async def five(verbs: Verbs) -> Verbs:
    for name in "abcde":
        await verbs.create("configmaps", config_map(name, labels={"vowel": "yes" if name in "ae" else "no"}))
    return verbs


async def test_lists_are_sorted_and_say_their_version(five: Verbs) -> None:
    result = await five.list("configmaps")

    assert [obj["metadata"]["name"] for obj in result.items] == list("abcde")
    assert result.resource_version == str(five.cluster.store.revision)
    assert (result.continue_token, result.remaining) == ("", None)


async def test_all_namespaces_are_listed_at_once(five: Verbs) -> None:
    await Verbs(five.cluster, "kube-system").create("configmaps", config_map("a"))

    names = await five.names("configmaps", namespace="")

    assert names == [*"abcde", "a"]


async def test_a_namespace_that_does_not_exist_lists_nothing(verbs: Verbs) -> None:
    assert await verbs.names("configmaps", namespace="nope") == []


async def test_pages_show_the_snapshot_of_the_first_one(five: Verbs) -> None:
    first = await five.list("configmaps", limit=2)
    await five.delete("configmaps", "c")
    await five.create("configmaps", config_map("cc"))
    await five.patch("configmaps", "d", {"data": {"x": "changed"}})

    second = await five.list("configmaps", limit=2, continue_token=first.continue_token)
    third = await five.list("configmaps", limit=2, continue_token=second.continue_token)

    assert (first.remaining, second.remaining, third.remaining) == (3, 1, None)
    assert [obj["metadata"]["name"] for obj in second.items] == ["c", "d"]
    assert second.items[1]["data"] == {"x": "1"}
    assert [obj["metadata"]["name"] for obj in third.items] == ["e"]
    assert third.continue_token == ""
    assert {first.resource_version, second.resource_version, third.resource_version} == {first.resource_version}


async def test_a_selected_list_does_not_say_how_many_remain(five: Verbs) -> None:
    result = await five.list("configmaps", limit=1, label_selector="vowel=yes")

    assert [obj["metadata"]["name"] for obj in result.items] == ["a"]
    assert result.continue_token
    assert result.remaining is None


async def test_an_expired_token_comes_with_one_that_goes_on_in_the_present(five: Verbs) -> None:
    first = await five.list("configmaps", limit=2)
    await five.delete("configmaps", "d")
    await five.cluster.store.compact(five.cluster.store.revision)

    error = await refusal(five.list("configmaps", limit=2, continue_token=first.continue_token))
    rest = await five.list("configmaps", limit=9, continue_token=error.to_json()["metadata"]["continue"])

    assert (error.code, error.reason) == (410, "Expired")
    assert error.message.startswith("The provided continue parameter is too old to display a consistent list result.")
    assert [obj["metadata"]["name"] for obj in rest.items] == ["c", "e"]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        pytest.param({"label_selector": "vowel=yes"}, "ae", id="labels"),
        pytest.param({"field_selector": "metadata.name=c"}, "c", id="fields"),
        pytest.param({"label_selector": "vowel=yes", "field_selector": "metadata.name!=a"}, "e", id="both"),
    ],
)
async def test_selectors(five: Verbs, query: dict[str, Any], names: str) -> None:
    assert await five.names("configmaps", **query) == list(names)


class TestResourceVersions:
    async def test_version_zero_answers_whole_lists_whatever_the_limit(self, five: Verbs) -> None:
        result = await five.list("configmaps", limit=2, resource_version="0")

        assert len(result.items) == 5
        assert result.continue_token == ""

    async def test_an_exact_version_shows_the_past(self, five: Verbs) -> None:
        version = five.cluster.store.revision
        await five.delete("configmaps", "a")

        result = await five.list("configmaps", resource_version=str(version), resource_version_match="Exact")

        assert len(result.items) == 5
        assert result.resource_version == str(version)

    async def test_not_older_than_shows_the_present(self, five: Verbs) -> None:
        version = five.cluster.store.revision
        await five.delete("configmaps", "a")

        result = await five.list("configmaps", resource_version=str(version), resource_version_match="NotOlderThan")

        assert len(result.items) == 4

    async def test_a_compacted_version_has_expired(self, five: Verbs) -> None:
        version = five.cluster.store.revision
        await five.delete("configmaps", "a")
        await five.cluster.store.compact(five.cluster.store.revision)

        error = await refusal(five.list("configmaps", resource_version=str(version), resource_version_match="Exact"))

        assert (error.code, error.message) == (410, "The resourceVersion for the provided list is too old.")

    @pytest.mark.parametrize("match", ["", "NotOlderThan", "Exact"])
    async def test_a_version_from_the_future_is_too_large(self, five: Verbs, match: str) -> None:
        error = await refusal(five.list("configmaps", resource_version="100000", resource_version_match=match))

        assert (error.code, error.reason) == (504, "Timeout")
        assert error.message == f"Timeout: Too large resource version: 100000, current: {five.cluster.store.revision}"
        assert error.details["causes"][0]["reason"] == "ResourceVersionTooLarge"

    @pytest.mark.parametrize(
        ("query", "code", "text"),
        [
            pytest.param(
                {"resource_version_match": "Exact"},
                422,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
                id="a match needs a version",
            ),
            pytest.param(
                {"resource_version_match": "Exact", "resource_version": "0"},
                422,
                'resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
                id="zero is never exact",
            ),
            pytest.param(
                {"resource_version_match": "Foo", "resource_version": "1"},
                422,
                'Unsupported value: "Foo": supported values: "Exact", "NotOlderThan", ""',
                id="unknown match",
            ),
            pytest.param({"resource_version": "x"}, 400, 'Invalid value: "x"', id="a version is a number"),
            pytest.param({"continue_token": "abc"}, 400, "continue key is not valid", id="not a token of ours"),
        ],
    )
    async def test_refusals(self, five: Verbs, query: dict[str, Any], code: int, text: str) -> None:
        error = await refusal(five.list("configmaps", **query))

        assert error.code == code
        assert text in error.message

    async def test_a_token_takes_no_version(self, five: Verbs) -> None:
        token = (await five.list("configmaps", limit=2)).continue_token

        plain = await refusal(five.list("configmaps", continue_token=token, resource_version="5"))
        matched = await refusal(
            five.list("configmaps", continue_token=token, resource_version="5", resource_version_match="Exact")
        )

        assert (plain.code, matched.code) == (400, 422)
        assert plain.message == "specifying resource version is not allowed when using continue"


async def test_an_item_read_by_one_is_not_changed_by_another(five: Verbs) -> None:
    (await five.list("configmaps")).items[0]["data"]["x"] = "mine"
    (await five.get("configmaps", "a"))["data"]["x"] = "mine"

    assert (await five.get("configmaps", "a"))["data"] == {"x": "1"}
