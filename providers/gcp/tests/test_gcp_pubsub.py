"""The Pub/Sub of the test kit is faithful: the vendor's client, unmodified, works against it.

The vendor has no asynchronous client for the REST interface, which the provider uses: calls are made in threads.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from google.api_core import exceptions
from google.auth.exceptions import RefreshError
from google.oauth2.credentials import Credentials
from google.pubsub_v1.services.subscriber import SubscriberClient
from google.pubsub_v1.services.subscriber.transports import SubscriberRestTransport

from eso_provider_gcp.testing.sessions import PROJECT, Google
from eso_provider_gcp.testing.tokens import SUBSCRIPTION

NAME = f"projects/{PROJECT}/subscriptions/{SUBSCRIPTION}"


def vendor(google: Google, token: str = "") -> SubscriberClient:
    credentials = Credentials(token=token or google.token)  # type: ignore[no-untyped-call] # the library has no types
    host = google.tokens.url.removeprefix("http://")
    return SubscriberClient(transport=SubscriberRestTransport(host=host, credentials=credentials, url_scheme="http"))


async def call(call: Callable[..., Any], **request: Any) -> Any:
    return await asyncio.to_thread(call, request={"subscription": NAME, **request}, retry=None, timeout=20.0)


async def test_the_vendor_pulls_what_secret_manager_announces(google: Google, name: str) -> None:
    made = google.store(name, b"one")
    google.admin.delete_secret(request={"name": made}, metadata=google.metadata)

    pulled = await call(vendor(google).pull, max_messages=10)

    created, added, deleted = [each.message for each in pulled.received_messages]
    assert [dict(each.attributes)["eventType"] for each in (created, added, deleted)] == [
        "SECRET_CREATE",
        "SECRET_VERSION_ADD",
        "SECRET_DELETE",
    ]
    assert added.attributes["secretId"] == made
    assert added.attributes["versionId"] == f"{made}/versions/1"
    assert json.loads(added.data)["name"] == f"{made}/versions/1"
    assert "versionId" not in created.attributes
    assert deleted.attributes["deleteType"] == "REQUESTED"
    assert all(each.publish_time is not None and each.message_id for each in (created, added, deleted))


async def test_the_vendor_gets_no_more_messages_than_it_asks_for(google: Google) -> None:
    for number in range(3):
        google.pubsub.announce("UpdateSecret", f"projects/1/secrets/s{number}")
    client = vendor(google)

    first = await call(client.pull, max_messages=2)
    second = await call(client.pull, max_messages=2)
    third = await call(client.pull, max_messages=2)

    assert [len(each.received_messages) for each in (first, second, third)] == [2, 1, 0]


async def test_the_vendor_acknowledges_once_and_gets_the_rest_again(google: Google) -> None:
    google.pubsub.announce("UpdateSecret", "projects/1/secrets/a")
    google.pubsub.announce("UpdateSecret", "projects/1/secrets/b")
    client = vendor(google)
    one, two = (await call(client.pull, max_messages=2)).received_messages

    await call(client.acknowledge, ack_ids=[one.ack_id])
    await call(client.acknowledge, ack_ids=[one.ack_id])  # too late, which is accepted
    await call(client.modify_ack_deadline, ack_ids=[two.ack_id], ack_deadline_seconds=0)
    again = await call(client.pull, max_messages=2)

    assert google.pubsub.acknowledged == [one.message.message_id]
    assert [each.message.message_id for each in again.received_messages] == [two.message.message_id]
    assert again.received_messages[0].ack_id != two.ack_id


async def test_the_vendor_sees_the_subscription(google: Google) -> None:
    found = await call(vendor(google).get_subscription)

    assert (found.name, found.topic) == (NAME, f"projects/{PROJECT}/topics/{SUBSCRIPTION}")


@pytest.mark.parametrize(
    ("prepare", "request_", "error"),
    [
        pytest.param({}, {"subscription": f"{NAME}-not"}, exceptions.NotFound, id="no such subscription"),
        pytest.param({"refuse": 403}, {}, exceptions.Forbidden, id="denied"),
        pytest.param(
            {"known": lambda _token: False}, {}, RefreshError, id="an unknown token, which the client would renew"
        ),
        pytest.param({}, {"max_messages": 0}, exceptions.BadRequest, id="no number of messages"),
    ],
)
async def test_the_vendor_is_refused(
    google: Google,
    monkeypatch: pytest.MonkeyPatch,
    prepare: dict[str, Any],
    request_: dict[str, Any],
    error: type[Exception],
) -> None:
    for member, value in prepare.items():
        monkeypatch.setattr(google.pubsub, member, value)

    with pytest.raises(error):
        await call(vendor(google).pull, **{"max_messages": 1, **request_})
