"""Lists: selectors, pages, resource versions."""

from __future__ import annotations

import secrets as random
from typing import Any

import pytest

from kuberun.testing.rawapi import RawApi, Reply

pytestmark = pytest.mark.live


def names(reply: Reply) -> list[str]:
    return [item["metadata"]["name"] for item in reply.body["items"]]


@pytest.fixture
async def three(api: RawApi, configmaps: str) -> str:
    """Maps a, b and c with labels; the collection's path."""
    for name, labels in (("a", {"tier": "front"}), ("b", {"tier": "back", "old": ""}), ("c", {})):
        await api.post(configmaps, {"metadata": {"name": name, "labels": labels}})
    return configmaps


async def test_a_list_has_its_kind_and_version_and_items_have_none(api: RawApi, three: str) -> None:
    reply = await api.get(three)

    assert (reply.body["kind"], reply.body["apiVersion"]) == ("ConfigMapList", "v1")
    assert int(reply.body["metadata"]["resourceVersion"]) > 0
    assert ["kind" in item for item in reply.body["items"]] == [False, False, False]


async def test_items_of_a_custom_list_keep_their_kind(api: RawApi, widgets: str, widget: Any) -> None:
    await api.post(widgets, widget("a"))

    reply = await api.get(widgets)

    assert reply.body["kind"] == "WidgetList"
    assert reply.body["items"][0]["kind"] == "Widget"


async def test_a_list_is_ordered_by_name(api: RawApi, configmaps: str) -> None:
    for name in ("b", "c", "a"):
        await api.post(configmaps, {"metadata": {"name": name}})

    assert names(await api.get(configmaps)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param("tier=front", ["a"], id="equals"),
        pytest.param("tier==front", ["a"], id="equals with two signs"),
        pytest.param("tier!=front", ["b", "c"], id="not equal also matches objects without the label"),
        pytest.param("tier in (front, back)", ["a", "b"], id="in a set"),
        pytest.param("tier notin (front)", ["b", "c"], id="not in a set also matches objects without the label"),
        pytest.param("tier", ["a", "b"], id="exists"),
        pytest.param("!tier", ["c"], id="does not exist"),
        pytest.param("old=", ["b"], id="equals the empty value"),
        pytest.param("tier=back,old", ["b"], id="both"),
        pytest.param("tier=nothing", [], id="no match"),
        pytest.param("", ["a", "b", "c"], id="the empty selector matches all"),
    ],
)
async def test_label_selectors(api: RawApi, three: str, selector: str, expected: list[str]) -> None:
    assert names(await api.get(three, labelSelector=selector)) == expected


@pytest.mark.parametrize("selector", ["a b", "tier in front", "=x", "tier=a=b", "tier in (a", "-x=y", "x=-y"])
async def test_a_broken_label_selector_is_a_bad_request(api: RawApi, three: str, selector: str) -> None:
    reply = await api.get(three, labelSelector=selector)

    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert reply.message


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param("metadata.name=a", ["a"], id="by name"),
        pytest.param("metadata.name!=a", ["b", "c"], id="not by name"),
        pytest.param("metadata.name=a,metadata.name=b", [], id="two names match nothing"),
        pytest.param("metadata.namespace=elsewhere", [], id="another namespace"),
    ],
)
async def test_field_selectors(api: RawApi, three: str, selector: str, expected: list[str]) -> None:
    assert names(await api.get(three, fieldSelector=selector)) == expected


async def test_a_field_that_is_not_selectable_is_a_bad_request(api: RawApi, configmaps: str) -> None:
    reply = await api.get(configmaps, fieldSelector="data.k=v")

    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert "data.k" in reply.message


async def test_secrets_are_selectable_by_type(api: RawApi, secrets: str) -> None:
    await api.post(secrets, {"metadata": {"name": "a"}, "type": "example.com/one"})
    await api.post(secrets, {"metadata": {"name": "b"}})

    assert names(await api.get(secrets, fieldSelector="type=example.com/one")) == ["a"]
    assert names(await api.get(secrets, fieldSelector="type=Opaque")) == ["b"]


async def test_custom_objects_are_selectable_by_declared_fields(api: RawApi, widgets: str, widget: Any) -> None:
    await api.post(widgets, widget("a", colour="green"))
    await api.post(widgets, widget("b"))

    assert names(await api.get(widgets, fieldSelector="spec.colour=green")) == ["a"]
    assert names(await api.get(widgets, fieldSelector="spec.colour=red")) == ["b"]
    assert names(await api.get(widgets, fieldSelector="spec.colour!=red")) == ["a"]


async def test_other_fields_of_custom_objects_are_not_selectable(api: RawApi, widgets: str) -> None:
    reply = await api.get(widgets, fieldSelector="spec.size=1")

    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert reply.message == "field label not supported: spec.size"


async def test_a_list_across_namespaces(api: RawApi, configmaps: str) -> None:
    mark = f"m{random.token_hex(4)}"
    await api.post(configmaps, {"metadata": {"name": "a", "labels": {"mark": mark}}})
    await api.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": mark, "labels": {"mark": mark}}})

    reply = await api.get("/api/v1/configmaps", labelSelector=f"mark={mark}")

    await api.delete(f"/api/v1/namespaces/default/configmaps/{mark}")
    assert sorted(names(reply)) == sorted(["a", mark])


