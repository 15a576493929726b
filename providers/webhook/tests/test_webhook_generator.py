"""The Webhook generator against a real endpoint: templates, answers, errors, bounds, TLS. No request leaks."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from aiohttp import web

from eso_api.values import SecretBytes
from eso_provider_webhook.endpoint import MAX_REDIRECTS
from eso_provider_webhook.generator import WebhookGenerator
from eso_sdk.http import MAX_RESPONSE
from eso_sdk.provider import served_kind
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.server import Authority
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import CredentialKind, CredentialPath, KindRole, ValidationState
from kubebase.testing.clock import VirtualClock
from kubebase.testing.listening import listening

TOKEN = "CANARY-token"
SECRETS = {"secrets": [{"name": "auth", "secretRef": {"name": "token", "key": "ignored"}}]}
SENT = {"/secrets/0/secretRef": {"token": SecretBytes(TOKEN.encode()), "broken": SecretBytes(b"CANARY\n")}}


def spec_of(endpoint: Any, **changes: Any) -> dict[str, Any]:
    return {"url": endpoint.url, "result": {}} | changes


async def generated(client: InMemory, spec: dict[str, Any], credentials: Any = None) -> dict[str, str]:
    made = await client.generate(call_context(WebhookGenerator, spec, credentials))
    assert made.state is None
    return {key: value.reveal().decode() for key, value in made.data.items()}


async def refused(client: InMemory, spec: dict[str, Any], credentials: Any = None) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await client.generate(call_context(WebhookGenerator, spec, credentials))
    assert "CANARY" not in caught.value.message
    assert "127.0.0.1" not in caught.value.message
    return caught.value


# --- the request ------------------------------------------------------------------------------------------------------


async def test_url_headers_and_body_are_filled_in_from_secrets(client: InMemory, endpoint: Any) -> None:
    spec = SECRETS | {
        "method": "POST",
        "url": endpoint.url + "?key={{ .auth.token | urlquery }}",
        "headers": {"Authorization": "Bearer {{ .auth.token }}", "X-Greeting": "hello"},
        "body": '{"token": {{ .auth.token | toJson }}}',
        "result": {},
    }
    endpoint.json('{"user": "anna"}')

    assert await generated(client, spec, SENT) == {"user": "anna"}
    (asked,) = endpoint.asked
    assert (asked.method, asked.target, asked.body) == ("POST", f"/?key={TOKEN}", f'{{"token": "{TOKEN}"}}')
    assert asked.headers["Authorization"] == f"Bearer {TOKEN}"
    assert asked.headers["X-Greeting"] == "hello"
    assert "Content-Type" not in asked.headers


async def test_without_a_method_it_is_a_get_without_a_body(client: InMemory, endpoint: Any) -> None:
    await generated(client, spec_of(endpoint))

    (asked,) = endpoint.asked
    assert (asked.method, asked.target, asked.body) == ("GET", "/", "")


async def test_headers_of_the_client_itself_cannot_be_set(client: InMemory, endpoint: Any) -> None:
    await generated(client, spec_of(endpoint, headers={"Host": "elsewhere", "content-length": "7", "X-Kept": "1"}))

    (asked,) = endpoint.asked
    assert asked.headers["Host"] in endpoint.url
    assert asked.headers["X-Kept"] == "1"
    assert "Content-Length" not in asked.headers


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        pytest.param("a%2Fb?sig=%2f%2B%20x", "/a%2Fb?sig=%2f%2B%20x", id="what is spelled as a URL stays as it is"),
        pytest.param("ä b?q=ä", "/%C3%A4%20b?q=%C3%A4", id="what is not is escaped"),
    ],
)
async def test_the_spelling_of_the_url(client: InMemory, endpoint: Any, written: str, sent: str) -> None:
    await generated(client, spec_of(endpoint, url=endpoint.url + written))

    assert endpoint.asked[0].target == sent


async def test_basic_authentication_in_the_url(client: InMemory, endpoint: Any) -> None:
    await generated(client, spec_of(endpoint, url=endpoint.url.replace("http://", "http://anna:pa%40ss@")))

    assert endpoint.asked[0].headers["Authorization"] == "Basic " + base64.b64encode(b"anna:pa@ss").decode()


# --- the answer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "path", "expected"),
    [
        pytest.param('{"a": "x", "b": ""}', "", {"a": "x", "b": ""}, id="strings as they are"),
        pytest.param('{"t": true, "f": false, "n": null}', "", {"t": "true", "f": "false", "n": ""}, id="words"),
        pytest.param('{"i": 7, "d": 1.50, "e": 1e3}', "", {"i": "7", "d": "1.5", "e": "1000"}, id="numbers"),
        pytest.param('{"s": 1e-7, "b": 1e22}', "", {"s": "0.0000001", "b": "1" + "0" * 22}, id="never an exponent"),
        pytest.param('{"i": 12345678901234567891}', "", {"i": "12345678901234567891"}, id="no digit is lost"),
        pytest.param(
            '{"o": {"b": 1, "a": "<"}, "l": [1, "x"]}',
            "",
            {"o": '{"a":"\\u003c","b":1}', "l": '[1,"x"]'},
            id="objects and lists as JSON, as Go writes it",
        ),
        pytest.param('{"data": {"a": "x"}}', "$.data", {"a": "x"}, id="a member"),
        pytest.param('{"data": {"a": "x"}}', "$", {"data": '{"a":"x"}'}, id="the root"),
        pytest.param('{"a-b": [{"c d": {"k": "v"}}]}', "$.a-b[0]['c d']", {"k": "v"}, id="an index and quotes"),
        pytest.param('[{"k": "1"}, {"k": "2"}]', '$[-1]["k"]', None, id="a string that is no JSON object"),
        pytest.param('{"text": "{\\"k\\": \\"v\\"}"}', "$.text", {"k": "v"}, id="text that is JSON once more"),
    ],
)
async def test_members_of_the_answer_become_values(
    client: InMemory, endpoint: Any, answer: str, path: str, expected: dict[str, str] | None
) -> None:
    endpoint.json(answer)
    spec = spec_of(endpoint, result={"jsonPath": path})

    if expected is None:
        assert (await refused(client, spec)).reason is ErrorReason.BACKEND_ERROR
    else:
        assert await generated(client, spec) == expected


@pytest.mark.parametrize(
    ("answer", "path", "words"),
    [
        pytest.param("CANARY", "", "not JSON", id="no JSON"),
        pytest.param("", "", "not JSON", id="nothing"),
        pytest.param("[" * 100_000, "", "not JSON", id="nested without end"),
        pytest.param('{"a": ' + "[" * 300 + "]" * 300 + "}", "", '"a"', id="a member that is nested deeply"),
        pytest.param('["CANARY"]', "", "is a list", id="a list"),
        pytest.param('"CANARY"', "", "a string that is not JSON", id="text"),
        pytest.param('{"a": {"b": "CANARY"}}', "$.a.b", "a string that is not JSON", id="text at the path"),
        pytest.param('{"a": 1}', "$.a", "is a number", id="a number at the path"),
        pytest.param('{"a": "CANARY"}', "$.b", "nothing at $['b']", id="an absent member"),
        pytest.param('{"a": []}', "$.a[0].b", "nothing at $['a'][0];", id="an index beyond the list"),
        pytest.param('{"a": "CANARY"}', "$.a[0]", "nothing at", id="an index into text"),
    ],
)
async def test_answers_that_are_no_values(client: InMemory, endpoint: Any, answer: str, path: str, words: str) -> None:
    endpoint.json(answer)

    error = await refused(client, spec_of(endpoint, result={"jsonPath": path}))

    assert error.reason is ErrorReason.BACKEND_ERROR
    assert words in error.message


async def test_the_largest_answer_and_one_more_byte(client: InMemory, endpoint: Any) -> None:
    empty = len('{"a":""}')
    endpoint.json('{"a":"' + "x" * (MAX_RESPONSE - empty) + '"}')
    await generated(client, spec_of(endpoint))

    endpoint.json('{"a":"' + "x" * (MAX_RESPONSE - empty + 1) + '"}')
    error = await refused(client, spec_of(endpoint))

    assert error.reason is ErrorReason.BACKEND_ERROR
    assert "larger than" in error.message


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (201, None),
        (304, ErrorReason.BACKEND_ERROR),
        (400, ErrorReason.BACKEND_ERROR),
        (401, ErrorReason.CREDENTIALS_REJECTED),
        (403, ErrorReason.PERMISSION_DENIED),
        (404, ErrorReason.BACKEND_ERROR),
        (418, ErrorReason.BACKEND_ERROR),
        (429, ErrorReason.RATE_LIMITED),
        (500, ErrorReason.BACKEND_UNAVAILABLE),
        (503, ErrorReason.BACKEND_UNAVAILABLE),
    ],
)
async def test_a_status_has_its_reason(
    client: InMemory, endpoint: Any, status: int, reason: ErrorReason | None
) -> None:
    if reason is None:
        endpoint.json('{"a": "1"}', status=status)
        assert await generated(client, spec_of(endpoint)) == {"a": "1"}
        return
    endpoint.status(status)

    error = await refused(client, spec_of(endpoint, url=endpoint.url + "?q=CANARY", headers={"X": "CANARY"}))

    assert (error.reason, error.backend_code) == (reason, str(status))


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        pytest.param("17", 17.0, id="seconds"),
        pytest.param("999999999", 3600.0, id="no longer than an hour"),
        pytest.param("Thu, 01 Jan 1970 00:00:00 GMT", 0.0, id="a time that is over"),
        pytest.param("soon", 0.0, id="no time"),
    ],
)
async def test_a_limit_says_when_to_come_again(client: InMemory, endpoint: Any, said: str, seconds: float) -> None:
    endpoint.status(429, Retry_After=said)

    assert (await refused(client, spec_of(endpoint))).retry_after == seconds


async def _hang_up(*_: object) -> None:
    """Close the connection at once."""


async def test_an_endpoint_that_refuses_connections(client: InMemory, endpoint: Any) -> None:
    async with asyncio.timeout(30):
        async with listening(_hang_up) as port:
            broken = await refused(client, spec_of(endpoint, url=f"http://127.0.0.1:{port}/?CANARY"))
        gone = await refused(client, spec_of(endpoint, url=f"http://127.0.0.1:{port}/?CANARY"))

    assert broken.reason is gone.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert "broke" in broken.message
    assert "cannot be reached" in gone.message


async def test_an_endpoint_that_does_not_answer_in_time(client: InMemory, clock: VirtualClock, endpoint: Any) -> None:
    arrived, never = asyncio.Event(), asyncio.Event()

    async def silent(_: web.Request) -> web.Response:
        arrived.set()
        await never.wait()
        return web.Response()

    endpoint.answers["/"] = silent
    async with asyncio.TaskGroup() as group:
        call = group.create_task(refused(client, spec_of(endpoint, timeout="3s")))
        await arrived.wait()
        await clock.advance(2.5)
        still_waiting = not call.done()
        await clock.advance(1)
    never.set()

    assert still_waiting
    assert call.result().reason is ErrorReason.BACKEND_TIMEOUT
    assert "within 3 s" in call.result().message


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        pytest.param({"url": ""}, "/url", id="no URL"),
        pytest.param({"url": "{{ .auth"}, "/url", id="a template that does not parse"),
        pytest.param({"url": "{{ fail .auth.token }}"}, "/url", id="a template that fails"),
        pytest.param({"url": "{{ .auth.token }}"}, "/url", id="no URL once filled in"),
        pytest.param({"url": "http://x/{{ .auth.absent }}"}, "/url", id="a key that the Secret does not have"),
        pytest.param({"url": "http://x/{{ .remoteRef.key }}"}, "/url", id="a generator has no remoteRef"),
        pytest.param({"url": "file:///etc/passwd"}, "/url", id="another scheme"),
        pytest.param({"url": "http://CANARY:port/"}, "/url", id="no port"),
        pytest.param({"url": "http://x/{{ .auth.broken }}"}, "/url", id="a line break in the URL"),
        pytest.param({"method": "GET / HTTP/1.1\r\nX:"}, "/method", id="no method"),
        pytest.param({"headers": {f"X-{at}": "" for at in range(65)}}, "/headers", id="too many headers"),
        pytest.param({"headers": {"a b": "x"}}, "/headers", id="no name of a header"),
        pytest.param({"headers": {"X": "{{ .auth.broken }}"}}, "/headers/X", id="a line break in a header"),
        pytest.param({"headers": {"X": "{{"}}, "/headers/X", id="a header that does not parse"),
        pytest.param({"body": "{{ end }}"}, "/body", id="a body that does not parse"),
        pytest.param({"timeout": "soon"}, "/timeout", id="no duration"),
        pytest.param({"caBundle": "CANARY!"}, "/caBundle", id="no base64"),
        pytest.param({"caBundle": "Q0FOQVJZ"}, "/caBundle", id="no certificates"),
        pytest.param({"secrets": SECRETS["secrets"] * 2}, "/secrets", id="two Secrets with one name"),
        pytest.param({"result": {"jsonPath": "data"}}, "must begin with $", id="no path"),
        pytest.param({"result": {"jsonPath": "$.a b"}}, "character 4", id="a path with a mistake"),
        pytest.param({"result": {"jsonPath": "$..a"}}, "several", id="any depth"),
        pytest.param({"result": {"jsonPath": "$.a[*].b"}}, "several", id="every entry"),
        pytest.param({"result": {"jsonPath": "$.a[?(@.b==1)]"}}, "several", id="a filter"),
        pytest.param({"result": {"jsonPath": "$.a[0,1]"}}, "several", id="two entries"),
        pytest.param({"result": {"jsonPath": "$.a[1:]"}}, "several", id="a slice"),
    ],
)
async def test_a_configuration_that_cannot_be(
    client: InMemory, endpoint: Any, changes: dict[str, Any], where: str
) -> None:
    sent = {**SENT, "/secrets/1/secretRef": SENT["/secrets/0/secretRef"]}

    error = await refused(client, spec_of(endpoint) | SECRETS | changes, sent)

    assert error.reason is ErrorReason.CONFIG_INVALID
    assert where in error.message
    assert endpoint.asked == []


async def test_admission_hears_of_it_without_a_call(client: InMemory, endpoint: Any) -> None:
    context = call_context(WebhookGenerator, spec_of(endpoint, result={"jsonPath": "$.*"}))

    assert (await client.validate(context, role=KindRole.GENERATOR)).state is ValidationState.INVALID
    assert endpoint.asked == []


# --- redirects --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "method", "body"),
    [(301, "GET", ""), (302, "GET", ""), (303, "GET", ""), (307, "POST", "x"), (308, "POST", "x")],
)
async def test_a_redirect_to_the_same_place_is_followed(
    client: InMemory, endpoint: Any, status: int, method: str, body: str
) -> None:
    endpoint.status(status, Location="/moved?to=here")
    endpoint.json('{"a": "1"}', path="/moved")

    made = await generated(client, spec_of(endpoint, method="POST", body="x", headers={"X-Token": "t"}))

    assert made == {"a": "1"}
    followed = endpoint.asked[1]
    assert (followed.method, followed.target, followed.body) == (method, "/moved?to=here", body)
    assert followed.headers["X-Token"] == "t"


@pytest.mark.parametrize("written", ["{}", "//{}", "ftp://{}", "http://[CANARY"])
async def test_a_redirect_elsewhere_is_not(client: InMemory, endpoint: Any, other_endpoint: Any, written: str) -> None:
    there = other_endpoint.url if written == "{}" else other_endpoint.url.removeprefix("http://")
    endpoint.status(302, Location=written.format(there))

    error = await refused(client, spec_of(endpoint, headers={"X-Token": "CANARY"}))

    assert error.reason is ErrorReason.BACKEND_ERROR
    assert "another host" in error.message
    assert other_endpoint.asked == []


async def test_a_redirect_to_https_on_the_same_host_is_followed_but_never_back(
    client: InMemory, endpoint: Any, tls_endpoint: Any, authority: Authority
) -> None:
    bundle = base64.b64encode(authority.pem).decode()
    endpoint.status(301, Location=tls_endpoint.url)
    tls_endpoint.json('{"a": "1"}')
    assert await generated(client, spec_of(endpoint, caBundle=bundle)) == {"a": "1"}

    tls_endpoint.status(301, Location=endpoint.url)
    error = await refused(client, spec_of(tls_endpoint, caBundle=bundle))

    assert "another host" in error.message


async def test_redirects_come_to_an_end(client: InMemory, endpoint: Any) -> None:
    endpoint.status(302, Location="/")

    error = await refused(client, spec_of(endpoint))

    assert error.reason is ErrorReason.BACKEND_ERROR
    assert len(endpoint.asked) == MAX_REDIRECTS + 1


# --- TLS --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "encode",
    [
        pytest.param(lambda pem: pem, id="once"),
        pytest.param(base64.b64encode, id="twice"),
        pytest.param(base64.urlsafe_b64encode, id="twice, for URLs"),
    ],
)
async def test_a_bundle_in_the_configuration_is_trusted(
    client: InMemory, tls_endpoint: Any, authority: Authority, encode: Any
) -> None:
    """However often it is encoded."""
    tls_endpoint.json('{"a": "1"}')
    bundle = base64.encodebytes(encode(authority.pem)).decode()

    assert await generated(client, spec_of(tls_endpoint, caBundle=bundle)) == {"a": "1"}


async def test_a_bundle_of_the_operator_is_trusted(client: InMemory, tls_endpoint: Any, authority: Authority) -> None:
    tls_endpoint.json('{"a": "1"}')
    spec = spec_of(tls_endpoint, caProvider={"type": "ConfigMap", "name": "ca", "key": "ca.crt"})

    assert await generated(client, spec, {"/caProvider": authority.pem}) == {"a": "1"}


@pytest.mark.parametrize(
    "trusted",
    [pytest.param({}, id="the system's"), pytest.param({"caBundle": Authority.make("other").pem}, id="another one")],
)
async def test_an_authority_that_is_not_trusted(client: InMemory, tls_endpoint: Any, trusted: dict[str, bytes]) -> None:
    bundles = {key: base64.b64encode(pem).decode() for key, pem in trusted.items()}

    error = await refused(client, spec_of(tls_endpoint, url=tls_endpoint.url + "?CANARY", **bundles))

    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert "unknown certificate authority" in error.message
    assert tls_endpoint.asked == []


async def test_a_certificate_for_another_host(client: InMemory, tls_endpoint: Any, authority: Authority) -> None:
    url = tls_endpoint.url.replace("127.0.0.1", "localhost")
    bundle = base64.b64encode(authority.pem).decode()

    error = await refused(client, spec_of(tls_endpoint, url=url, caBundle=bundle))

    assert "for another host" in error.message


# --- credentials ------------------------------------------------------------------------------------------------------


def test_the_operator_is_told_to_read_secrets_whole() -> None:
    assert served_kind(WebhookGenerator).credentials == (
        CredentialPath("/auth/ntlm/passwordSecret", CredentialKind.SECRET_KEY),
        CredentialPath("/auth/ntlm/usernameSecret", CredentialKind.SECRET_KEY),
        CredentialPath("/caProvider", CredentialKind.CA_PROVIDER),
        CredentialPath("/secrets/*/secretRef", CredentialKind.WHOLE_SECRET),
    )


async def test_a_secret_that_was_not_sent(client: InMemory, endpoint: Any) -> None:
    error = await refused(client, spec_of(endpoint) | SECRETS)

    assert error.reason is ErrorReason.CREDENTIALS_NOT_FOUND
    assert endpoint.asked == []
