"""The Webhook store against a real endpoint: pushes and deletions."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from eso_api.values import SecretBytes
from eso_provider_webhook.store import WebhookStore
from eso_sdk.testing import InMemory, call_context
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    DeleteBatch,
    DeleteItem,
    DeleteResult,
    GetItem,
    PushBatch,
    PushItem,
    PushOutcome,
    PushResult,
    RemoteRef,
)

TOKEN = "CANARY-token"
SECRETS = {"secrets": [{"name": "auth", "secretRef": {"name": "token"}}]}
SENT = {"/secrets/0/secretRef": {"token": SecretBytes(TOKEN.encode())}}
AUTHORIZED = SECRETS | {"headers": {"Authorization": "Bearer {{ .auth.token }}"}}


async def push(
    client: InMemory, spec: dict[str, Any], value: bytes | dict[str, bytes], key: str = "db", **ref: Any
) -> PushResult:
    payload = (
        SecretBytes(value)
        if isinstance(value, bytes)
        else {name: SecretBytes(content) for name, content in value.items()}
    )
    item = PushItem("only", RemoteRef(key, **ref), payload, secret_key="tls.key")
    sent = SENT if "secrets" in spec else None
    (result,) = await client.push(call_context(WebhookStore, spec, sent), PushBatch((item,), idempotency_key="1"))
    return result


async def delete(client: InMemory, spec: dict[str, Any], key: str = "db") -> DeleteResult:
    batch = DeleteBatch((DeleteItem("only", RemoteRef(key)),), idempotency_key="1")
    (result,) = await client.delete(call_context(WebhookStore, spec, SENT if "secrets" in spec else None), batch)
    return result


def error_of(result: PushResult | DeleteResult) -> ProviderError:
    error = result.outcome if isinstance(result, PushResult) else result.error
    assert isinstance(error, ProviderError)
    assert "CANARY" not in error.message
    assert "127.0.0.1" not in error.message
    return error


# --- push -------------------------------------------------------------------------------------------------------------


async def test_without_a_body_the_value_itself_is_posted(client: InMemory, shelf: Any, endpoint: Any) -> None:
    spec = AUTHORIZED | {"url": endpoint.url + "secrets/{{ .remoteRef.remoteKey }}"}

    result = await push(client, spec, bytes(range(256)), "dir/no-identifier")

    assert result.outcome is PushOutcome.UPDATED
    assert shelf.values == {"dir/no-identifier": bytes(range(256))}
    (asked,) = endpoint.asked
    assert (asked.method, asked.target) == ("POST", "/secrets/dir%2Fno-identifier")
    assert asked.headers["Authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        pytest.param('{"v": {{ .remoteRef.value | toJson }}}', '{"v": "s\\"cret"}', id="as value"),
        pytest.param("{{ .remoteRef.password }}", 's"cret', id="by the name of its remote key"),
        pytest.param('{{ index .remoteRef "password" }}', 's"cret', id="by index"),
        pytest.param("{{ .remoteRef.remoteKey }}/{{ .remoteRef.property }}", "password/user", id="key and property"),
        pytest.param("{{ .remoteRef.secretKey }}", "tls.key", id="the key of the Secret"),
        pytest.param("{{ .remoteRef.namespace }}", "team", id="the namespace of the caller"),
        pytest.param("{{ or .remoteRef.other .remoteRef.password }}", 's"cret', id="another entry's name is empty"),
        pytest.param("{{ if .remoteRef.key }}read{{ else }}push{{ end }}", "push", id="what a read sets is empty"),
    ],
)
async def test_a_body_sees_the_value(client: InMemory, endpoint: Any, body: str, sent: str) -> None:
    spec = {"url": endpoint.url, "method": "PUT", "body": body}

    await push(client, spec, b's"cret', "password", property="user")

    assert (endpoint.asked[0].method, endpoint.asked[0].body) == ("PUT", sent)


async def test_a_whole_secret_is_pushed_as_sorted_json(client: InMemory, endpoint: Any) -> None:
    await push(client, {"url": endpoint.url}, {"user": b"<anna>", "password": "pä".encode()})

    assert endpoint.asked[0].body == '{"password":"pä","user":"<anna>"}'


async def test_a_whole_secret_that_is_not_text_is_rejected(client: InMemory, endpoint: Any) -> None:
    error = error_of(await push(client, {"url": endpoint.url}, {"good": b"x", "binary": b"\xff\xfe"}))

    assert error.reason is ErrorReason.INVALID_REQUEST
    assert '"binary"' in error.message
    assert endpoint.asked == []


@pytest.mark.parametrize("key", ["remoteKey", "secretKey"])
async def test_the_value_never_takes_the_place_of_the_key_in_the_url(client: InMemory, endpoint: Any, key: str) -> None:
    spec = {"url": endpoint.url + "{{ .remoteRef.remoteKey }}-{{ .remoteRef.secretKey }}"}

    await push(client, spec, b"CANARY", key)

    assert endpoint.asked[0].target == f"/{key}-tls.key"


async def test_a_value_in_the_url_is_encoded(client: InMemory, endpoint: Any) -> None:
    await push(client, {"url": endpoint.url + "?v={{ .remoteRef.value }}"}, b"a&b=c d")

    assert endpoint.asked[0].target == "/?v=a%26b%3Dc+d"


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (400, ErrorReason.BACKEND_ERROR),
        (401, ErrorReason.CREDENTIALS_REJECTED),
        (403, ErrorReason.PERMISSION_DENIED),
        (404, ErrorReason.BACKEND_ERROR),
        (413, ErrorReason.PAYLOAD_TOO_LARGE),
        (429, ErrorReason.RATE_LIMITED),
        (503, ErrorReason.BACKEND_UNAVAILABLE),
    ],
)
async def test_a_push_that_is_refused_says_the_status(
    client: InMemory, endpoint: Any, status: int, reason: ErrorReason
) -> None:
    endpoint.status(status)

    error = error_of(await push(client, {"url": endpoint.url, "body": "{{ .remoteRef.value }}"}, b"CANARY"))

    assert (error.reason, error.backend_code) == (reason, str(status))


async def test_a_template_that_fails_does_not_show_the_value(client: InMemory, endpoint: Any) -> None:
    error = error_of(await push(client, {"url": endpoint.url, "body": "{{ fail .remoteRef.value }}"}, b"CANARY-value"))

    assert error.reason is ErrorReason.CONFIG_INVALID
    assert error.message.startswith("/body: ")
    assert endpoint.asked == []


async def test_a_pushed_value_is_read_back_and_an_earlier_answer_does_not_hide_it(
    client: InMemory, shelf: Any, endpoint: Any
) -> None:
    spec = {"url": endpoint.url + "secrets/{{ .remoteRef.key }}{{ .remoteRef.remoteKey }}"}
    values = []
    for value in (b"one", b"two"):
        await push(client, spec, value)
        (result,) = await client.get(call_context(WebhookStore, spec), [GetItem("only", RemoteRef("db"))])
        assert isinstance(result.outcome, SecretBytes)
        values.append(result.outcome.reveal())

    assert values == [b"one", b"two"]
    assert shelf.values == {"db": b"two"}


# --- delete -----------------------------------------------------------------------------------------------------------


async def test_a_deletion_names_the_key_encoded_and_brings_the_secrets(
    client: InMemory, shelf: Any, endpoint: Any
) -> None:
    shelf.values["dir/a b"] = b"x"
    url = endpoint.url + "secrets/{{ .remoteRef.remoteKey }}?token={{ .auth.token }}"
    spec = AUTHORIZED | {"url": url, "method": "PUT", "body": "{{ .remoteRef.value }}"}

    result = await delete(client, spec, "dir/a b")

    assert (result.existed, result.error, shelf.values) == (True, None, {})
    (asked,) = endpoint.asked
    assert (asked.method, asked.target) == ("DELETE", f"/secrets/dir%2Fa+b?token={TOKEN}")
    assert (asked.headers["Authorization"], asked.body) == (f"Bearer {TOKEN}", "")


async def test_deleting_what_is_not_there_succeeds(client: InMemory, shelf: Any, endpoint: Any) -> None:
    result = await delete(client, {"url": endpoint.url + "secrets/{{ .remoteRef.remoteKey }}"})

    assert (result.existed, result.error, shelf.values) == (False, None, {})


async def test_a_deletion_that_is_refused_says_the_status(client: InMemory, endpoint: Any) -> None:
    endpoint.status(405)

    error = error_of(await delete(client, {"url": endpoint.url}))

    assert (error.reason, error.backend_code) == (ErrorReason.BACKEND_ERROR, "405")


async def test_a_redirected_push_to_another_host_brings_neither_credentials_nor_the_value(
    client: InMemory, endpoint: Any, other_endpoint: Any
) -> None:
    async def elsewhere(_: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": other_endpoint.url})

    endpoint.answers["/"] = elsewhere

    error = error_of(await push(client, AUTHORIZED | {"url": endpoint.url}, b"CANARY"))

    assert "redirects to another host" in error.message
    assert other_endpoint.asked == []
