"""Changes from a queue: delivery to listeners, deletion of messages, and errors of the queue."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from eso_provider_aws.changes.watcher import REFUSED_SECONDS
from eso_provider_aws.provider import PROVIDER, SecretsManager
from eso_provider_aws.testing.front import Front, RecordedRequest, StubResponse, refused
from eso_provider_aws.testing.sessions import admin, context, key, secret_event, summary, watching
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ChangeType, Context, Operation
from kubebase.testing.clock import VirtualClock
from kubebase.testing.waiting import eventually

UPDATED, DELETED, RESYNC, CONDITION = ChangeType.UPDATED, ChangeType.DELETED, ChangeType.RESYNC, ChangeType.CONDITION
QUEUE = "https://sqs.eu-west-1.amazonaws.com/123456789012/changes"
OTHER_KEYS = ("AKIAI44QH8DHBEXAMPLE", "of another user")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def provider(clock: VirtualClock) -> AsyncIterator[InMemory]:
    async with InMemory(PROVIDER, clock) as client:
        yield client


class Sqs:
    """A real queue."""

    def __init__(self, url: str) -> None:
        self._client = admin("sqs", url)
        self.url = self._client.create_queue(QueueName=uuid.uuid4().hex)["QueueUrl"]

    def send(self, *bodies: str) -> None:
        for body in bodies:
            self._client.send_message(QueueUrl=self.url, MessageBody=body)

    def left(self) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        response = self._client.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return sum(int(response[name]) for name in names)


class Script:
    """A queue whose responses the test writes; a receive call waits until there is one."""

    def __init__(self, front: Front) -> None:
        self.deleted: list[str] = []
        self._front = front
        self._responses: asyncio.Queue[StubResponse] = asyncio.Queue()
        front.respond("ReceiveMessage", self._receive)
        front.respond("DeleteMessageBatch", self.delete)

    def deliver(self, *messages: tuple[str, str, str]) -> None:
        """Id, handle and body of each message."""
        response = [{"MessageId": one, "ReceiptHandle": handle, "Body": body} for one, handle, body in messages]
        self._responses.put_nowait(_json({"Messages": response}))

    def refuse(self, response: StubResponse) -> None:
        self._responses.put_nowait(response)

    async def _receive(self, request: RecordedRequest) -> StubResponse:
        return await self._responses.get() if request.body["WaitTimeSeconds"] else _json({})

    def delete(self, request: RecordedRequest) -> StubResponse:
        self.deleted += [entry["ReceiptHandle"] for entry in request.body["Entries"]]
        return _json({"Successful": [{"Id": entry["Id"]} for entry in request.body["Entries"]], "Failed": []})


def _json(body: dict[str, Any]) -> StubResponse:
    return StubResponse(200, json.dumps(body).encode(), {"Content-Type": "application/x-amz-json-1.0"})


def store(queue: str = QUEUE, **more: Any) -> Context:
    return context(SecretsManager, changes={"queueURL": queue}, **more)


def _wakes_in(clock: VirtualClock, seconds: float) -> bool:
    return clock.next_wake_up() == pytest.approx(seconds)


# --- a real queue ----------------------------------------------------------------------------------------------------


async def test_a_change_is_announced_once_and_its_message_deleted_once_acknowledged(
    either: Front, provider: InMemory, server: str
) -> None:
    sqs = Sqs(server)
    async with watching(provider, store(sqs.url), key("app/db"), key("app/web")) as stream:
        await stream.opened()
        sqs.send(secret_event("GetSecretValue", "app/db"), "no event", secret_event("PutSecretValue", "app/other"))
        sqs.send(secret_event("PutSecretValue", "app/db"))
        updated = await stream.change()
        sqs.send(secret_event("DeleteSecret", "app/web"))
        deleted = await stream.change()
        await eventually(lambda: sqs.left() == 2)
        before = stream.token

        stream.acknowledge()
        await eventually(lambda: sqs.left() == 0)

    assert (summary(updated), summary(deleted)) == ((UPDATED, ("app/db",)), (DELETED, ("app/web",)))
    assert before == deleted.resume_token
    assert set(either.counts) == {"ReceiveMessage", "DeleteMessageBatch"}


async def test_two_stores_with_one_queue_and_two_identities_get_the_events_that_each_watches(
    either: Front, provider: InMemory, server: str
) -> None:
    sqs = Sqs(server)
    first, second = store(sqs.url), store(sqs.url, keys=OTHER_KEYS)
    async with (
        watching(provider, first, key("mine"), key("both")) as one,
        watching(provider, second, key("yours"), key("both")) as other,
    ):
        await one.opened()
        await other.opened()
        sqs.send(*(secret_event("UpdateSecret", name) for name in ("mine", "yours", "mine", "yours")))
        received = [summary(await one.change()), summary(await one.change())]
        received += [summary(await other.change()), summary(await other.change())]
        assert received == [(UPDATED, ("mine",))] * 2 + [(UPDATED, ("yours",))] * 2

        sqs.send(secret_event("UpdateSecret", "both"))
        assert summary(await one.change()) == summary(await other.change()) == (UPDATED, ("both",))
        one.acknowledge()
        await eventually(lambda: sqs.left() == 3)
        other.acknowledge()
        await eventually(lambda: sqs.left() == 0)

    receivers = {request.key_id for request in either.requests if request.operation == "ReceiveMessage"}
    assert len(receivers) == 2


async def test_stores_of_one_identity_share_one_receiver(front: Front, provider: InMemory) -> None:
    script = Script(front)
    call, twin = store(), store(prefix="app/")
    async with watching(provider, call, key("app/db")) as one, watching(provider, twin, key("db")) as other:
        await one.opened()
        await other.opened()
        await eventually(lambda: front.count("ReceiveMessage") == 2)  # the proof, and the wait

        script.deliver(("1", "h1", secret_event("UpdateSecret", "app/db")))

        assert summary(await one.change()) == (UPDATED, ("app/db",))
        assert summary(await other.change()) == (UPDATED, ("db",))


async def test_the_host_of_the_queue_is_never_dialled(front: Front, provider: InMemory) -> None:
    script = Script(front)
    async with Front.before("http://127.0.0.1:9") as elsewhere:
        url = f"{elsewhere.url}/123456789012/changes"
        async with watching(provider, store(url), key("app/db")) as stream:
            await stream.opened()
            script.deliver(("1", "h1", secret_event("UpdateSecret", "app/db")))
            await stream.change()

    assert elsewhere.requests == []
    assert {request.body["QueueUrl"] for request in front.requests} == {url}


# --- at least once, reported once ------------------------------------------------------------------------------------


async def test_a_redelivered_message_is_announced_once_and_deleted_by_its_newest_handle(
    front: Front, provider: InMemory
) -> None:
    script, body = Script(front), secret_event("UpdateSecret", "app/db")
    async with watching(provider, store(), key("app/db"), key("app/web")) as stream:
        await stream.opened()
        script.deliver(("1", "old", body))
        script.deliver(("1", "new", body))
        script.deliver(("2", "other", secret_event("UpdateSecret", "app/web")))
        events = [summary(await stream.change()), summary(await stream.change())]
        assert script.deleted == []

        stream.acknowledge()
        await eventually(lambda: len(script.deleted) == 2)

    assert events == [(UPDATED, ("app/db",)), (UPDATED, ("app/web",))]
    assert script.deleted == ["new", "other"]


async def test_an_acknowledgement_covers_earlier_announcements_only(front: Front, provider: InMemory) -> None:
    script = Script(front)
    async with watching(provider, store(), key("app/db")) as stream:
        await stream.opened()
        script.deliver(("1", "first", secret_event("UpdateSecret", "app/db")))
        await stream.change()
        early = stream.token
        script.deliver(("2", "second", secret_event("UpdateSecret", "app/db")))
        await stream.change()

        stream.token = early
        stream.acknowledge()
        await eventually(lambda: script.deleted == ["first"])
        stream.token = "queue of-another-process 7"
        stream.acknowledge()
        script.deliver(("3", "needless", "no event"))
        await eventually(lambda: len(script.deleted) == 2)

    assert script.deleted == ["first", "needless"]


async def test_a_message_that_cannot_be_deleted_is_announced_once_and_reported_on_the_store(
    front: Front, provider: InMemory
) -> None:
    script, body = Script(front), secret_event("UpdateSecret", "app/db")
    front.respond("DeleteMessageBatch", refused("AccessDeniedException"))
    call = store()
    async with watching(provider, call, key("app/db"), key("app/web")) as stream:
        await stream.opened()
        script.deliver(("1", "h1", body))
        await stream.change()
        stream.acknowledge()
        await eventually(lambda: front.count("DeleteMessageBatch") == 1)
        script.deliver(("1", "h2", body))
        script.deliver(("2", "h3", secret_event("UpdateSecret", "app/web")))

        assert summary(await stream.change()) == (UPDATED, ("app/web",))
        (condition,) = (await provider.validate(call)).conditions

        front.pass_on("DeleteMessageBatch")
        front.respond("DeleteMessageBatch", script.delete)
        stream.acknowledge()
        await eventually(lambda: script.deleted == ["h3"])
        assert (await provider.validate(call)).conditions == ()

    assert (condition.type, condition.status) == ("ChangeQueue", "False")
    assert "sqs:DeleteMessage" in condition.message


async def test_a_message_that_is_not_an_event_is_deleted_and_counted_without_its_content(
    front: Front, provider: InMemory
) -> None:
    script = Script(front)
    with capture_logs() as logs:
        async with watching(provider, store(), key("app/db")) as stream:
            await stream.opened()
            script.deliver(("1", "h1", "CANARY-in-a-message"))
            await eventually(lambda: script.deleted == ["h1"])

    (line,) = [line for line in logs if "not an event" in line["event"]]
    assert line["so_far"] == 1
    assert "CANARY" not in str(logs)


# --- resuming --------------------------------------------------------------------------------------------------------


async def test_messages_received_without_a_stream_are_announced_when_it_reopens(
    front: Front, provider: InMemory
) -> None:
    script = Script(front)
    async with watching(provider, store(), key("unrelated")) as keeps_receiving:
        await keeps_receiving.opened()
        async with watching(provider, store(prefix="app/"), key("db")) as stream:
            await stream.opened()
            token = stream.token
        script.deliver(("1", "h1", secret_event("UpdateSecret", "app/db")))
        await eventually(lambda: script.deleted == ["h1"])

        async with watching(provider, store(prefix="app/"), key("db"), resume=token) as stream:
            assert summary(await stream.change()) == (UPDATED, ("db",))


async def test_a_stream_goes_on_over_a_change_of_its_watches(front: Front, provider: InMemory) -> None:
    script = Script(front)
    async with watching(provider, store(), key("app/db")) as stream:
        await stream.opened()
        stream.watch(key("app/web"))
        await eventually(lambda: front.count("ReceiveMessage") == 2)
        script.deliver(("1", "h1", secret_event("UpdateSecret", "app/db")))
        assert summary(await stream.change()) == (UPDATED, ("app/db",))
        script.deliver(("2", "h2", secret_event("UpdateSecret", "app/web")))
        assert summary(await stream.change()) == (UPDATED, ("app/web",))


@pytest.mark.parametrize("token", ["queue of-another-process 3", "looks a 1 2.0", "anything", "queue  x"])
async def test_a_token_of_another_process_means_that_all_is_read_again(
    front: Front, provider: InMemory, token: str
) -> None:
    Script(front)
    async with watching(provider, store(), key("app/db"), resume=token) as stream:
        event = await stream.change()

    assert event.type is RESYNC
    assert event.resume_token.startswith("queue ")


async def test_a_change_between_the_read_and_the_watch_is_announced(front: Front, provider: InMemory) -> None:
    script = Script(front)
    request = {"secretId": "app/db", "clientRequestToken": "version-2"}
    async with watching(provider, store(), key("unrelated")) as stream:
        await stream.opened()
        script.deliver(("1", "h1", secret_event("PutSecretValue", "", requestParameters=request)))
        await eventually(lambda: script.deleted == ["h1"])
        stream.watch(key("app/db"))

        assert summary(await stream.change()) == (UPDATED, ("app/db",))
    async with watching(provider, store(), key("app/db", "version-1")) as stream:
        assert summary(await stream.change()) == (UPDATED, ("app/db",))
    async with watching(provider, store(), key("app/db", "version-2"), key("app/web")) as stream:
        await stream.opened()
        script.deliver(("2", "h2", secret_event("UpdateSecret", "app/web")))
        assert summary(await stream.change()) == (UPDATED, ("app/web",))


# --- queues that refuse ----------------------------------------------------------------------------------------------


async def test_a_throttled_queue_is_called_again_after_ever_longer_pauses(
    front: Front, provider: InMemory, clock: VirtualClock
) -> None:
    script = Script(front)
    async with watching(provider, store(), key("app/db")) as stream:
        await stream.opened()
        for _ in range(3):
            script.refuse(refused("RequestThrottled"))
        script.deliver(("1", "h1", secret_event("UpdateSecret", "app/db")))
        counts = []
        for pause in (1.0, 2.0, 5.0):
            await eventually(partial(_wakes_in, clock, pause))
            counts.append(front.count("ReceiveMessage"))
            await clock.advance(pause)

        assert summary(await stream.change()) == (UPDATED, ("app/db",))
    assert counts == [2, 3, 4]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        pytest.param("QueueDoesNotExist", 'queue "changes" does not exist', id="missing"),
        pytest.param("AccessDeniedException", "allow sqs:ReceiveMessage and sqs:DeleteMessage", id="denied"),
    ],
)
async def test_a_queue_that_rejects_requests_is_reported_and_polling_replaces_it(
    front: Front, provider: InMemory, clock: VirtualClock, secrets_manager: Any, *, code: str, text: str
) -> None:
    name = uuid.uuid4().hex
    secrets_manager.create_secret(Name=name, SecretString="1")
    front.respond("ReceiveMessage", refused(code, "CANARY"))
    call = store()
    async with watching(provider, call, key(name)) as stream:
        condition = (await stream.change()).condition
        await stream.opened()
        assert condition is not None
        assert text in condition.message
        assert "CANARY" not in condition.message
        assert (await provider.validate(call)).conditions == (condition,)

        secrets_manager.put_secret_value(SecretId=name, SecretString="2")
        await clock.advance(31)
        assert summary(await stream.change()) == (UPDATED, (name,))
        assert front.count("ReceiveMessage") == 1

        script = Script(front)
        passed = 31
        while front.count("ReceiveMessage") == 1:
            await clock.advance(10)
            passed += 10
            await asyncio.sleep(0.05)  # calls need a response before their deadline
        assert REFUSED_SECONDS <= passed <= REFUSED_SECONDS + 20
        assert (await stream.change()).type is RESYNC
        script.deliver(("1", "h1", secret_event("UpdateSecret", name)))
        assert summary(await stream.change()) == (UPDATED, (name,))
        assert (await provider.validate(call)).conditions == ()


async def test_a_queue_that_does_not_exist_falls_back_on_both_servers(
    either: Front, provider: InMemory, server: str
) -> None:
    url = Sqs(server).url.rpartition("/")[0] + "/no-such-queue"
    for _ in range(2):
        async with watching(provider, store(url), key("app/db")) as stream:
            event = await stream.change()

    assert event.type is CONDITION
    assert event.condition is not None
    assert 'queue "no-such-queue" does not exist in eu-west-1' in event.condition.message
    assert either.count("ReceiveMessage") == 1


async def test_a_store_that_may_neither_receive_nor_list_offers_no_changes(front: Front, provider: InMemory) -> None:
    front.respond("ReceiveMessage", refused("AccessDeniedException"))
    front.respond("ListSecrets", refused("AccessDeniedException"))
    call = store()
    async with watching(provider, call, key("app/db")) as stream:
        assert (await stream.change()).type is CONDITION
        with pytest.raises(ProviderError) as failed:
            await stream.change()

    assert failed.value.reason is ErrorReason.PERMISSION_DENIED, "the store names a queue: it is a problem, not normal"
    assert "sqs:ReceiveMessage" in failed.value.message
    assert "secretsmanager:ListSecrets" in failed.value.message
    assert Operation.SUBSCRIBE not in ((await provider.validate(call)).operations or ())


@pytest.mark.parametrize(
    ("url", "text"),
    [
        pytest.param("changes", "write the URL", id="a name"),
        pytest.param("ftp://sqs.eu-west-1.amazonaws.com/123456789012/q", "write the URL", id="another scheme"),
        pytest.param("https://sqs.eu-west-1.amazonaws.com/q", "write the URL", id="no account"),
        pytest.param("https://u:CANARY@h/123456789012/q", "write the URL", id="with a password"),
        pytest.param("https://[/123456789012/q", "is no URL", id="no URL"),
        pytest.param(f"{QUEUE}.fifo", "name a standard queue", id="FIFO"),
        pytest.param(QUEUE.replace("eu-west-1", "us-east-1"), "in the region of the store", id="another region"),
        pytest.param(
            "https://us-east-1.queue.amazonaws.com/123456789012/q", "in the region of the store", id="an old name"
        ),
    ],
)
async def test_a_queue_that_cannot_work_is_refused_with_its_field(provider: InMemory, url: str, text: str) -> None:
    validation = await provider.validate(store(url))

    assert validation.error is not None
    assert validation.error.reason is ErrorReason.CONFIG_INVALID
    assert text in validation.error.message
    assert "CANARY" not in validation.error.message


@pytest.mark.parametrize(
    "url",
    [
        pytest.param(QUEUE, id="as AWS writes it"),
        pytest.param("https://vpce-1-a.sqs.eu-west-1.vpce.amazonaws.com/123456789012/q", id="a private endpoint"),
        pytest.param("http://127.0.0.1:4566/000000000000/q", id="a test server"),
    ],
)
@pytest.mark.usefixtures("front")
async def test_a_queue_that_can_work_is_accepted(provider: InMemory, url: str) -> None:
    assert (await provider.validate(store(url))).error is None
