"""Typed verbs: which requests they send and how responses are decoded, on a real socket."""

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from kubebase import meta
from kubebase.meta import Kind, Malformed, Object, ObjectKey, ObjectMeta, Page
from kuberun.client import BoundObject, Client
from kuberun.connection import Connection, Credential, FixedCredentials
from kuberun.errors import BadResponse, Gone, NotFound
from kuberun.requests import DeleteOptions, FieldValidation, Propagation, Selection, WriteOptions
from kuberun.testing import scriptedserver as script
from kuberun.testing.builders import CONFIG_MAPS, WIDGETS, config_map, document, key
from kuberun.testing.scriptedserver import ScriptedServer, scripted_server
from kuberun.transport import AiohttpTransport

PLANTED = "PLANTED-value-0815"
CONFIGS = meta.raw(CONFIG_MAPS)
ONLY_METADATA = meta.metadata_of(WIDGETS)


class Spec(msgspec.Struct, omit_defaults=True):
    size: int = 0
    mode: str = ""


class Widget(Object, kw_only=True):
    spec: Spec = msgspec.field(default_factory=Spec)


WIDGET = Kind(WIDGETS, Widget)


def widget(name: str = "one", **spec: Any) -> dict[str, Any]:
    return document(WIDGETS, name, spec=spec, metadata={"resourceVersion": "5"})


def listing(*items: Any, **metadata: Any) -> script.ScriptedResponse:
    return script.json({"kind": "List", "metadata": {"resourceVersion": "9", **metadata}, "items": items})


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as running:
        yield running


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[Client]:
    made = Client(AiohttpTransport(Connection(server.url, FixedCredentials(Credential()))))
    yield made
    await made.close()


# --- reading ---------------------------------------------------------------------------------------------------------


async def test_get_decodes_to_the_type_of_the_kind(server: ScriptedServer, client: Client) -> None:
    server.will(script.json(widget(size=3, unknown={"x": 1})))

    typed = await client.get(WIDGET, key())
    plain = await client.get(meta.raw(WIDGETS), key())

    assert (typed.spec.size, typed.key) == (3, ObjectKey("default", "one"))
    assert plain["spec"]["unknown"] == {"x": 1}


async def test_metadata_only_looks_like_its_own_kind(server: ScriptedServer, client: Client) -> None:
    server.will(
        script.json({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "x"}})
    )

    found = await client.get(ONLY_METADATA, key())

    assert found == Object(api_version="example.com/v1", kind="Widget", metadata=ObjectMeta(name="x"))
    assert "as=PartialObjectMetadata;" in server.received[0].headers["Accept"]


async def test_metadata_only_omits_the_copy_of_the_manifest(server: ScriptedServer, client: Client) -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": PLANTED, "note": "kept"}
    server.will(script.json(document(WIDGETS, "one", metadata={"annotations": annotations})))

    found = await client.get(ONLY_METADATA, key())
    whole = await client.get(meta.raw(WIDGETS), key())

    assert found.metadata.annotations == {"note": "kept"}
    assert whole["metadata"]["annotations"] == annotations


async def test_a_source_of_metadata_keeps_only_the_annotations_that_it_is_asked_for(
    server: ScriptedServer, client: Client
) -> None:
    item = document(WIDGETS, "one", metadata={"annotations": {"mine/a": "kept", "note": "x" * 100_000}})
    server.will(script.json({"metadata": {"resourceVersion": "1"}, "items": [item]}))
    source = client.source(ONLY_METADATA, annotations=lambda name: name.startswith("mine/"))

    page = await source.list_page(limit=1, continue_token="", resource_version="")
    event = source.decode(json.dumps(item).encode())

    for found in (*page.items, event):
        assert found.metadata.annotations == {"mine/a": "kept"}


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(script.json(widget(size=PLANTED)), id="a field of another type"),
        pytest.param(script.json([PLANTED]), id="no object"),
        pytest.param(script.text(PLANTED.encode()), id="no JSON"),
        pytest.param(script.text(b""), id="nothing"),
    ],
)
async def test_an_object_that_cannot_be_read_is_a_bad_answer(
    server: ScriptedServer, client: Client, response: script.ScriptedResponse
) -> None:
    server.will(response)

    with pytest.raises(BadResponse, match=r"GET /apis/example\.com/v1/namespaces/default/widgets/one: ") as caught:
        await client.get(WIDGET, key())
    assert PLANTED not in str(caught.value)


