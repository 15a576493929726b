"""The Webhook store against a real endpoint: single values, maps, absence, and values that did not change."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from eso_api.values import SecretBytes
from eso_provider_webhook.store import WebhookStore
from eso_sdk.testing import InMemory, call_context
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, GetItem, NotModified, ObjectRef, RemoteRef, Shape

TOKEN = "CANARY-token"
SECRETS = {"secrets": [{"name": "auth", "secretRef": {"name": "token"}}]}
SENT = {"/secrets/0/secretRef": {"token": SecretBytes(TOKEN.encode())}}


def context(spec: dict[str, Any], credentials: Any = None, *, namespace: str = "team") -> Context:
    return call_context(WebhookStore, spec, credentials, namespace=namespace)


async def read(client: InMemory, spec: dict[str, Any], key: str = "db", credentials: Any = None, **ref: Any) -> str:
    (result,) = await client.get(context(spec, credentials), [GetItem("only", RemoteRef(key, **ref))])
    assert isinstance(result.outcome, SecretBytes), result.outcome
    return result.outcome.reveal().decode()


async def read_map(client: InMemory, spec: dict[str, Any], key: str = "db") -> dict[str, str]:
    (result,) = await client.get(context(spec), [GetItem("only", RemoteRef(key), Shape.MAP)])
    assert isinstance(result.outcome, dict), result.outcome
    return {name: value.reveal().decode() for name, value in result.outcome.items()}


async def refused(
    client: InMemory, spec: dict[str, Any], credentials: Any = None, *, shape: Shape = Shape.SINGLE, **ref: Any
) -> ProviderError:
    """The error of a read, which shows nothing of the request or the answer."""
    item = GetItem("only", RemoteRef("db", **ref), shape)
    try:
        (result,) = await client.get(context(spec, credentials), [item])
        error = result.outcome
    except ProviderError as exc:
        error = exc
    assert isinstance(error, ProviderError), error
    assert "CANARY" not in error.message
    assert "127.0.0.1" not in error.message
    return error


# --- requests ---------------------------------------------------------------------------------------------------------


async def test_templates_see_the_reference_and_the_secrets(client: InMemory, endpoint: Any) -> None:
    spec = SECRETS | {
        "url": endpoint.url + "{{ .remoteRef.key }}?v={{ .remoteRef.version }}&ns={{ .remoteRef.namespace }}",
        "headers": {"Authorization": "Bearer {{ .auth.token }}", "X-Key": "{{ .remoteRef.key }}"},
        "body": '{"property": {{ .remoteRef.property | toJson }}}',
    }
    endpoint.json("value", path="/a b/c&d")

    assert await read(client, spec, "a b/c&d", SENT, version="1/2", property="user name") == "{}"
    (asked,) = endpoint.asked
    assert (asked.method, asked.target) == ("GET", "/a+b%2Fc%26d?v=1%2F2&ns=team")
    assert asked.headers["Authorization"] == f"Bearer {TOKEN}"
    assert asked.headers["X-Key"] == "a b/c&d"
    assert asked.body == '{"property": "user name"}'


async def test_a_key_cannot_leave_its_place_in_the_url(client: InMemory, endpoint: Any) -> None:
    spec = {"url": endpoint.url + "secrets/{{ .remoteRef.key }}"}

    await read(client, spec, "../admin?x=1#y")

    assert endpoint.asked[0].target == "/secrets/..%2Fadmin%3Fx%3D1%23y"


async def test_the_method_and_the_body_of_the_store_are_used_to_read(client: InMemory, endpoint: Any) -> None:
    spec = {"url": endpoint.url, "method": "POST", "body": '{"name": "{{ .remoteRef.key }}"}'}

    await read(client, spec)

    assert (endpoint.asked[0].method, endpoint.asked[0].body) == ("POST", '{"name": "db"}')


async def test_a_body_that_is_meant_for_pushes_does_not_break_reads(client: InMemory, endpoint: Any) -> None:
    spec = {"url": endpoint.url, "body": "{{ .remoteRef.password }}{{ .remoteRef.value }}{{ .remoteRef.key }}"}

    await read(client, spec)

    assert endpoint.asked[0].body == "db"


# --- single values ----------------------------------------------------------------------------------------------------


async def test_without_a_path_the_body_is_the_value_whatever_it_is(client: InMemory, endpoint: Any) -> None:
    async def binary(_: web.Request) -> web.Response:
        return web.Response(body=bytes(range(256)))

    endpoint.answers["/"] = binary

    (result,) = await client.get(context({"url": endpoint.url}), [GetItem("only", RemoteRef("db"))])

    assert isinstance(result.outcome, SecretBytes)
    assert result.outcome.reveal() == bytes(range(256))


@pytest.mark.parametrize(
    ("answer", "path", "value"),
    [
        pytest.param('{"a": "x"}', "$.a", "x", id="a string"),
        pytest.param(
            '{"a": {"b": "<", "a": 1}}', "$.a", '{"a":1,"b":"\\u003c"}', id="an object as JSON, as Go writes it"
        ),
        pytest.param('{"a": 12345678901234567891}', "$.a", "12345678901234567891", id="no digit is lost"),
        pytest.param('{"a": 2.75}', "$.a", "3", id="a number without digits after the point"),
        pytest.param('{"a": 1e22}', "$.a", "1" + "0" * 22, id="a large number"),
        pytest.param('{"a": true}', "$.a", "true", id="a boolean"),
        pytest.param('{"a": null}', "$.a", "", id="null"),
        pytest.param('{"a": ["x", "y"]}', "$.a", "x", id="the first entry of a list"),
        pytest.param('{"a": [["x"]]}', "$.a", "x", id="lists in lists"),
        pytest.param('{"f": [{"n": "u", "v": "x"}]}', '$.f[?@.n=="u"].v', "x", id="what a filter finds"),
        pytest.param('{"user": "anna"}', "$.{{ .remoteRef.property }}", "anna", id="a path that is a template"),
        pytest.param(
            '{"user": "anna"}', "{{ if not .remoteRef.property }}$.user{{ end }}", '{"user": "anna"}', id="none"
        ),
    ],
)
async def test_the_value_at_a_path(client: InMemory, endpoint: Any, answer: str, path: str, value: str) -> None:
    endpoint.json(answer)

    assert await read(client, {"url": endpoint.url, "result": {"jsonPath": path}}, property="user") == value


@pytest.mark.parametrize(
    ("answer", "path", "expected"),
    [
        pytest.param("CANARY", "$.a", (ErrorReason.BACKEND_ERROR, "is not JSON"), id="no JSON"),
        pytest.param("", "$.a", (ErrorReason.BACKEND_ERROR, "is not JSON"), id="nothing"),
        pytest.param('{"b": "CANARY"}', "$.a", (ErrorReason.BACKEND_ERROR, "nothing at $['a']"), id="an absent member"),
        pytest.param('{"a": []}', "$.a", (ErrorReason.BACKEND_ERROR, "an empty list"), id="an empty list"),
        pytest.param('{"a": [[]]}', "$.a", (ErrorReason.BACKEND_ERROR, "an empty list"), id="an empty list in a list"),
        pytest.param(
            '["CANARY"]', '$[?@.b=="x"]', (ErrorReason.BACKEND_ERROR, "an empty list"), id="a filter without a hit"
        ),
        pytest.param(
            '{"b": "CANARY"}',
            "$.{{ .remoteRef.property }}",
            (ErrorReason.BACKEND_ERROR, "nothing at $['user']"),
            id="a property that the path asks for",
        ),
        pytest.param(
            '{"f": []}',
            '$.f[?@.n=="{{ .remoteRef.property }}"]',
            (ErrorReason.BACKEND_ERROR, "an empty list"),
            id="a property that a filter asks for",
        ),
        pytest.param("{}", "{{ .remoteRef.property }}", (ErrorReason.CONFIG_INVALID, "/result/jsonPath"), id="no path"),
        pytest.param(
            "{}", "{{ fail .auth.token }}", (ErrorReason.CONFIG_INVALID, "/result/jsonPath"), id="a template fails"
        ),
    ],
)
async def test_answers_without_a_value(
    client: InMemory, endpoint: Any, answer: str, path: str, expected: tuple[ErrorReason, str]
) -> None:
    """None of them is "not found": deletion policies act on that, and only the endpoint can say it."""
    endpoint.json(answer)
    spec = {"url": endpoint.url, "result": {"jsonPath": path}}

    error = await refused(client, SECRETS | spec, SENT, property="user")

    assert (error.reason, error.is_not_found) == (expected[0], False)
    assert expected[1] in error.message


# --- maps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "path", "members"),
    [
        pytest.param(
            '{"a": "x", "n": 1.5, "o": {"b": 1}}', "", {"a": "x", "n": "1.5", "o": '{"b":1}'}, id="the answer"
        ),
        pytest.param('{"data": {"a": null}}', "$.data", {"a": ""}, id="an object at a path"),
        pytest.param('{"data": "{\\"a\\": \\"x\\"}"}', "$.data", {"a": "x"}, id="a string that is JSON"),
        pytest.param('{"db": {"a": "x"}}', "$.{{ .remoteRef.key }}", {"a": "x"}, id="a path that is a template"),
    ],
)
async def test_the_members_of_an_object(
    client: InMemory, endpoint: Any, answer: str, path: str, members: dict[str, str]
) -> None:
    endpoint.json(answer)

    assert await read_map(client, {"url": endpoint.url, "result": {"jsonPath": path}}) == members


@pytest.mark.parametrize(
    ("answer", "path", "words"),
    [
        pytest.param("CANARY", "", "the answer of the endpoint is not JSON", id="no JSON"),
        pytest.param('["CANARY"]', "", "the answer of the endpoint is a list", id="a list"),
        pytest.param('{"a": "CANARY"}', "$.a", "is a string that is not JSON", id="a string"),
        pytest.param('{"a": [{"b": "CANARY"}]}', "$.a[*]", "is a list", id="a path to several places"),
        pytest.param('{"a": "CANARY"}', "$.b", "nothing at $['b']", id="nothing there"),
    ],
)
async def test_answers_without_a_map(client: InMemory, endpoint: Any, answer: str, path: str, words: str) -> None:
    endpoint.json(answer)

    error = await refused(client, {"url": endpoint.url, "result": {"jsonPath": path}}, shape=Shape.MAP)

    assert error.reason is ErrorReason.BACKEND_ERROR
    assert words in error.message


# --- statuses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (304, ErrorReason.BACKEND_ERROR),
        (400, ErrorReason.BACKEND_ERROR),
        (401, ErrorReason.CREDENTIALS_REJECTED),
        (403, ErrorReason.PERMISSION_DENIED),
        (404, ErrorReason.SECRET_NOT_FOUND),
        (410, ErrorReason.BACKEND_ERROR),
        (413, ErrorReason.PAYLOAD_TOO_LARGE),
        (429, ErrorReason.RATE_LIMITED),
        (500, ErrorReason.BACKEND_UNAVAILABLE),
    ],
)
@pytest.mark.parametrize("shape", list(Shape))
async def test_a_status_has_its_reason(
    client: InMemory, endpoint: Any, status: int, reason: ErrorReason, shape: Shape
) -> None:
    endpoint.status(status, Retry_After="7")

    error = await refused(client, {"url": endpoint.url + "?q=CANARY", "headers": {"X": "CANARY"}}, shape=shape)

    assert error.reason is reason
    assert error.is_not_found is (status == 404)
    assert error.retry_after == (7.0 if status == 429 else 0.0)


async def test_only_a_404_means_that_a_key_does_not_exist(client: InMemory, shelf: Any, endpoint: Any) -> None:
    shelf.values["there"] = b"x"
    spec = {"url": endpoint.url + "secrets/{{ .remoteRef.key }}"}
    items = [GetItem("1", RemoteRef("there")), GetItem("2", RemoteRef("absent"))]

    present, absent = await client.check(context(spec), items)
    endpoint.otherwise = None
    endpoint.answers = {}
    endpoint.status(500)
    failed = (await client.check(context({"url": endpoint.url}), items[:1]))[0]

    assert (present.exists, absent.exists) == (True, False)
    assert failed.error is not None
    assert failed.error.reason is ErrorReason.BACKEND_UNAVAILABLE


# --- unchanged values -------------------------------------------------------------------------------------------------


async def test_an_unchanged_value_is_not_sent_again(client: InMemory, shelf: Any, endpoint: Any) -> None:
    spec = {"url": endpoint.url + "secrets/{{ .remoteRef.key }}"}
    shelf.values["db"] = b"one"

    values = [await read(client, spec), await read(client, spec)]
    shelf.values["db"] = b"two"
    values.append(await read(client, spec))

    assert values == ["one", "one", "two"]
    conditions = [asked.headers.get("If-None-Match") for asked in endpoint.asked]
    assert conditions[0] is None
    assert conditions[1] == conditions[2] is not None


async def test_a_reader_that_has_the_value_hears_that_it_did_not_change(
    client: InMemory, shelf: Any, endpoint: Any
) -> None:
    shelf.values["db"] = b"one"
    called = context({"url": endpoint.url + "secrets/{{ .remoteRef.key }}"})
    (first,) = await client.get(called, [GetItem("only", RemoteRef("db"))])
    version = first.metadata.provider_version

    (same,) = await client.get(called, [GetItem("only", RemoteRef("db"), if_version_differs=version)])
    shelf.values["db"] = b"two"
    (other,) = await client.get(called, [GetItem("only", RemoteRef("db"), if_version_differs=version)])

    assert version
    assert same.outcome == NotModified()
    assert isinstance(other.outcome, SecretBytes)
    assert other.outcome.reveal() == b"two"


async def test_another_path_into_the_same_answer_is_another_version(
    client: InMemory, shelf: Any, endpoint: Any
) -> None:
    shelf.values["db"] = b'{"a": "x", "b": "y"}'
    versions = set()
    for path in ("$.a", "$.b", ""):
        spec = {"url": endpoint.url + "secrets/db", "result": {"jsonPath": path}}
        (result,) = await client.get(context(spec), [GetItem("only", RemoteRef("db"))])
        versions.add(result.metadata.provider_version)

    assert len(versions) == 3


async def test_the_condition_of_the_configuration_wins(client: InMemory, shelf: Any, endpoint: Any) -> None:
    shelf.values["db"] = b"one"
    spec = {"url": endpoint.url + "secrets/db", "headers": {"if-none-match": '"mine"'}}

    await read(client, spec)
    await read(client, spec)

    assert [asked.headers.get("If-None-Match") for asked in endpoint.asked] == ['"mine"', '"mine"']


# --- two namespaces ---------------------------------------------------------------------------------------------------


async def test_two_namespaces_of_one_store_never_see_each_others_value(client: InMemory, endpoint: Any) -> None:
    """At the same time, with equal credentials, with answers that may be kept, and in sessions of their own."""

    async def by_namespace(request: web.Request) -> web.Response:
        if request.headers.get("If-None-Match"):
            return web.Response(status=304)
        return web.Response(text=f"value of {request.query['ns']}", headers={"ETag": '"always the same"'})

    endpoint.answers["/"] = by_namespace
    spec = {"url": endpoint.url + "?ns={{ .remoteRef.namespace }}"}
    store = ObjectRef("external-secrets.io/v1", "ClusterSecretStore", "", "shared", "uid-3")

    async def of(namespace: str) -> str:
        caller = ObjectRef("external-secrets.io/v1", "ExternalSecret", namespace, "caller", "uid-2")
        called = call_context(WebhookStore, spec, namespace="", store=store, caller=caller)
        (result,) = await client.get(called, [GetItem("only", RemoteRef("db"))])
        assert isinstance(result.outcome, SecretBytes), result.outcome
        return result.outcome.reveal().decode()

    for _ in range(3):
        assert list(await asyncio.gather(of("team-a"), of("team-b"))) == ["value of team-a", "value of team-b"]
    assert len(client.sessions) == 2