class TestPages:
    async def test_pages_cover_everything_once(self, api: RawApi, three: str) -> None:
        first = await api.get(three, limit=2)
        second = await api.get(three, limit=2, **{"continue": first.body["metadata"]["continue"]})

        assert names(first) == ["a", "b"]
        assert first.body["metadata"]["remainingItemCount"] == 1
        assert names(second) == ["c"]
        assert not second.body["metadata"].get("continue")
        assert "remainingItemCount" not in second.body["metadata"]

    async def test_all_pages_show_one_moment(self, api: RawApi, three: str) -> None:
        first = await api.get(three, limit=1)
        await api.post(three, {"metadata": {"name": "d"}})
        await api.delete(f"{three}/b")

        second = await api.get(three, limit=5, **{"continue": first.body["metadata"]["continue"]})

        assert names(second) == ["b", "c"]
        assert second.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]

    async def test_a_limit_beyond_the_end_needs_no_next_page(self, api: RawApi, three: str) -> None:
        reply = await api.get(three, limit=3)

        assert names(reply) == ["a", "b", "c"]
        assert not reply.body["metadata"].get("continue")

    async def test_a_selector_leaves_the_remaining_count_out(self, api: RawApi, three: str) -> None:
        reply = await api.get(three, limit=1, labelSelector="tier")

        assert names(reply) == ["a"]
        assert reply.body["metadata"]["continue"]
        assert "remainingItemCount" not in reply.body["metadata"]

    async def test_a_broken_continue_token_is_a_bad_request(self, api: RawApi, three: str) -> None:
        reply = await api.get(three, limit=1, **{"continue": "rubbish"})

        assert (reply.status, reply.reason) == (400, "BadRequest")
        assert reply.message.startswith("invalid continue token: continue key is not valid")

    async def test_a_continue_token_excludes_a_resource_version(self, api: RawApi, three: str) -> None:
        first = await api.get(three, limit=1)
        token = first.body["metadata"]["continue"]

        reply = await api.get(three, limit=1, **{"continue": token, "resourceVersion": "1"})

        assert (reply.status, reply.reason) == (400, "BadRequest")
        assert reply.message == "specifying resource version is not allowed when using continue"

    @pytest.mark.usefixtures("three")
    async def test_pages_span_namespaces(self, api: RawApi, namespace: str) -> None:
        seen: list[str] = []
        token = ""
        while True:
            page = await api.get("/api/v1/configmaps", limit=1, **{"continue": token})
            seen += [
                item["metadata"]["name"] for item in page.body["items"] if item["metadata"]["namespace"] == namespace
            ]
            token = page.body["metadata"].get("continue", "")
            if not token:
                break

        assert seen == ["a", "b", "c"]


class TestResourceVersions:
    async def test_zero_accepts_any_state(self, api: RawApi, three: str) -> None:
        reply = await api.get(three, resourceVersion="0")

        assert reply.status == 200

    async def test_a_list_at_least_as_new(self, api: RawApi, three: str) -> None:
        created = await api.post(three, {"metadata": {"name": "d"}})

        reply = await api.get(three, resourceVersion=created.body["metadata"]["resourceVersion"])

        assert names(reply) == ["a", "b", "c", "d"]

    async def test_an_exact_list_shows_the_past(self, api: RawApi, three: str) -> None:
        before = (await api.get(three)).body["metadata"]["resourceVersion"]
        await api.delete(f"{three}/a")

        reply = await api.get(three, resourceVersion=before, resourceVersionMatch="Exact")

        assert names(reply) == ["a", "b", "c"]
        assert reply.body["metadata"]["resourceVersion"] == before

    @pytest.mark.parametrize(
        ("query", "cause"),
        [
            pytest.param({"resourceVersionMatch": "Exact"}, "resourceVersionMatch", id="a match without a version"),
            pytest.param(
                {"resourceVersion": "0", "resourceVersionMatch": "Exact"}, "resourceVersionMatch", id="exactly zero"
            ),
            pytest.param(
                {"resourceVersion": "1", "resourceVersionMatch": "Perhaps"},
                "resourceVersionMatch",
                id="an unknown match",
            ),
        ],
    )
    async def test_a_bad_match_is_invalid(self, api: RawApi, three: str, query: dict[str, str], cause: str) -> None:
        reply = await api.get(three, **query)

        assert (reply.status, reply.reason) == (422, "Invalid")
        assert reply.body["details"]["kind"] == "ListOptions"
        assert cause in {one["field"] for one in reply.causes}

    async def test_a_version_that_is_not_a_number_is_refused(self, api: RawApi, three: str) -> None:
        reply = await api.get(three, resourceVersion="rubbish")

        assert reply.status == 400

    async def test_a_version_from_the_future_is_a_timeout_to_retry(self, api: RawApi, three: str) -> None:
        reply = await api.get(three, resourceVersion="999999999")

        assert (reply.status, reply.reason) == (504, "Timeout")
        assert reply.message.startswith("Timeout: Too large resource version: 999999999, current: ")
        assert [cause["reason"] for cause in reply.causes] == ["ResourceVersionTooLarge"]

    async def test_a_get_at_least_as_new(self, api: RawApi, three: str) -> None:
        created = await api.post(three, {"metadata": {"name": "d"}})

        reply = await api.get(f"{three}/d", resourceVersion=created.body["metadata"]["resourceVersion"])

        assert reply.status == 200
