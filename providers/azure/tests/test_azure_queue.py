"""The storage queue of the test kit is faithful: the vendor's client, unmodified, works against it."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
)
from azure.identity.aio import ClientSecretCredential
from azure.storage.queue.aio import QueueClient

from eso_provider_azure.testing.server import CLIENT, SECRET, TENANT, AzureServer, StorageQueue

ACCOUNT, NAME = "vendor", "vault-events"


@pytest.fixture
def queue(azure: AzureServer) -> StorageQueue:
    found = azure.queue(ACCOUNT, NAME)
    found.messages.clear()
    found.is_denied, azure.clock_skew = False, 0
    return found


@pytest.fixture
async def vendor(azure: AzureServer, queue: StorageQueue) -> AsyncIterator[QueueClient]:
    async with client(azure, queue.name) as made:
        yield made


@asynccontextmanager
async def client(azure: AzureServer, name: str) -> AsyncIterator[QueueClient]:
    ca = azure.environment["SSL_CERT_FILE"]
    url = f"https://{ACCOUNT}.queue.core.windows.net"
    async with (
        ClientSecretCredential(TENANT, CLIENT, SECRET, connection_verify=ca) as credential,
        QueueClient(url, name, credential=credential, connection_verify=ca, retry_total=0) as made,
    ):
        yield made


async def test_the_vendor_reads_an_event_of_event_grid(queue: StorageQueue, vendor: QueueClient) -> None:
    queue.put("kv-one", "db")

    message = await vendor.receive_message(visibility_timeout=60)

    assert message is not None
    event = json.loads(base64.b64decode(message.content))
    assert event["eventType"] == "Microsoft.KeyVault.SecretNewVersionCreated"
    assert (event["subject"], event["data"]["ObjectName"], event["data"]["VaultName"]) == ("db", "db", "kv-one")
    assert message.dequeue_count == 1
    assert message.next_visible_on is not None
    assert message.inserted_on is not None
    assert (message.next_visible_on - message.inserted_on).total_seconds() in (60, 61)


async def test_a_received_message_is_hidden_until_its_time_and_then_comes_again(
    azure: AzureServer, queue: StorageQueue, vendor: QueueClient
) -> None:
    queue.put("kv-one", "db")
    first = await vendor.receive_message(visibility_timeout=60)
    hidden = await vendor.receive_message()
    azure.clock_skew = 61
    again = await vendor.receive_message()

    assert hidden is None
    assert first is not None
    assert again is not None
    assert (again.id, again.dequeue_count, again.pop_receipt == first.pop_receipt) == (first.id, 2, False)


async def test_the_vendor_deletes_with_the_newest_receipt_only(
    azure: AzureServer, queue: StorageQueue, vendor: QueueClient
) -> None:
    queue.put("kv-one", "db")
    first = await vendor.receive_message(visibility_timeout=1)
    azure.clock_skew = 2
    second = await vendor.receive_message()
    assert first is not None
    assert second is not None

    with pytest.raises(HttpResponseError) as mismatch:
        await vendor.delete_message(first)
    await vendor.delete_message(second)
    with pytest.raises(ResourceNotFoundError) as absent:
        await vendor.delete_message(second)

    assert (mismatch.value.status_code, getattr(mismatch.value, "error_code", "")) == (400, "PopReceiptMismatch")
    assert getattr(absent.value, "error_code", "") == "MessageNotFound"
    assert queue.messages == {}


async def test_the_vendor_sends_peeks_updates_and_counts(queue: StorageQueue, vendor: QueueClient) -> None:
    await vendor.send_message("one & <two>")

    (peeked,) = await vendor.peek_messages()
    received = await vendor.receive_message()
    assert received is not None
    updated = await vendor.update_message(received, content="three", visibility_timeout=0)
    properties = await vendor.get_queue_properties()
    again = [each.content async for each in vendor.receive_messages(messages_per_page=32)]

    assert (peeked.content, received.content, again) == ("one & <two>", "one & <two>", ["three"])
    assert not peeked.pop_receipt
    assert updated.pop_receipt != received.pop_receipt
    assert properties.approximate_message_count == 1
    assert len(queue.messages) == 1


async def test_no_more_than_thirty_two_messages_come_at_once(queue: StorageQueue, vendor: QueueClient) -> None:
    for number in range(40):
        queue.put("kv-one", f"s{number}")

    pages = [[each async for each in page] async for page in vendor.receive_messages(messages_per_page=32).by_page()]

    assert [len(page) for page in pages if page] == [32, 8]
    with pytest.raises(HttpResponseError) as refused:
        await anext(vendor.receive_messages(messages_per_page=33).by_page())
    assert refused.value.status_code == 400


async def test_the_vendor_is_refused_without_role_queue_or_token(
    azure: AzureServer, queue: StorageQueue, vendor: QueueClient
) -> None:
    queue.is_denied = True
    with pytest.raises(HttpResponseError) as denied:
        await vendor.receive_message()
    queue.is_denied = False
    async with client(azure, "no-such-queue") as elsewhere:
        with pytest.raises(ResourceNotFoundError) as absent:
            await elsewhere.receive_message()
    azure.entra.grants.clear()
    with pytest.raises(ClientAuthenticationError) as unknown:
        await vendor.receive_message()

    assert (denied.value.status_code, getattr(denied.value, "error_code", "")) == (
        403,
        "AuthorizationPermissionMismatch",
    )
    assert getattr(absent.value, "error_code", "") == "QueueNotFound"
    assert unknown.value.status_code == 401
