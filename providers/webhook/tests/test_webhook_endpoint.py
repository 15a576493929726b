"""Connections of the Webhook store to its endpoint: addresses, TLS, bounds, validation, configuration."""

from __future__ import annotations

import asyncio
import base64
import socket
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from eso_api.values import SecretBytes
from eso_provider_webhook.generator import WebhookGenerator
from eso_provider_webhook.provider import PROVIDER
from eso_provider_webhook.store import WebhookStore
from eso_sdk.http import MAX_RESPONSE
from eso_sdk.provider import served_kind
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.server import Authority
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    CredentialKind,
    CredentialPath,
    GetItem,
    ObjectRef,
    RemoteRef,
    Validation,
    ValidationState,
)
from kubebase.testing.clock import VirtualClock

SECRETS = {"secrets": [{"name": "auth", "secretRef": {"name": "token"}}]}
SENT = {"/secrets/0/secretRef": {"token": SecretBytes(b"CANARY"), "url": SecretBytes(b"http://127.0.0.1:1/")}}


async def outcome(client: InMemory, spec: dict[str, Any], credentials: Any = None) -> Any:
    """The value of a read, or its error, which shows nothing of the request."""
    try:
        context = call_context(WebhookStore, spec, credentials)
        (result,) = await client.get(context, [GetItem("only", RemoteRef("db"))])
        found = result.outcome
    except ProviderError as exc:
        found = exc
    if isinstance(found, ProviderError):
        assert "CANARY" not in found.message
        assert "127.0.0.1" not in found.message
    return found.reveal().decode() if isinstance(found, SecretBytes) else found


# --- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::]"])
async def test_a_store_reaches_no_forbidden_address_unless_the_administrator_allows_it(
    endpoint: Any, clock: VirtualClock, host: str
) -> None:
    spec = {"url": endpoint.url.replace("127.0.0.1", host)}

    async with InMemory(PROVIDER, clock) as strict:
        error = await outcome(strict, spec)
        with pytest.raises(ProviderError) as generated:
            await strict.generate(call_context(WebhookGenerator, spec | {"result": {}}))
        verdict = await strict.validate(call_context(WebhookStore, spec))

    assert error.reason is generated.value.reason is ErrorReason.CONFIG_INVALID
    assert error.message.startswith("/url: resolves to")
    assert "--allow-address" in error.message
    assert verdict.state is ValidationState.INVALID
    assert endpoint.asked == []


async def test_a_redirect_does_not_lead_around_the_address_rule(client: InMemory, endpoint: Any) -> None:
    endpoint.status(302, Location="http://169.254.169.254/latest/meta-data")

    error = await outcome(client, {"url": endpoint.url})

    assert "redirects to another host" in error.message


# --- TLS -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["caBundle", "caProvider"])
async def test_a_private_authority_is_trusted_if_the_store_names_it(
    client: InMemory, tls_endpoint: Any, authority: Authority, source: str
) -> None:
    spec: dict[str, Any] = {"url": tls_endpoint.url}
    credentials = {}
    if source == "caBundle":
        spec["caBundle"] = base64.b64encode(authority.pem).decode()
    else:
        spec["caProvider"] = {"type": "Secret", "name": "ca", "key": "ca.crt"}
        credentials = {"/caProvider": authority.pem}

    untrusted = await outcome(client, {"url": tls_endpoint.url})

    assert untrusted.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert "unknown certificate authority" in untrusted.message
    assert await outcome(client, spec, credentials) == "{}"


# --- bounds -----------------------------------------------------------------------------------------------------------


async def test_an_answer_that_is_too_large_is_cut_off(client: InMemory, endpoint: Any) -> None:
    endpoint.json("x" * MAX_RESPONSE)
    whole = await outcome(client, {"url": endpoint.url})
    endpoint.json("x" * (MAX_RESPONSE + 1))
    error = await outcome(client, {"url": endpoint.url})

    assert len(whole) == MAX_RESPONSE
    assert error.reason is ErrorReason.BACKEND_ERROR
    assert "larger than" in error.message


async def test_a_slow_endpoint_delays_only_its_reader(client: InMemory, clock: VirtualClock, endpoint: Any) -> None:
    arrived, never = asyncio.Event(), asyncio.Event()

    async def silent(_: web.Request) -> web.Response:
        arrived.set()
        await never.wait()
        return web.Response()

    endpoint.answers["/slow"] = silent
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(outcome(client, {"url": endpoint.url + "slow", "timeout": "3s"}))
        await arrived.wait()
        quick = await outcome(client, {"url": endpoint.url})
        await clock.advance(3.5)
    never.set()

    assert quick == "{}"
    assert slow.result().reason is ErrorReason.BACKEND_TIMEOUT
    assert "within 3 s" in slow.result().message


async def test_a_slow_template_does_not_hold_up_other_calls(client: InMemory, endpoint: Any) -> None:
    endless = '{{ range until 100000 }}{{ sha256sum "a" }}{{ end }}'
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(outcome(client, {"url": endpoint.url, "body": endless}))
        await asyncio.sleep(0)
        assert await outcome(client, {"url": endpoint.url}) == "{}"
        assert not slow.done()

    assert slow.result().reason is ErrorReason.CONFIG_INVALID
    assert slow.result().message.startswith("/body: ")


# --- validation -------------------------------------------------------------------------------------------------------


async def verdict(client: InMemory, spec: dict[str, Any]) -> Validation | ProviderError:
    try:
        return await client.validate(call_context(WebhookStore, spec, SENT if "secrets" in spec else None))
    except ProviderError as exc:
        return exc


