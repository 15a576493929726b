"""Pushing and deleting: what is created, what stays, and what is never touched."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from eso_provider_gcp.testing.sessions import PROJECT, Google, context
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import delete_parts, envelope, item, push_items
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, PushItem, PushOutcome, PushPrecondition

OURS = {"managed-by": "external-secrets"}
IF_ABSENT = PushPrecondition.IF_ABSENT


def secret(google: Google, key: str) -> Any:
    return google.admin.get_secret(request={"name": f"projects/{PROJECT}/secrets/{key}"}, metadata=google.metadata)


async def outcome(provider: InMemory, call: Context, one: PushItem) -> tuple[PushOutcome, str]:
    (result,) = await push_items(provider, call, one)
    assert not isinstance(result.outcome, ProviderError), result.outcome.message
    return result.outcome, result.provider_version


async def refusal(provider: InMemory, call: Context, one: PushItem) -> ProviderError:
    try:
        (result,) = await push_items(provider, call, one)
    except ProviderError as failed:
        return failed
    assert isinstance(result.outcome, ProviderError), "it was written"
    return result.outcome


async def test_a_push_creates_a_marked_secret_then_adds_versions_only_for_changes(
    google: Google, provider: InMemory, name: str
) -> None:
    call = context(google)
    assert await outcome(provider, call, item(name, b"one")) == (PushOutcome.CREATED, "1")
    made = secret(google, name)
    assert dict(made.labels) == OURS
    assert "automatic" in made.replication
    google.secrets.calls.clear()
    assert await outcome(provider, call, item(name, b"one")) == (PushOutcome.UNCHANGED, "1")
    assert google.secrets.calls == {"GetSecret": 1, "AccessSecretVersion": 1}
    assert await outcome(provider, call, item(name, b"two")) == (PushOutcome.UPDATED, "2")
    assert google.value(name) == b"two"


async def test_a_whole_secret_is_one_json_object(google: Google, provider: InMemory, name: str) -> None:
    await outcome(provider, context(google), item(name, {"b": b"<&>", "a": b"1"}))
    assert google.value(name) == b'{"a":"1","b":"<&>"}'


async def test_properties_of_one_key_become_one_version(google: Google, provider: InMemory, name: str) -> None:
    google.store(name, b'{"kept":1}', labels=OURS)
    results = await push_items(provider, context(google), item(name, b"x", "a"), item(name, b"y", "b.c"))
    assert [result.outcome for result in results] == [PushOutcome.UPDATED, PushOutcome.UPDATED]
    assert json.loads(google.value(name)) == {"kept": 1, "a": "x", "b": {"c": "y"}}
    assert google.secrets.calls["AddSecretVersion"] == 1


@pytest.mark.parametrize("property_", [pytest.param("", id="the value"), pytest.param("a", id="a property")])
async def test_a_secret_that_is_not_ours_is_never_written(
    google: Google, provider: InMemory, name: str, property_: str
) -> None:
    google.store(name, b'{"a":"theirs"}', labels={"managed-by": "terraform"})
    refused = await refusal(provider, context(google), item(name, b"ours", property_))
    assert refused.reason is ErrorReason.OWNERSHIP_CONFLICT
    assert f'secret "{name}" of project "my-project-1"' in refused.message
    assert google.value(name) == b'{"a":"theirs"}'
    assert dict(secret(google, name).labels) == {"managed-by": "terraform"}


async def test_a_property_is_not_pushed_into_a_value_that_is_no_json(
    google: Google, provider: InMemory, name: str
) -> None:
    google.store(name, b"plain CANARY", labels=OURS)
    refused = await refusal(provider, context(google), item(name, b"x", "a"))
    assert refused.reason is ErrorReason.INVALID_REQUEST
    assert "CANARY" not in refused.message
    assert google.value(name) == b"plain CANARY"


async def test_metadata_sets_labels_annotations_topics_and_replication(
    google: Google, provider: InMemory, name: str
) -> None:
    described = envelope(
        labels={"team": "a"},
        annotations={"note": "b"},
        topics=["projects/p/topics/t"],
        replicationLocations=["europe-west3", "europe-west1"],
        cmekKeyName="projects/p/locations/l/keyRings/r/cryptoKeys/k",
    )
    await outcome(provider, context(google), item(name, b"one", provider_metadata=described))
    made = secret(google, name)
    assert dict(made.labels) == {**OURS, "team": "a"}
    assert dict(made.annotations) == {"note": "b"}
    assert [topic.name for topic in made.topics] == ["projects/p/topics/t"]
    replicas = made.replication.user_managed.replicas
    assert [replica.location for replica in replicas] == ["europe-west3", "europe-west1"]
    assert {replica.customer_managed_encryption.kms_key_name for replica in replicas} == {
        described["spec"]["cmekKeyName"]
    }


@pytest.mark.parametrize(
    ("described", "labels"),
    [
        pytest.param({"labels": {"a": "new"}}, {"a": "new"}, id="replaced"),
        pytest.param(
            {"labels": {"a": "new", "c": "3"}, "mergePolicy": "Merge"}, {"a": "1", "b": "2", "c": "3"}, id="merged"
        ),
    ],
)
async def test_metadata_changes_a_secret_that_exists(
    google: Google, provider: InMemory, name: str, described: dict[str, Any], labels: dict[str, str]
) -> None:
    google.store(name, b"one", labels={**OURS, "a": "1", "b": "2"}, annotations={"old": "x"})
    spec = {**described, "annotations": {"new": "y"}, "topics": ["projects/p/topics/t"]}
    pushed = item(name, b"one", provider_metadata=envelope(**spec))
    assert await outcome(provider, context(google), pushed) == (PushOutcome.UPDATED, "1")
    changed = secret(google, name)
    assert dict(changed.labels) == {**OURS, **labels}
    assert dict(changed.annotations) == {"new": "y"}
    assert [topic.name for topic in changed.topics] == ["projects/p/topics/t"]
    assert await outcome(provider, context(google), pushed) == (PushOutcome.UNCHANGED, "1")


async def test_without_metadata_labels_and_annotations_stay(google: Google, provider: InMemory, name: str) -> None:
    google.store(name, b"one", labels={**OURS, "a": "1"}, annotations={"old": "x"})
    await outcome(provider, context(google), item(name, b"two"))
    assert dict(secret(google, name).labels) == {**OURS, "a": "1"}
    assert "UpdateSecret" not in google.secrets.calls


@pytest.mark.parametrize(
    ("described", "property_"),
    [
        pytest.param(envelope(labels={"a": "b"}), "prop", id="with a property"),
        pytest.param(envelope(unknown=1), "", id="an unknown field"),
        pytest.param({"labels": {"a": "b"}}, "", id="no envelope"),
    ],
)
async def test_metadata_that_cannot_be_used_is_an_error(
    google: Google, provider: InMemory, name: str, described: dict[str, Any], property_: str
) -> None:
    refused = await refusal(provider, context(google), item(name, b"x", property_, provider_metadata=described))
    assert refused.reason is ErrorReason.INVALID_REQUEST
    assert not google.secrets.calls


async def test_a_regional_secret_is_created_in_its_location(google: Google, provider: InMemory, name: str) -> None:
    call = context(google, location="europe-west3")
    assert (await outcome(provider, call, item(name, b"one")))[0] is PushOutcome.CREATED
    assert google.value(name, "europe-west3") == b"one"
    described = envelope(replicationLocations=["europe-west1"])
    refused = await refusal(provider, call, item(f"{name}-2", b"one", provider_metadata=described))
    assert "europe-west3" in refused.message


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        pytest.param(b"x" * 65_537, ErrorReason.PAYLOAD_TOO_LARGE, id="too large"),
        pytest.param(b"", ErrorReason.INVALID_REQUEST, id="empty"),
    ],
)
async def test_a_value_that_the_service_cannot_keep_is_refused(
    google: Google, provider: InMemory, name: str, value: bytes, reason: ErrorReason
) -> None:
    assert (await refusal(provider, context(google), item(name, value))).reason is reason
    assert "CreateSecret" not in google.secrets.calls


async def test_of_simultaneous_pushes_if_absent_one_wins(google: Google, provider: InMemory, name: str) -> None:
    call = context(google)
    pushed = [
        push_items(provider, call, item(name, str(number).encode(), precondition=IF_ABSENT)) for number in range(5)
    ]
    outcomes = [result.outcome for (result,) in await asyncio.gather(*pushed)]
    assert sorted(str(each) for each in outcomes) == ["CREATED", *["SKIPPED_EXISTS"] * 4]
    assert google.secrets.calls["AddSecretVersion"] == 1


async def test_a_secret_that_another_process_is_creating_is_left_to_it(
    google: Google, provider: InMemory, name: str
) -> None:
    google.store(name, labels=OURS)
    refused = await refusal(provider, context(google), item(name, b"x", precondition=IF_ABSENT))
    assert "is being created by another writer" in refused.message
    assert (await outcome(provider, context(google), item(name, b"x")))[0] is PushOutcome.CREATED


async def test_a_writer_that_loses_the_race_for_the_settings_looks_again(
    google: Google, provider: InMemory, name: str
) -> None:
    made = google.store(name, b"one", labels=OURS)
    raced: list[str] = []

    def race(operation: str) -> None:
        if operation == "UpdateSecret" and not raced:
            raced.append(operation)
            google.secrets.model.stored[made].secret.etag = '"changed"'

    google.secrets.before = race
    described = envelope(labels={"a": "b"})
    pushed = item(name, b"two", provider_metadata=described)
    assert await outcome(provider, context(google), pushed) == (PushOutcome.UPDATED, "2")
    assert google.secrets.calls["UpdateSecret"] == 2


async def test_a_disabled_latest_version_is_replaced_but_no_property_is_pushed_into_it(
    google: Google, provider: InMemory, name: str
) -> None:
    made = google.store(name, b"{}", labels=OURS)
    google.admin.disable_secret_version(request={"name": f"{made}/versions/1"}, metadata=google.metadata)
    refused = await refusal(provider, context(google), item(name, b"x", "a"))
    assert "is disabled" in refused.message
    assert await outcome(provider, context(google), item(name, b"two")) == (PushOutcome.UPDATED, "2")


async def test_a_deletion_removes_only_what_is_ours(google: Google, provider: InMemory, name: str) -> None:
    call = context(google)
    google.store(name, b"theirs")
    assert await delete_parts(provider, call, name) == [False]
    assert google.value(name) == b"theirs"
    google.store(f"{name}-2", b"ours", labels=OURS)
    assert await delete_parts(provider, call, f"{name}-2") == [True]
    assert await delete_parts(provider, call, f"{name}-2") == [False]


async def test_properties_are_deleted_and_the_last_one_takes_the_secret_with_it(
    google: Google, provider: InMemory, name: str
) -> None:
    google.store(name, b'{"a":1,"b":2,"c":3}', labels=OURS)
    call = context(google)
    assert await delete_parts(provider, call, name, "a", "none") == [True, False]
    assert json.loads(google.value(name)) == {"b": 2, "c": 3}
    assert await delete_parts(provider, call, name, "b", "c") == [True, True]
    assert await delete_parts(provider, call, name, "c") == [False]
    assert google.secrets.calls["DeleteSecret"] == 1
