"""Credentials read from an API server: live, shared while in flight, tokens kept for most of their life."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from eso_operator.stores.credentialreader import (
    MAX_CONTENT_BYTES,
    MAX_TOKENS,
    READ_SECONDS,
    CredentialReader,
    CredentialReadError,
)
from eso_operator.stores.credentials import bind
from eso_operator.stores.resolved import Reason, ResolutionError
from eso_testkit.operator.boundstores import bound_store
from eso_wire.values import CredentialKind, CredentialPath
from kubebase.clock import SystemClock, rfc3339
from kubebase.meta import ObjectKey, raw
from kubebase.testing.clock import VirtualClock
from kubebase.testing.servers import ApiServer
from kuberun.client import Client
from kuberun.config import load
from kuberun.errors import ApiError, Forbidden, NotFound, NotServed, Unreachable
from kuberun.requests import Request
from kuberun.testing.builders import CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS
from kuberun.transport import AiohttpTransport

KEY = ObjectKey("team", "s")


@dataclass
class Server:
    """The part of an API server that is needed here. With `open` cleared, all requests wait."""

    clock: VirtualClock
    data: dict[str, Any] = field(default_factory=lambda: {"k": base64.b64encode(b"CANARY").decode()})
    version: str = "1"
    life: float = 1000.0
    failure: ApiError | None = None
    requested: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def request(self, request: Request) -> bytes:
        self.requested.append(request.path)
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        if request.path.endswith("/token"):
            self.bodies.append(json.loads(request.body or b""))
            expires = rfc3339(self.clock.now() + timedelta(seconds=self.life))
            answer: Any = {"status": {"token": f"token-{len(self.requested)}", "expirationTimestamp": expires}}
        else:
            metadata = {"name": "s", "namespace": "team", "uid": "u", "resourceVersion": self.version}
            answer = {"metadata": metadata, "data": self.data}
        return json.dumps(answer).encode()

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise AssertionError(f"nothing is watched: {request.path}")

    async def close(self) -> None:
        return


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def server(clock: VirtualClock) -> Server:
    server = Server(clock)
    server.open.set()
    return server


@pytest.fixture
def reader(server: Server, clock: VirtualClock) -> CredentialReader:
    return CredentialReader(Client(server), clock)


async def test_a_secret_is_decoded_and_hidden(reader: CredentialReader, server: Server) -> None:
    content = await reader.secret(KEY)

    assert content is not None
    assert content.data["k"].reveal() == b"CANARY"
    assert (content.uid, content.resource_version) == ("u", "1")
    assert "CANARY" not in repr(content)
    assert server.requested == ["/api/v1/namespaces/team/secrets/s"]


async def test_a_config_map_gives_its_text_and_not_its_binary_data(reader: CredentialReader, server: Server) -> None:
    server.data = {"ca.crt": "PEM"}

    content = await reader.config_map(KEY)

    assert content is not None
    assert {name: value.reveal() for name, value in content.data.items()} == {"ca.crt": b"PEM"}


async def test_an_object_without_data_is_empty(reader: CredentialReader, server: Server) -> None:
    server.data = None  # type: ignore[assignment]  # what a server sends for an empty Secret

    content = await reader.secret(KEY)

    assert content is not None
    assert len(content.data) == 0


async def test_a_missing_object_reads_as_none(reader: CredentialReader, server: Server) -> None:
    server.failure = NotFound(404, "NotFound", "not found")

    assert await reader.secret(KEY) is None
    assert await reader.config_map(KEY) is None
    assert await reader.token(ObjectKey("team", "robot"), ()) is None


@pytest.mark.parametrize(
    "failure",
    [Forbidden(403, "Forbidden", "no permission"), Unreachable("refused"), NotServed(404, "", "unknown path")],
    ids=["forbidden", "unreachable", "not served"],
)
async def test_an_unreadable_object_does_not_count_as_missing(
    reader: CredentialReader, server: Server, failure: ApiError
) -> None:
    server.failure = failure

    with pytest.raises(CredentialReadError, match=failure.message):
        await reader.secret(KEY)


async def test_a_server_that_does_not_answer_is_given_up(
    reader: CredentialReader, server: Server, clock: VirtualClock
) -> None:
    server.open.clear()

    async with asyncio.TaskGroup() as group:
        group.create_task(clock.advance(READ_SECONDS + 1))
        with pytest.raises(CredentialReadError, match="did not answer"):
            await reader.secret(KEY)


async def test_a_burst_of_reads_costs_two(reader: CredentialReader, server: Server, clock: VirtualClock) -> None:
    server.open.clear()

    async with asyncio.TaskGroup() as group:
        reads = [group.create_task(reader.secret(KEY)) for _ in range(100)]
        await clock.settle()
        server.open.set()

    assert len(server.requested) == 2
    assert all(read.result() is not None for read in reads)


async def test_one_cancelled_reader_does_not_hurt_the_others(
    reader: CredentialReader, server: Server, clock: VirtualClock
) -> None:
    server.open.clear()

    async with asyncio.TaskGroup() as group:
        first, second = (group.create_task(reader.secret(KEY)) for _ in range(2))
        await clock.settle()
        first.cancel()
        await clock.settle()
        server.open.set()

    assert second.result() is not None


async def test_a_later_read_sees_the_later_state(reader: CredentialReader, server: Server) -> None:
    await reader.secret(KEY)
    server.version = "2"

    content = await reader.secret(KEY)

    assert content is not None
    assert content.resource_version == "2"


async def test_an_object_of_the_version_that_the_informer_has_is_not_read_again(
    server: Server, clock: VirtualClock
) -> None:
    known = {"Secret": "1"}
    reader = CredentialReader(Client(server), clock, lambda kind, _key: known.get(kind, ""))

    await reader.secret(KEY)
    await reader.secret(KEY)
    assert len(server.requested) == 1

    known["Secret"] = server.version = "2"
    content = await reader.secret(KEY)
    assert content is not None
    assert content.resource_version == "2"


async def test_a_large_secret_is_not_kept(server: Server, clock: VirtualClock) -> None:
    server.data = {"k": base64.b64encode(bytes(MAX_CONTENT_BYTES + 1)).decode()}
    reader = CredentialReader(Client(server), clock, lambda _kind, _key: "1")

    await reader.secret(KEY)
    await reader.secret(KEY)

    assert len(server.requested) == 2


async def test_a_token_is_kept_for_most_of_its_life(
    reader: CredentialReader, server: Server, clock: VirtualClock
) -> None:
    first = await reader.token(ObjectKey("team", "robot"), ("vault",))
    await clock.advance(799)
    again = await reader.token(ObjectKey("team", "robot"), ("vault",))
    await clock.advance(2)
    renewed = await reader.token(ObjectKey("team", "robot"), ("vault",))

    assert first is not None
    assert renewed is not None
    assert again is first
    assert renewed.token.reveal() != first.token.reveal()
    assert server.requested == ["/api/v1/namespaces/team/serviceaccounts/robot/token"] * 2
    assert server.bodies[0]["spec"]["audiences"] == ["vault"]


async def test_a_token_of_a_recreated_service_account_is_not_used(server: Server, clock: VirtualClock) -> None:
    """The API server refuses tokens of the old one, and every backend that asks it."""
    version = "1"
    reader = CredentialReader(Client(server), clock, lambda kind, key: f"{kind} {key} {version}")
    first = await reader.token(ObjectKey("team", "robot"), ())
    cached = await reader.token(ObjectKey("team", "robot"), ())
    version = "2"

    anew = await reader.token(ObjectKey("team", "robot"), ())

    assert first is cached
    assert anew is not None
    assert first is not None
    assert anew.token.reveal() != first.token.reveal()


async def test_tokens_are_kept_apart_by_account_and_audience(reader: CredentialReader, server: Server) -> None:
    for account, audiences in (("robot", ("a",)), ("robot", ("b",)), ("other", ("a",))):
        await reader.token(ObjectKey("team", account), audiences)
    await reader.token(ObjectKey("else", "robot"), ("a",))

    assert len(server.requested) == 4


async def test_the_number_of_kept_tokens_is_bounded(reader: CredentialReader, server: Server) -> None:
    for number in range(MAX_TOKENS + 10):
        await reader.token(ObjectKey("team", f"robot-{number}"), ())

    assert len(reader._tokens) == MAX_TOKENS
    before = len(server.requested)
    await reader.token(ObjectKey("team", "robot-0"), ())
    assert len(server.requested) == before + 1


@pytest.mark.live
async def test_secrets_config_maps_and_tokens_of_a_real_server(api_server: ApiServer, namespace: str) -> None:
    client = Client(AiohttpTransport(load(api_server.kubeconfig)))
    try:
        secret = {"metadata": {"namespace": namespace, "name": "s"}, "stringData": {"k": "value"}}
        await client.create(raw(SECRETS), secret)
        await client.create(
            raw(CONFIG_MAPS), {"metadata": {"namespace": namespace, "name": "c"}, "data": {"k": "text"}}
        )
        await client.create(raw(SERVICE_ACCOUNTS), {"metadata": {"namespace": namespace, "name": "robot"}})
        reader = CredentialReader(client, SystemClock())

        content = await reader.secret(ObjectKey(namespace, "s"))
        text = await reader.config_map(ObjectKey(namespace, "c"))
        token = await reader.token(ObjectKey(namespace, "robot"), ("vault",))

        assert content is not None
        assert content.data["k"].reveal() == b"value"
        assert text is not None
        assert text.data["k"].reveal() == b"text"
        assert token is not None
        assert len(token.token) > 20
        assert await reader.secret(ObjectKey(namespace, "absent")) is None
        assert await reader.token(ObjectKey(namespace, "absent"), ()) is None
    finally:
        await client.close()


@pytest.mark.live
async def test_the_audiences_of_the_api_server_are_those_it_fills_in_itself(
    api_server: ApiServer, namespace: str
) -> None:
    client = Client(AiohttpTransport(load(api_server.kubeconfig)))
    try:
        await client.create(raw(SERVICE_ACCOUNTS), {"metadata": {"name": "robot", "namespace": namespace}})
        reader = CredentialReader(client, SystemClock())

        found = await reader.api_audiences(ObjectKey(namespace, "robot"))
        reviewed = await reader.token(ObjectKey(namespace, "robot"), ())
    finally:
        await client.close()

    assert reviewed is not None
    assert found
    assert "external-secrets-provider/x" not in found


async def test_audiences_that_cannot_be_read_are_not_guessed(server: Server) -> None:
    """The token of this server is opaque."""
    with pytest.raises(CredentialReadError, match="audiences"):
        await CredentialReader(Client(server), server.clock).api_audiences(KEY)


@pytest.mark.parametrize("name", ["../other/secrets/s", "a/b", "a%2fb", "..", "."])
async def test_a_name_that_no_object_can_have_is_not_asked_for_and_not_there(server: Server, name: str) -> None:
    """Earlier, this was an unexpected error, and no condition named the problem."""
    reader = CredentialReader(Client(server), server.clock)
    key = ObjectKey("team", name)

    assert await reader.secret(key) is None
    assert await reader.config_map(key) is None
    assert await reader.service_account(key) is None
    assert await reader.token(key, ("vault",)) is None
    assert server.requested == []


@pytest.mark.parametrize("name", ["../x", "a%2fb"])
async def test_a_reference_to_such_a_name_is_told_on_the_object(server: Server, name: str) -> None:
    base = bound_store().resolved
    spec = json.dumps({"auth": {"name": name, "key": "k"}}).encode()
    path = CredentialPath("/auth", CredentialKind.SECRET_KEY)
    target = replace(base, config=replace(base.config, spec=spec, credentials=(path,)), auth_namespace="team")

    with pytest.raises(ResolutionError) as refused:
        await bind(target, CredentialReader(Client(server), server.clock))

    assert refused.value.reason is Reason.CREDENTIALS_NOT_FOUND
    assert name in refused.value.message