@pytest.mark.parametrize("path", ["", "{{ .remoteRef.key }}", '{{ fail "no key" }}'])
async def test_a_store_whose_endpoint_listens_is_valid_and_no_request_is_sent(
    client: InMemory, endpoint: Any, path: str
) -> None:
    answer = await verdict(client, {"url": endpoint.url + path})

    assert isinstance(answer, Validation)
    assert answer.state is ValidationState.READY
    assert endpoint.asked == []


async def test_a_store_whose_endpoint_does_not_listen_is_not_ready(client: InMemory) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    error = await verdict(client, {"url": f"http://127.0.0.1:{port}/"})

    assert isinstance(error, ProviderError)
    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE


async def test_a_host_that_comes_from_a_secret_is_checked(client: InMemory) -> None:
    error = await verdict(client, SECRETS | {"url": "{{ .auth.url }}{{ .remoteRef.key }}"})

    assert isinstance(error, ProviderError)
    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE


async def test_a_host_that_depends_on_the_reference_cannot_be_checked(client: InMemory) -> None:
    answer = await verdict(client, {"url": 'https://{{ .remoteRef.key }}{{ fail "x" }}/'})

    assert isinstance(answer, Validation)
    assert answer.state is ValidationState.UNKNOWN


# --- configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        pytest.param({"url": ""}, "/url: ", id="no URL"),
        pytest.param({"url": "ftp://example.com"}, "/url: ", id="another scheme"),
        pytest.param({"url": "https:///path"}, "/url: ", id="no host"),
        pytest.param({"method": "GET /"}, "/method: ", id="no method"),
        pytest.param({"headers": {"a b": "x"}}, "/headers: ", id="no name of a header"),
        pytest.param({"timeout": "soon"}, "/timeout: ", id="no duration"),
        pytest.param({"caBundle": "CANARY!"}, "/caBundle: ", id="no base64"),
        pytest.param({"result": {"jsonPath": "data"}}, "/result/jsonPath: ", id="no path"),
        pytest.param({"secrets": SECRETS["secrets"] * 2}, "/secrets: ", id="two Secrets with one name"),
        pytest.param(
            {"secrets": [{"name": "remoteRef", "secretRef": {"name": "x"}}]},
            "/secrets: ",
            id="the name of the reference",
        ),
    ],
)
async def test_admission_refuses_what_can_never_work(client: InMemory, changes: dict[str, Any], where: str) -> None:
    context = call_context(WebhookStore, {"url": "https://example.com"} | changes)

    answer = await client.validate(context)

    assert answer.state is ValidationState.INVALID
    assert answer.error is not None
    assert answer.error.message.startswith(where)
    assert "CANARY" not in answer.error.message


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        pytest.param({"url": "http://x/{{ .remoteRef.kye }}"}, "/url: ", id="a name that a reference does not have"),
        pytest.param({"url": "http://x/{{ .auth.absent }}"}, "/url: ", id="a key that the Secret does not have"),
        pytest.param({"url": "{{ .auth.token }}"}, "/url: ", id="no URL once it is filled in"),
        pytest.param({"headers": {"X-A": "{{ .remoteRef.kye }}"}}, "/headers/X-A: ", id="a header"),
        pytest.param({"headers": {"X-A": "a\n{{ .auth.token }}"}}, "/headers/X-A: ", id="a line break in a header"),
        pytest.param({"body": "{{ .auth.absent }}"}, "/body: ", id="the body"),
    ],
)
async def test_a_template_that_cannot_be_filled_in_names_its_field(
    client: InMemory, endpoint: Any, changes: dict[str, Any], where: str
) -> None:
    error = await outcome(client, SECRETS | {"url": endpoint.url} | changes, SENT)

    assert error.reason is ErrorReason.CONFIG_INVALID
    assert error.message.startswith(where)
    assert endpoint.asked == []


@pytest.mark.parametrize("namespace", ["", "team"])
@pytest.mark.parametrize("part", ["secrets", "auth"])
async def test_a_cluster_scoped_store_names_the_namespace_of_each_secret(
    client: InMemory, endpoint: Any, part: str, namespace: str
) -> None:
    reference = {"name": "s", "key": "k", "namespace": namespace}
    parts: dict[str, Any] = {
        "secrets": [{"name": "auth", "secretRef": reference}],
        "auth": {"ntlm": {"usernameSecret": reference, "passwordSecret": reference}},
    }
    sent: dict[str, Any] = {
        "/secrets/0/secretRef": {"k": SecretBytes(b"v")},
        "/auth/ntlm/usernameSecret": "u",
        "/auth/ntlm/passwordSecret": "p",
    }
    context = call_context(WebhookStore, {"url": endpoint.url, part: parts[part]}, sent)
    holder = ObjectRef("external-secrets.io/v1", "ClusterSecretStore", "", "shared")
    context = replace(context, store=holder, config=replace(context.config, ref=holder))

    if namespace:
        (result,) = await client.get(context, [GetItem("only", RemoteRef("db"))])
        assert isinstance(result.outcome, SecretBytes)
    else:
        with pytest.raises(ProviderError, match="/namespace: must be set in a cluster-scoped store") as caught:
            await client.get(context, [GetItem("only", RemoteRef("db"))])
        assert caught.value.reason is ErrorReason.CONFIG_INVALID
        assert endpoint.asked == []


def test_the_operator_is_told_what_to_read() -> None:
    assert served_kind(WebhookStore).credentials == (
        CredentialPath("/auth/ntlm/passwordSecret", CredentialKind.SECRET_KEY),
        CredentialPath("/auth/ntlm/usernameSecret", CredentialKind.SECRET_KEY),
        CredentialPath("/caProvider", CredentialKind.CA_PROVIDER),
        CredentialPath("/secrets/*/secretRef", CredentialKind.WHOLE_SECRET),
    )