async def test_one_bad_object_never_breaks_the_list(server: ScriptedServer, client: Client) -> None:
    server.will(listing(widget("good", size=1), widget("bad", size=PLANTED), {"metadata": PLANTED}, 7, widget("last")))

    page = await client.list(WIDGET)

    good, bad, worse, worst, last = page.items
    assert [item.key.name for item in (good, bad, worse, worst, last)] == ["good", "bad", "", "", "last"]
    assert isinstance(good, Widget)
    assert isinstance(last, Widget)
    assert isinstance(bad, Malformed)
    assert bad.error == "Expected `int`, got `str` - at `$.spec.size`"
    assert bad.metadata.resource_version == "5"
    assert isinstance(worse, Malformed)
    assert isinstance(worst, Malformed)
    assert PLANTED not in repr(page)


async def test_items_of_a_list_know_what_they_are(server: ScriptedServer, client: Client) -> None:
    server.will(listing({"metadata": {"name": "x"}}))

    typed = await client.list(WIDGET)
    plain = await client.list(meta.raw(WIDGETS))

    assert [(item.api_version, item.kind) for item in typed.items if isinstance(item, Widget)] == [
        ("example.com/v1", "Widget")
    ]
    assert plain.items == [{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x"}}]


async def test_a_list_is_gathered_page_by_page(server: ScriptedServer, client: Client) -> None:
    server.will(listing(widget("a"), **{"continue": "more", "remainingItemCount": 1}), listing(widget("b")))

    page = await client.list(WIDGET, Selection("team", "x=y"), size=1)

    assert [item.key.name for item in page.items] == ["a", "b"]
    assert page.resource_version == "9"
    assert [received.target.partition("?")[2] for received in server.received] == [
        "labelSelector=x%3Dy&limit=1",
        "labelSelector=x%3Dy&limit=1&continue=more",
    ]


async def test_pages_come_one_at_a_time(server: ScriptedServer, client: Client) -> None:
    server.will(listing(widget("a"), **{"continue": "more", "remainingItemCount": 1}), listing(widget("b")))
    pages: list[Page[Widget]] = []
    seen: list[int] = []

    async for page in client.pages(WIDGET, size=1):
        pages.append(page)
        seen.append(len(server.received))

    assert seen == [1, 2]
    assert [(page.continue_token, page.remaining_item_count) for page in pages] == [("more", 1), ("", None)]


async def test_a_continue_token_that_expired_is_gone(server: ScriptedServer, client: Client) -> None:
    server.will(listing(widget("a"), **{"continue": "more"}), script.failure(410, "Expired"))

    with pytest.raises(Gone):
        await client.list(WIDGET, size=1)


@pytest.mark.parametrize("body", [{"items": 1}, {"metadata": {}}, []], ids=["items", "no items", "no object"])
async def test_a_list_that_is_none_is_a_bad_answer(server: ScriptedServer, client: Client, body: Any) -> None:
    server.will(script.json(body))

    with pytest.raises(BadResponse, match="is not a list"):
        await client.list(WIDGET)


async def test_an_empty_list_may_have_null_for_items(server: ScriptedServer, client: Client) -> None:
    server.will(script.json({"metadata": {"resourceVersion": "3"}, "items": None}))

    assert await client.list(WIDGET) == Page([], "3")


async def test_a_source_streams_frames_and_decodes_them(server: ScriptedServer, client: Client) -> None:
    frame = msgspec.json.encode({"type": "ADDED", "object": widget(size=2)})
    server.will(server.lines(frame + b"\n"))
    source = client.source(WIDGET, Selection("team"))

    async with source.watch(resource_version="5", timeout_seconds=10) as frames:
        received = [line async for line in frames]

    assert received == [frame]
    decoded = source.decode(msgspec.json.encode(widget(size=2)))
    assert isinstance(decoded, Widget)
    assert decoded.spec.size == 2
    assert server.received[0].target == (
        "/apis/example.com/v1/namespaces/team/widgets?watch=true&resourceVersion=5&timeoutSeconds=10"
        "&allowWatchBookmarks=true"
    )


async def test_a_metadata_source_asks_for_metadata_in_both_forms(server: ScriptedServer, client: Client) -> None:
    server.will(listing(), server.lines())
    source = client.source(ONLY_METADATA)

    await source.list_page(limit=1, continue_token="", resource_version="")
    async with source.watch(resource_version="5", timeout_seconds=10):
        pass

    assert [received.headers["Accept"].partition(";")[2] for received in server.received] == [
        "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        "as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    ]


# --- writing ---------------------------------------------------------------------------------------------------------


async def test_create_fills_in_what_the_kind_knows(server: ScriptedServer, client: Client) -> None:
    server.will(script.json(widget(size=1), code=201))
    new = Widget(metadata=ObjectMeta(name="one", namespace="default"), spec=Spec(size=1))

    created = await client.create(WIDGET, new)

    assert created.metadata.resource_version == "5"
    assert server.received[0].json == {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "one", "namespace": "default"},
        "spec": {"size": 1},
    }


async def test_update_replaces_a_plain_object(server: ScriptedServer, client: Client) -> None:
    server.will(script.json(config_map()))

    await client.update(CONFIGS, config_map(data={"a": "b"}), options=WriteOptions(dry_run=True))

    assert server.received[0].method == "PUT"
    assert server.received[0].target == "/api/v1/namespaces/default/configmaps/one?dryRun=All"
    assert server.received[0].json["data"] == {"a": "b"}


async def test_a_decoded_struct_is_never_put_back(server: ScriptedServer, client: Client) -> None:
    with pytest.raises(TypeError, match="lacks fields: patch or apply it"):
        await client.update(WIDGET, Widget())  # type: ignore[arg-type]  # the type checker says so, too

    assert server.received == []


async def test_patches_send_what_they_are_given(server: ScriptedServer, client: Client) -> None:
    server.will(script.json(widget()))
    operations = [{"op": "remove", "path": "/spec/size"}]

    await client.merge_patch(WIDGET, key(), {"spec": {"size": None}})
    await client.json_patch(WIDGET, key(), operations, subresource="status")

    merge, patch = server.received
    assert (merge.headers["Content-Type"], merge.json) == ("application/merge-patch+json", {"spec": {"size": None}})
    assert (patch.headers["Content-Type"], patch.json) == ("application/json-patch+json", operations)
    assert patch.target.endswith("/widgets/one/status")


async def test_apply_names_its_manager_and_its_options(server: ScriptedServer, client: Client) -> None:
    server.will(script.json(widget()))
    mine = {"metadata": {"name": "one", "namespace": "default"}, "spec": {"size": 1}}

    await client.apply(
        WIDGET,
        mine,
        field_manager="me",
        force=True,
        options=WriteOptions(field_validation=FieldValidation.STRICT, field_manager="ignored"),
    )

    (received,) = server.received
    assert received.headers["Content-Type"] == "application/apply-patch+yaml"
    assert received.target.partition("?")[2] == "fieldManager=me&fieldValidation=Strict&force=true"
    assert received.json == {"apiVersion": "example.com/v1", "kind": "Widget", **mine}


async def test_delete_takes_preconditions(server: ScriptedServer, client: Client) -> None:
    server.will(script.json({"kind": "Status", "status": "Success"}))

    await client.delete(WIDGET, key(), DeleteOptions(uid="u", propagation=Propagation.ORPHAN))
    await client.delete_collection(WIDGET, Selection("team", "a=b"))

    one, many = server.received
    assert (one.method, one.json["preconditions"], one.json["propagationPolicy"]) == ("DELETE", {"uid": "u"}, "Orphan")
    assert (many.method, many.target) == ("DELETE", "/apis/example.com/v1/namespaces/team/widgets?labelSelector=a%3Db")


async def test_deleting_what_is_not_there_says_so(server: ScriptedServer, client: Client) -> None:
    server.will(script.failure(404, "NotFound"))

    with pytest.raises(NotFound):
        await client.delete(WIDGET, key())


# --- other -----------------------------------------------------------------------------------------------------------


async def test_a_token_is_requested_and_does_not_show(server: ScriptedServer, client: Client) -> None:
    server.will(script.json({"status": {"token": PLANTED, "expirationTimestamp": "2030-01-01T00:00:00Z"}}, code=201))

    token = await client.token_request(
        key("robot"), audiences=["vault"], expiration_seconds=600, bound_to=BoundObject("v1", "Secret", "s", "u")
    )

    assert token.value == PLANTED
    assert PLANTED not in repr(token)
    (received,) = server.received
    assert received.target == "/api/v1/namespaces/default/serviceaccounts/robot/token"
    assert received.json["spec"] == {
        "audiences": ["vault"],
        "expirationSeconds": 600,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "u"},
    }


async def test_a_token_answer_of_another_form_is_a_bad_answer(server: ScriptedServer, client: Client) -> None:
    server.will(script.json({"status": {"token": [PLANTED]}}))

    with pytest.raises(BadResponse, match="another form") as caught:
        await client.token_request(key("robot"))
    assert PLANTED not in str(caught.value)


async def test_a_path_that_is_no_object_can_be_read(server: ScriptedServer, client: Client) -> None:
    server.will(script.json({"major": "1"}))

    assert await client.read("/version", dict[str, str]) == {"major": "1"}
