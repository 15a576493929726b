"""The client against an API server: localkube by default, a real kube-apiserver with `--apiserver=kube`."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
import pytest

from kubebase import meta
from kubebase.clock import SystemClock
from kubebase.meta import Condition, Kind, Object, ObjectKey, ObjectMeta, Resource
from kubebase.testing.servers import ApiServer
from kuberun.client import Client
from kuberun.config import load
from kuberun.connection import Credential, FixedCredentials
from kuberun.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Gone,
    Invalid,
    NotFound,
    NotServed,
    Unauthorized,
)
from kuberun.events import EventRecorder, EventType
from kuberun.ownership import add_finalizer, remove_finalizer
from kuberun.requests import DeleteOptions, FieldValidation, Selection, WriteOptions
from kuberun.status import set_condition, write_status
from kuberun.testing.builders import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    NAMESPACES,
    SECRETS,
    SERVICE_ACCOUNTS,
    WIDGETS,
    config_map,
    document,
    widget_crd,
)
from kuberun.transport import AiohttpTransport

pytestmark = pytest.mark.live

PLANTED = "PLANTED!!value!!0815"
CONFIGS = meta.raw(CONFIG_MAPS)


class Spec(msgspec.Struct, omit_defaults=True):
    size: int = 0


class Status(msgspec.Struct, omit_defaults=True):
    conditions: list[Condition] = []
    note: str | None = None


class Widget(Object, kw_only=True):
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)


WIDGET = Kind(WIDGETS, Widget)


@pytest.fixture
async def client(api_server: ApiServer) -> AsyncIterator[Client]:
    made = Client(AiohttpTransport(load(api_server.kubeconfig)))
    yield made
    await made.close()


@pytest.fixture
async def widgets(client: Client, namespace: str) -> Kind[Widget]:
    """Install the widget CRD and wait until it is served."""
    try:
        await client.create(meta.raw(CUSTOM_RESOURCE_DEFINITIONS), widget_crd())
    except AlreadyExists:
        return WIDGET
    async with asyncio.timeout(30):
        while True:
            try:
                await client.list(WIDGET, Selection(namespace))
            except NotServed:
                await asyncio.sleep(0.05)
            else:
                return WIDGET


# --- reading and writing ---------------------------------------------------------------------------------------------


def managers(obj: Any) -> set[tuple[str, str, str]]:
    """Return manager, operation and subresource of each entry of managedFields."""
    entries = obj["metadata"]["managedFields"]
    return {(each["manager"], each["operation"], each.get("subresource", "")) for each in entries}


async def test_writes_carry_the_field_manager_of_the_application(
    api_server: ApiServer, widgets: Kind[Widget], namespace: str
) -> None:
    key, kind = ObjectKey(namespace, "one"), meta.raw(WIDGETS)
    client = Client(AiohttpTransport(load(api_server.kubeconfig)), field_manager="my-operator")

    created = await client.create(kind, document(WIDGETS, "one", namespace, spec={"size": 1}))
    await client.update(kind, {**created, "spec": {"size": 2}})
    await client.merge_patch(kind, key, {"metadata": {"finalizers": ["example.com/hold"]}})
    await client.json_patch(kind, key, [{"op": "replace", "path": "/metadata/finalizers", "value": []}])
    await client.merge_patch(kind, key, {"metadata": {"labels": {"a": "b"}}}, options=WriteOptions("another"))
    await write_status(client, widgets, await client.get(widgets, key), Status(note="seen"))
    await client.apply(kind, document(WIDGETS, "one", namespace, spec={"size": 2}), field_manager="third")
    written = await client.get(kind, key)
    await client.close()

    assert managers(written) == {
        ("my-operator", "Update", ""),
        ("my-operator", "Update", "status"),
        ("another", "Update", ""),
        ("third", "Apply", ""),
    }


async def test_fields_of_a_former_manager_are_taken_over_without_a_conflict(
    api_server: ApiServer, client: Client, widgets: Kind[Widget], namespace: str
) -> None:
    """As after an upgrade from a version that wrote under another name."""
    key, kind = ObjectKey(namespace, "one"), meta.raw(WIDGETS)
    await client.create(kind, document(WIDGETS, "one", namespace, spec={"size": 1}), options=WriteOptions("creator"))
    before = await write_status(client, widgets, await client.get(widgets, key), Status(note="old"))
    await add_finalizer(client, widgets, before.metadata, "example.com/hold")
    renamed = Client(AiohttpTransport(load(api_server.kubeconfig)), field_manager="my-operator")

    seen = await renamed.get(widgets, key)
    await write_status(renamed, widgets, seen, Status(note="new"))
    await remove_finalizer(renamed, widgets, (await renamed.get(widgets, key)).metadata, "example.com/hold")
    written = await renamed.get(kind, key)
    await renamed.close()

    assert written["status"]["note"] == "new"
    assert "finalizers" not in written["metadata"]
    assert ("my-operator", "Update", "status") in managers(written)


async def test_the_life_of_an_object(client: Client, namespace: str) -> None:
    key = ObjectKey(namespace, "one")

    created = await client.create(CONFIGS, config_map("one", namespace, {"a": "1"}))
    updated = await client.update(CONFIGS, {**created, "data": {"a": "2"}})
    read = await client.get(CONFIGS, key)
    await client.delete(CONFIGS, key)

    assert read == updated
    assert read["data"] == {"a": "2"}
    assert (read["apiVersion"], read["kind"]) == ("v1", "ConfigMap")
    with pytest.raises(NotFound, match=f"GET /api/v1/namespaces/{namespace}/configmaps/one: "):
        await client.get(CONFIGS, key)


async def test_creating_twice_is_already_exists(client: Client, namespace: str) -> None:
    await client.create(CONFIGS, config_map("one", namespace))

    with pytest.raises(AlreadyExists) as caught:
        await client.create(CONFIGS, config_map("one", namespace))
    assert caught.value.details.name == "one"


async def test_an_update_of_an_old_version_is_a_conflict(client: Client, namespace: str) -> None:
    old = await client.create(CONFIGS, config_map("one", namespace))
    await client.update(CONFIGS, {**old, "data": {"a": "1"}})

    with pytest.raises(Conflict):
        await client.update(CONFIGS, {**old, "data": {"a": "2"}})


async def test_a_list_in_pages_is_the_same_as_in_one(client: Client, namespace: str) -> None:
    for name in "abcde":
        labelled = {
            **config_map(name, namespace),
            "metadata": {"name": name, "namespace": namespace, "labels": {"x": "y"}},
        }
        await client.create(CONFIGS, labelled)
    selection = Selection(namespace, label_selector="x=y")

    pages = [page async for page in client.pages(CONFIGS, selection, size=2)]
    whole = await client.list(CONFIGS, selection)

    assert [len(page.items) for page in pages] == [2, 2, 1]
    assert pages[0].remaining_item_count in {None, 3}  # not counted when a selector is given
    assert [item for page in pages for item in page.items] == whole.items
    assert [item["kind"] for item in whole.items if isinstance(item, dict)] == ["ConfigMap"] * 5


async def test_selectors_and_metadata_only(client: Client, namespace: str) -> None:
    await client.create(CONFIGS, config_map("one", namespace, {"a": "1"}))
    await client.create(CONFIGS, config_map("two", namespace))
    only = meta.metadata_of(CONFIG_MAPS)

    page = await client.list(only, Selection(namespace, field_selector="metadata.name=one"))
    one = await client.get(only, ObjectKey(namespace, "one"))

    assert [item.key.name for item in page.items] == ["one"]
    assert page.items == [one]
    assert (one.api_version, one.kind) == ("v1", "ConfigMap")


async def test_a_dry_run_leaves_nothing_behind(client: Client, namespace: str) -> None:
    response = await client.create(CONFIGS, config_map("one", namespace), options=WriteOptions(dry_run=True))

    assert response["metadata"]["uid"]
    with pytest.raises(NotFound):
        await client.get(CONFIGS, ObjectKey(namespace, "one"))


async def test_strict_validation_names_the_unknown_field(client: Client, namespace: str) -> None:
    strict = WriteOptions(field_validation=FieldValidation.STRICT)

    with pytest.raises(BadRequest, match='unknown field "dataz"'):
        await client.create(CONFIGS, {**config_map("one", namespace), "dataz": {}}, options=strict)


# --- patches ---------------------------------------------------------------------------------------------------------


async def test_the_three_patches(client: Client, namespace: str) -> None:
    key = ObjectKey(namespace, "one")
    await client.create(CONFIGS, config_map("one", namespace, {"a": "1", "b": "1"}))

    merged = await client.merge_patch(CONFIGS, key, {"data": {"a": None, "c": "1"}})
    tested = await client.json_patch(
        CONFIGS,
        key,
        [{"op": "test", "path": "/data/b", "value": "1"}, {"op": "replace", "path": "/data/b", "value": "2"}],
    )
    applied = await client.apply(CONFIGS, config_map("one", namespace, {"d": "1"}), field_manager="tester")

    assert merged["data"] == {"b": "1", "c": "1"}
    assert tested["data"] == {"b": "2", "c": "1"}
    assert applied["data"] == {"b": "2", "c": "1", "d": "1"}


async def test_a_test_that_fails_is_invalid(client: Client, namespace: str) -> None:
    await client.create(CONFIGS, config_map("one", namespace, {"a": "1"}))

    with pytest.raises(Invalid):
        await client.json_patch(CONFIGS, ObjectKey(namespace, "one"), [{"op": "test", "path": "/data/a", "value": "2"}])


async def test_applying_what_another_manager_owns_is_a_conflict_that_names_the_field(
    client: Client, namespace: str
) -> None:
    await client.apply(CONFIGS, config_map("one", namespace, {"a": "1"}), field_manager="first")
    theirs = config_map("one", namespace, {"a": "2"})

    with pytest.raises(Conflict) as caught:
        await client.apply(CONFIGS, theirs, field_manager="second")
    forced = await client.apply(CONFIGS, theirs, field_manager="second", force=True)

    assert [(cause.reason, cause.field) for cause in caught.value.causes] == [("FieldManagerConflict", ".data.a")]
    assert forced["data"] == {"a": "2"}


async def test_fields_that_a_manager_stops_applying_are_removed(client: Client, namespace: str) -> None:
    await client.apply(CONFIGS, config_map("one", namespace, {"a": "1", "b": "1"}), field_manager="first")

    after = await client.apply(CONFIGS, config_map("one", namespace, {"a": "1"}), field_manager="first")

    assert after["data"] == {"a": "1"}


# --- deletion --------------------------------------------------------------------------------------------------------


async def test_preconditions_protect_another_object_of_the_same_name(client: Client, namespace: str) -> None:
    key = ObjectKey(namespace, "one")
    created = await client.create(CONFIGS, config_map("one", namespace))

    with pytest.raises(Conflict):
        await client.delete(CONFIGS, key, DeleteOptions(uid="another"))
    with pytest.raises(Conflict):
        await client.delete(CONFIGS, key, DeleteOptions(resource_version="1"))
    await client.delete(CONFIGS, key, DeleteOptions(uid=created["metadata"]["uid"]))

    with pytest.raises(NotFound):
        await client.get(CONFIGS, key)


async def test_a_selection_is_deleted_at_once(client: Client, namespace: str) -> None:
    for name, colour in (("a", "red"), ("b", "red"), ("c", "blue")):
        await client.create(CONFIGS, document(CONFIG_MAPS, name, namespace, metadata={"labels": {"colour": colour}}))

    await client.delete_collection(CONFIGS, Selection(namespace, label_selector="colour=red"))

    left = await client.list(meta.metadata_of(CONFIG_MAPS), Selection(namespace, label_selector="colour"))
    assert [item.key.name for item in left.items] == ["c"]


async def test_a_finalizer_holds_an_object_until_it_is_removed(client: Client, namespace: str) -> None:
    kind, key = meta.metadata_of(CONFIG_MAPS), ObjectKey(namespace, "one")
    await client.create(CONFIGS, config_map("one", namespace))

    held = await add_finalizer(client, kind, (await client.get(kind, key)).metadata, "example.com/hold")
    assert held is not None
    await client.delete(kind, key)
    waiting = await client.get(kind, key)
    await remove_finalizer(client, kind, waiting.metadata, "example.com/hold")

    assert waiting.metadata.deletion_timestamp is not None
    with pytest.raises(NotFound):
        await client.get(kind, key)


async def test_a_finalizer_for_an_old_version_is_a_conflict(client: Client, namespace: str) -> None:
    kind, key = meta.metadata_of(CONFIG_MAPS), ObjectKey(namespace, "one")
    await client.create(CONFIGS, config_map("one", namespace))
    seen = (await client.get(kind, key)).metadata
    await client.merge_patch(kind, key, {"data": {"a": "1"}})

    with pytest.raises(Conflict):
        await add_finalizer(client, kind, seen, "example.com/hold")


# --- custom resources ------------------------------------------------------------------------------------------------


async def test_status_is_written_as_a_difference_and_other_fields_stay(
    client: Client, namespace: str, widgets: Kind[Widget]
) -> None:
    key = ObjectKey(namespace, "one")
    new = Widget(metadata=ObjectMeta(name="one", namespace=namespace), spec=Spec(size=3))
    await client.create(widgets, new)
    await client.merge_patch(widgets, key, {"status": {"unknown": "kept", "note": "old"}}, subresource="status")
    ready = Condition(type="Ready", status="True")
    seen = await client.get(widgets, key)

    conditions = set_condition(seen.status.conditions, ready, SystemClock().now())
    before = await write_status(
        client, widgets, seen, msgspec.structs.replace(seen.status, conditions=conditions, note=None)
    )
    conditions = set_condition(before.status.conditions, ready, SystemClock().now())
    await write_status(client, widgets, before, msgspec.structs.replace(before.status, conditions=conditions))
    after = await client.get(meta.raw(WIDGETS), key)

    assert set(after["status"]) == {"unknown", "conditions"}
    assert after["metadata"]["resourceVersion"] == before.metadata.resource_version
    assert after["spec"] == {"size": 3}


async def test_a_status_for_an_old_version_is_a_conflict(client: Client, namespace: str, widgets: Kind[Widget]) -> None:
    created = await client.create(widgets, Widget(metadata=ObjectMeta(name="one", namespace=namespace)))
    await client.merge_patch(widgets, created.key, {"spec": {"size": 1}})

    with pytest.raises(Conflict):
        await write_status(client, widgets, created, msgspec.structs.replace(created.status, note="late"))


async def test_an_object_of_another_shape_does_not_hide_the_others(
    client: Client, namespace: str, widgets: Kind[Widget]
) -> None:
    for name, size in (("good", 1), ("odd", PLANTED)):
        await client.create(meta.raw(WIDGETS), document(WIDGETS, name, namespace, spec={"size": size}))

    page = await client.list(widgets, Selection(namespace))

    good, odd = page.items
    assert isinstance(good, Widget)
    assert isinstance(odd, meta.Malformed)
    assert odd.key == ObjectKey(namespace, "odd")
    assert PLANTED not in repr(odd)


async def test_an_unknown_resource_is_not_served(client: Client) -> None:
    nothing = meta.raw(Resource("nothing.example.com", "v1", "nothings", "Nothing"))

    with pytest.raises(NotServed, match="CustomResourceDefinition"):
        await client.list(nothing)


# --- watching --------------------------------------------------------------------------------------------------------


async def test_a_source_lists_and_then_streams_the_changes(client: Client, namespace: str) -> None:
    source = client.source(meta.metadata_of(CONFIG_MAPS), Selection(namespace, field_selector="metadata.name=one"))
    page = await source.list_page(limit=100, continue_token="", resource_version="")
    seen: list[str] = []

    async with source.watch(resource_version=page.resource_version, timeout_seconds=20) as frames:
        await client.create(CONFIGS, config_map("one", namespace))
        await client.create(CONFIGS, config_map("unseen", namespace))
        await client.merge_patch(CONFIGS, ObjectKey(namespace, "one"), {"data": {"a": "1"}})
        await client.delete(CONFIGS, ObjectKey(namespace, "one"))
        async for frame in frames:
            event = json.loads(frame)
            if event["type"] == "BOOKMARK":
                continue
            found = source.decode(json.dumps(event["object"]).encode())
            seen.append(f"{event['type']} {found.key.name}")
            if event["type"] == "DELETED":
                break

    assert seen == ["ADDED one", "MODIFIED one", "DELETED one"]


async def test_a_watch_ends_when_its_time_is_over(client: Client, namespace: str) -> None:
    source = client.source(CONFIGS, Selection(namespace))
    page = await source.list_page(limit=1, continue_token="", resource_version="")

    async with source.watch(resource_version=page.resource_version, timeout_seconds=1) as frames:
        kinds = {json.loads(frame)["type"] async for frame in frames}

    assert kinds <= {"ADDED", "BOOKMARK"}


async def test_an_invented_continue_token_is_refused(client: Client) -> None:
    source = client.source(CONFIGS)

    with pytest.raises((BadRequest, Gone)):
        await source.list_page(limit=1, continue_token="nonsense", resource_version="")


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"data": PLANTED}, id="a text where a map belongs"),
        pytest.param({"data": {"x": PLANTED}}, id="not base64"),
        pytest.param({"data": {"x": [PLANTED]}}, id="a list where a text belongs"),
        pytest.param({"metadata": {"labels": {"x": PLANTED}}}, id="no label"),
        pytest.param({"type": PLANTED}, id="an immutable field"),
    ],
)
@pytest.mark.parametrize("verb", ["merge", "json", "apply", "create", "update"])
async def test_no_refused_value_comes_back_in_the_error(
    client: Client, namespace: str, patch: dict[str, Any], verb: str
) -> None:
    secrets, key = meta.raw(SECRETS), ObjectKey(namespace, "one")
    created = await client.create(secrets, document(SECRETS, "one", namespace, data={"x": "c3RvcmVk"}))

    with pytest.raises(ApiError) as caught:
        await _write(client, created, key, patch, verb)

    error = caught.value
    assert PLANTED not in str(error)
    assert "c3RvcmVk" not in str(error)
    assert PLANTED not in repr(error.causes)


async def _write(client: Client, created: dict[str, Any], key: ObjectKey, patch: dict[str, Any], verb: str) -> None:
    secrets = meta.raw(SECRETS)
    metadata = {"name": key.name, "namespace": key.namespace, **patch.get("metadata", {})}
    whole = {**created, **patch, "metadata": metadata}
    match verb:
        case "merge":
            await client.merge_patch(secrets, key, patch)
        case "json":
            await client.json_patch(
                secrets, key, [{"op": "add", "path": f"/{name}", "value": value} for name, value in patch.items()]
            )
        case "apply":
            await client.apply(secrets, {**patch, "metadata": metadata}, field_manager="x")
        case "create":
            await client.create(secrets, {**whole, "type": [PLANTED]} if "type" in patch else {**whole, "x": PLANTED})
        case "update":
            await client.update(secrets, whole)


async def test_invalid_names_the_field(client: Client, namespace: str) -> None:
    with pytest.raises(Invalid) as caught:
        await client.create(CONFIGS, config_map("Not_A_Name", namespace))

    assert [cause.field for cause in caught.value.causes] == ["metadata.name"]


async def test_a_wrong_token_is_unauthorized(api_server: ApiServer) -> None:
    connection = load(api_server.kubeconfig)
    client = Client(AiohttpTransport(replace(connection, credentials=FixedCredentials(Credential("Bearer wrong")))))
    try:
        with pytest.raises(Unauthorized):
            await client.get(meta.raw(NAMESPACES), ObjectKey("", "default"))
    finally:
        await client.close()


# --- tokens and events -----------------------------------------------------------------------------------------------


async def test_a_service_account_gets_a_token(client: Client, namespace: str) -> None:
    await client.create(meta.raw(SERVICE_ACCOUNTS), document(SERVICE_ACCOUNTS, "robot", namespace))

    token = await client.token_request(ObjectKey(namespace, "robot"), audiences=["vault"], expiration_seconds=600)

    assert token.value.count(".") == 2
    assert isinstance(token.expires, datetime)
    assert token.expires > SystemClock().now()


async def test_recorded_events_are_counted_up(client: Client, namespace: str) -> None:
    await client.create(CONFIGS, config_map("one", namespace))
    about = (await client.get(meta.metadata_of(CONFIG_MAPS), ObjectKey(namespace, "one"))).metadata
    recorder = EventRecorder(client, SystemClock(), component="tester")

    for message in ("again", "again", "once"):
        recorder.record(CONFIG_MAPS, about, EventType.NORMAL, "Seen", message)
    recorder.stop()
    await recorder.run()

    events = await client.list(meta.raw(EVENTS), Selection(namespace, field_selector="involvedObject.name=one"))
    assert sorted((event["message"], event["count"]) for event in events.items if isinstance(event, dict)) == [
        ("again", 2),
        ("once", 1),
    ]
